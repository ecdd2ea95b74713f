//! Few rows times a large operand whose rows start anywhere, in one launch.

use super::anew::{behind, right_behind};
use super::*;
use heist_kernels::gemm::{ThinTile, job_with_thin};

const TYPES: [(Input, Output); 3] = [
    (Input::F16, Output::F32),
    (Input::Bf16, Output::Bf16),
    (Input::Tf32, Output::F32),
];

/// Runs a multiplication in a tile, over operands that begin so many elements behind the start of their buffers, and compares; gives the bytes of the result.
pub(super) fn right_in(
    problem: Gemm,
    tile: &str,
    elements: [usize; 2],
    schedule: Option<&Schedule>,
    device: &str,
) -> Vec<u8> {
    let (device, target) = common::device(device);
    let problem = Gemm {
        anywhere: [true; 2],
        ..problem
    };
    let tile: ThinTile = tile.parse().expect("a tile");
    let job = job_with_thin(&problem, tile, schedule, target);
    let mut prepared = prepared(job.expect("a job"), problem, 5);
    prepared.job = behind(prepared.job, &problem, elements);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {tile} {elements:?}: {difference}"
    );
    let results = problem.m * problem.n * problem.batch;
    assert_eq!(difference.count, results as usize, "every element");
    let result = prepared.job.buffers.iter().find(|one| one.name == "d");
    result.expect("a result").data.bytes().to_vec()
}

/// Every layout and type, few rows and few columns, odd sizes; more rows than a tile has, and a depth of several stages whose last one is short.
#[test]
fn few_rows_and_few_columns_of_every_layout() {
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        for (index, (input, output)) in TYPES.into_iter().enumerate() {
            let few = [1, 3, 8, 9, 17, 31, 52, 90][(turn * 3 + index) % 8];
            for (m, n) in [(few, 141), (139, few)] {
                let problem = Gemm::new(m, n, 331, input, output, layout);
                right_behind(problem, "thin", [0, 0], "h200");
            }
        }
    }
}

/// Operands that begin at every element of 16 bytes, with every pitch, and end with their last element. What lies before them and between their rows is not a
/// number.
#[test]
fn operands_begin_at_any_element() {
    for start in 0..16 {
        let (input, output) = TYPES[start % 3];
        let layout = Layout::ALL[start % 4];
        let odd = start as u32 % 8;
        let mut problem = Gemm::new(5, 35, 43 + odd, input, output, layout);
        right_in(problem, "thin:32x1", [start, 15 - start], None, "h200");
        (problem.lda, problem.ldb) = (52 + odd, 59 + odd);
        right_in(problem, "thin:16x1", [0, start], None, "h200");
        let mut problem = Gemm::new(33, 7, 41, input, output, layout);
        (problem.lda, problem.ldb, problem.ldc) = (56, 48 + odd, 9);
        right_in(problem, "thin:32x1", [start, 0], None, "h200");
    }
}

/// Every tile, on every architecture that has clusters; shares of the depth that have nothing to do.
#[test]
fn every_tile_with_every_share() {
    let tiles = [16, 32, 64, 128].into_iter();
    let tiles = tiles.flat_map(|outer| [1, 2, 4, 8].map(|shares| (outer, shares)));
    for (turn, (outer, shares)) in tiles.enumerate() {
        let (input, output) = TYPES[turn % 3];
        let layout = Layout::ALL[(turn / 4 + turn) % 4];
        let few = [2, 11, 65, 96][(turn + turn / 4) % 4];
        let depth = [129, 700][turn / 2 % 2];
        let problem = match turn % 2 {
            0 => Gemm::new(few, outer + 3, depth, input, output, layout),
            _ => Gemm::new(outer + 3, few, depth, input, output, layout),
        };
        let device = ["h200", "b200", "rtx5090"][turn % 3];
        let tile = format!("thin:{outer}x{shares}");
        right_in(problem, &tile, [1, 2], None, device);
    }
}

/// The least there can be, and no depth at all.
#[test]
fn the_smallest() {
    for &layout in Layout::ALL {
        for (m, n, k) in [(1, 1, 1), (1, 70, 1), (70, 1, 3), (2, 40, 0)] {
            let problem = Gemm::new(m, n, k, Input::F16, Output::F16, layout);
            right_in(problem, "thin:32x2", [1, 3], None, "h200");
        }
    }
}

#[test]
fn every_epilogue() {
    for &activation in Activation::ALL {
        for (alpha, beta, bias) in [(1.0, 0.0, true), (-0.5, 2.0, false), (2.0, 1.0, true)] {
            for (output, m, n) in [(Output::F16, 3, 33), (Output::Bf16, 40, 5)] {
                let epilogue = Epilogue {
                    alpha,
                    beta,
                    bias,
                    activation,
                    ..Epilogue::default()
                };
                let mut problem = Gemm::new(m, n, 77, Input::F16, output, Layout::Nt);
                problem.ldc = n + 2;
                right_in(
                    problem.epilogue(epilogue),
                    "thin:16x2",
                    [1, 1],
                    None,
                    "h200",
                );
            }
        }
    }
}

/// Products whose matrices follow each other, each with rows that start elsewhere.
#[test]
fn batches() {
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        let (input, output) = TYPES[turn % 3];
        let problem = Gemm::new(3, 37, 143, input, output, layout).batch(3);
        right_in(problem, "thin:32x2", [1, 5], None, "h200");
        let problem = Gemm::new(37, 2, 143, input, output, layout).batch(2);
        right_in(problem, "thin:16x1", [3, 0], None, "h200");
    }
}

/// Blocks that take tile after tile use their memory again, and have the same sums as those of one.
#[test]
fn schedules_hand_out_tiles_of_one_share() {
    let problem = Gemm::new(9, 400, 143, Input::Bf16, Output::F32, Layout::Nt);
    let direct = right_in(problem, "thin:16x1", [0, 1], None, "h200");
    for text in ["ticket early greedy", "ticket late max-steals(3)", "static"] {
        let schedule: Schedule = text.parse().expect("a schedule");
        let found = right_in(problem, "thin:16x1", [0, 1], Some(&schedule), "h200");
        assert_eq!(found, direct, "{schedule}");
    }
    // The variant does not share the depth there.
    for text in [
        "ticket late max-steals(3)",
        "ticket late pausing until-asked",
    ] {
        let schedule: Schedule = text.parse().expect("a schedule");
        let (device, mut target) = common::device("h200");
        target.sms = 2;
        let variant = FAMILY
            .choose(Some("thin"), &problem, target)
            .expect("it suits");
        let job = variant.job(&problem, Some(&schedule), target);
        let job = job.expect("a job");
        assert!(job.name.ends_with("x1"), "{}", job.name);
        let mut prepared = prepared(job, problem, 6);
        common::run(&mut prepared.job, &device, &Settings::default());
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(
            difference.within(prepared.bound),
            "{schedule}: {difference}"
        );
    }
    let (_, target) = common::device("h200");
    let ticket: Schedule = "ticket early greedy".parse().expect("a schedule");
    let tile = "thin:16x4".parse().expect("a tile");
    let refused = job_with_thin(&problem, tile, Some(&ticket), target);
    let refused = refused.expect_err("a cluster has one tile").to_string();
    assert!(refused.contains("take the source direct"), "{refused}");
}

/// Sums do not depend on the order in which blocks run.
#[test]
fn shares_are_added_in_their_order() {
    let problem = Gemm::new(5, 67, 900, Input::F16, Output::F32, Layout::Nn);
    let once = right_in(problem, "thin:32x4", [0, 1], None, "h200");
    let (device, target) = common::device("h200");
    let given = Gemm {
        anywhere: [true; 2],
        ..problem
    };
    for seed in 1..4 {
        let job = job_with_thin(&given, "thin:32x4".parse().expect("one"), None, target);
        let mut prepared = prepared(job.expect("a job"), given, 5);
        prepared.job = behind(prepared.job, &given, [0, 1]);
        let settings = Settings {
            seed,
            ..Settings::default()
        };
        common::run(&mut prepared.job, &device, &settings);
        let result = prepared.job.data("d").expect("a result");
        assert_eq!(result.bytes(), once, "seed {seed}");
    }
}

#[test]
fn what_can_t_be_is_told() {
    let good = Gemm::new(8, 801, 803, Input::F16, Output::F16, Layout::Nt);
    let says = |problem: Gemm, device| {
        let (_, target) = common::device(device);
        let variant = FAMILY.choose(Some("thin"), &problem, target);
        variant.err().expect("no such kernel").to_string()
    };
    assert!(says(good, "a100").contains("clusters, which came with sm_90"));
    assert!(says(Gemm { m: 97, ..good }, "h200").contains("the fewer here are 97"));
    assert!(says(good.scales(Scales::Rows), "h200").contains("no factors"));
    let tiny = Gemm {
        input: Input::E4m3,
        ..good
    };
    assert!(says(tiny, "h200").contains("not e4m3"));
    assert!("thin:64x3".parse::<ThinTile>().is_err());
    assert!("thin:64".parse::<ThinTile>().is_err());
}

/// Nothing before an operand is read, and nothing between its rows: the result may lie there, and other blocks write it meanwhile.
#[test]
fn the_result_may_lie_beside_an_operand() {
    let (device, target) = common::device("h200");
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        let (input, output) = [(Input::F16, Output::F16), (Input::Tf32, Output::F32)][turn % 2];
        // 105 results, which do not end with 16 bytes, before B.
        let mut problem = Gemm::new(3, 35, 61, input, output, layout);
        problem.anywhere[1] = true;
        let tile = "thin:16x1".parse().expect("a tile");
        let job = job_with_thin(&problem, tile, None, target).expect("a job");
        let mut prepared = prepared(job, problem, 5);
        prepared.job = behind(prepared.job, &problem, [0, 105]);
        with_result_at(&mut prepared.job, "b", 0);
        common::run(&mut prepared.job, &device, &Settings::default());
        let both = prepared.job.data("b").expect("a buffer").clone();
        let bytes = both.bytes()[..105 * both.ty().bytes()].to_vec();
        let result = Buffer::from_bytes(output.element(), bytes).expect("whole elements");
        prepared.job = prepared.job.buffer("d", Role::Out, result);
        let difference = (prepared.verify)(&prepared.job).expect("a comparison");
        assert!(difference.within(prepared.bound), "{problem}: {difference}");
    }
}

/// The same where rows of an operand have gaps: a row of the result ends where the operand's next row begins.
#[test]
fn the_result_may_lie_between_rows_of_an_operand() {
    let (device, target) = common::device("h200");
    for (turn, &layout) in Layout::ALL.iter().enumerate() {
        let (input, output) = [(Input::F16, Output::F16), (Input::Tf32, Output::F32)][turn % 2];
        let (pitch, n) = (97, 35);
        let k = match layout.b() {
            Major::Depth => pitch - n,
            Major::Outer => 200,
        };
        let mut problem = Gemm::new(3, n, k, input, output, layout);
        (problem.ldb, problem.ldc) = (pitch, pitch);
        let thin = job_with_thin(&problem, "thin:16x1".parse().expect("a tile"), None, target);
        let tiny = TINY.parse().expect("a tile shape");
        let tiny = job_with(&problem, tiny, &schedule(target), target);
        let jobs = [thin, tiny].map(|job| job.expect("a job"));
        // Between the first rows, and between those of a later tile or step.
        let places = [0, problem.rows_of_b() - 5].into_iter();
        for (job, row) in places.flat_map(|row| jobs.clone().map(|job| (job, row))) {
            let mut prepared = prepared(job, problem, 5);
            let before = ((row + 1) * pitch - n) as usize * input.element().bytes();
            with_result_at(&mut prepared.job, "b", before as u64);
            common::run(&mut prepared.job, &device, &Settings::default());
            let both = prepared.job.data("b").expect("a buffer").clone();
            let bytes = both.bytes()[before..][..3 * pitch as usize * both.ty().bytes()].to_vec();
            let result = Buffer::from_bytes(output.element(), bytes).expect("whole elements");
            prepared.job = prepared.job.buffer("d", Role::Out, result);
            let difference = (prepared.verify)(&prepared.job).expect("a comparison");
            assert!(difference.within(prepared.bound), "{problem}: {difference}");
        }
    }
}

/// Where the result lies elsewhere, what is between rows is copied with them: rows with gaps take as long as others, on the simulated GPU's clock.
#[test]
fn rows_with_gaps_wait_for_no_element() {
    let (device, target) = common::device("h200");
    for &layout in Layout::ALL {
        let time = |gap: u32| {
            let mut problem = Gemm::new(3, 37, 333, Input::F16, Output::F16, layout);
            (problem.lda, problem.ldb) = (problem.lda + gap, problem.ldb + gap);
            let tile = "thin:32x1".parse().expect("a tile");
            let job = job_with_thin(&problem, tile, None, target).expect("a job");
            let job = prepared(job, problem, 5).job;
            let (step, arguments) = (&job.steps[0], job.arguments(0).expect("a step"));
            let program = Program::from_module(&*step.entry, &step.module);
            let settings = Settings::default();
            let run = device.inspect(&program, &step.entry, &step.launch, &arguments, &settings);
            run.expect("it runs").elapsed.expect("modelled").0 as f64
        };
        // The same shifts of rows.
        let [packed, apart] = [0, 8].map(time);
        assert!(
            apart <= packed * 1.05,
            "{layout}: {apart} ps, {packed} packed"
        );
    }
}

/// What all blocks read goes through the first-level cache: the few rows, and both operands of small tiles. What one block reads, and large tiles, do not.
#[test]
fn what_all_blocks_read_goes_through_the_first_level_cache() {
    let (_, target) = common::device("h200");
    let copies = |job: Result<heist_kernels::Job, heist_kernels::KernelError>| {
        let text = job.expect("a job").steps[0].ptx();
        ["cp.async.ca", "cp.async.cg"].map(|one| text.contains(one))
    };
    let tile = "thin:64x1".parse().expect("a tile");
    for &layout in Layout::ALL {
        for [m, n] in [[3, 701], [701, 3]] {
            let few = Gemm::new(m, n, 333, Input::Bf16, Output::Bf16, layout);
            let thin = copies(job_with_thin(&few, tile, None, target));
            assert_eq!(thin, [true, true], "{few}");
        }
        let problem = Gemm::new(333, 335, 33, Input::Bf16, Output::Bf16, layout);
        let by_mma = |name| {
            let variant = FAMILY.choose(Some(name), &problem, target);
            copies(variant.expect("it suits").job(&problem, None, target))
        };
        assert_eq!(by_mma("mma-32x32"), [true, false], "{problem}");
        assert_eq!(by_mma("mma-128x128"), [false, true], "{problem}");
    }
}

/// Lets a job write its result into another buffer.
fn with_result_at(job: &mut Job, name: &str, offset: u64) {
    for param in job.steps.iter_mut().flat_map(|step| &mut step.params) {
        if matches!(param, Arg::Pointer { buffer, .. } if *buffer == BufferRef::Named("d".into())) {
            *param = Arg::Pointer {
                buffer: BufferRef::Named(name.to_owned()),
                offset,
            };
        }
    }
    let data = job.data(name).expect("a buffer").clone();
    *job = std::mem::take(job).buffer(name, Role::InOut, data);
}

/// Where it is expected ahead: few rows of a large operand that would be written anew, and not where the large one can be read as it is.
#[test]
fn few_rows_over_unaligned_operands_are_thin() {
    let (_, target) = common::device("h200");
    let chosen = |problem: &Gemm| FAMILY.choose(None, problem, target).expect("one").name();
    for (m, n, k, input, layout, thin) in [
        (1, 8191, 8191, Input::F16, Layout::Nt, true),
        (4001, 8, 5001, Input::Bf16, Layout::Nn, true),
        (16, 4097, 4097, Input::Tf32, Layout::Nn, true),
        (1, 8192, 8192, Input::F16, Layout::Nt, false),
        (8, 64, 200_001, Input::F16, Layout::Nn, false),
        (40, 4097, 4097, Input::F16, Layout::Nt, true),
        (92, 4853, 1816, Input::F16, Layout::Nt, false),
    ] {
        let problem = Gemm::new(m, n, k, input, Output::F32, layout);
        assert_eq!(
            chosen(&problem) == "thin",
            thin,
            "{problem}: {}",
            chosen(&problem)
        );
        let plan = FAMILY.plan(None, &problem, target).expect("a plan");
        assert!(!thin || plan.steps.len() == 1 && plan.workspace_bytes() == 0);
    }
    // A view that begins anywhere.
    let mut view = Gemm::new(2, 4096, 4096, Input::F16, Output::F16, Layout::Nt);
    assert_ne!(chosen(&view), "thin");
    view.anywhere[1] = true;
    assert_eq!(chosen(&view), "thin");
}
