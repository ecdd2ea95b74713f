//! Multiplications on the tensor cores of a simulated B200, all checks on, against f64.

mod common;
#[path = "blackwell/pairs.rs"]
mod pairs;
#[path = "blackwell/scaled.rs"]
mod scaled;
#[path = "blackwell/together.rs"]
mod together;

use heist_builder::Arch;
use heist_kernels::blackwell::{TensorTiling, job_with_tiling};
use heist_kernels::gemm::{
    Activation, Epilogue, FAMILY, Gemm, Input, Layout, Output, Scales, Spread, prepared,
};
use heist_kernels::{Job, Target};
use heist_oracle::{Ptxas, parallel, sample};
use heist_run::Settings;
use heist_sched::Schedule;

/// Runs a multiplication on `sms` multiprocessors and compares.
fn right_under(
    problem: Gemm,
    tiling: &str,
    schedule: Option<Schedule>,
    sms: u32,
    settings: &Settings,
) {
    let (device, target) = common::small("b200", sms);
    let tiling: TensorTiling = tiling.parse().expect("a tile shape");
    let named = schedule.as_ref().map(ToString::to_string);
    let what = format!("{problem} {tiling} {named:?}, seed {}", settings.seed);
    let job = job_with_tiling(&problem, tiling, schedule.as_ref(), target)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut prepared = prepared(job, problem, 5);
    common::run(&mut prepared.job, &device, settings);
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(difference.within(prepared.bound), "{what}: {difference}");
    let elements = u64::from(problem.m) * u64::from(problem.n) * u64::from(problem.batch);
    assert_eq!(difference.count as u64, elements, "{what}: all of them");
}

fn right(problem: Gemm, tiling: &str) {
    right_under(problem, tiling, None, 2, &Settings::default());
}

fn bf16(m: u32, n: u32, k: u32) -> Gemm {
    Gemm::new(m, n, k, Input::Bf16, Output::Bf16, Layout::Nt)
}

/// One step and several, fewer steps than stages and more, all widths of tiles.
#[test]
fn every_width_and_depth() {
    for (tiling, n) in [
        ("tcgen05:128x64x64/2", 64),
        ("tcgen05:128x128x64/4", 256),
        ("tcgen05:128x192x64/3", 192),
        ("tcgen05:128x256x64/4", 512),
    ] {
        for k in [16, 64, 200, 448] {
            right(bf16(128, n, k), tiling);
        }
    }
}

#[test]
fn every_edge() {
    for (m, n, k) in [(1, 8, 8), (129, 72, 72), (127, 200, 40), (300, 136, 136)] {
        for output in [Output::F16, Output::Bf16, Output::F32] {
            let input = match output {
                Output::F16 => Input::F16,
                _ => Input::Bf16,
            };
            right(
                Gemm::new(m, n, k, input, output, Layout::Nt),
                "tcgen05:128x128x64/3",
            );
        }
    }
    // Rows of the result that start anywhere are stored by threads.
    for (n, output) in [
        (1, Output::Bf16),
        (67, Output::F16),
        (130, Output::Bf16),
        (131, Output::F32),
    ] {
        right(
            Gemm::new(140, n, 72, Input::F16, output, Layout::Nt),
            "tcgen05:128x64x64/3",
        );
    }
}

#[test]
fn every_type_and_layout() {
    for &layout in Layout::ALL {
        for (input, output) in [(Input::Bf16, Output::Bf16), (Input::F16, Output::F32)] {
            right(
                Gemm::new(200, 136, 144, input, output, layout),
                "tcgen05:128x128x64/3",
            );
            right(
                Gemm::new(136, 264, 80, input, output, layout),
                "tcgen05:128x256x64/3",
            );
        }
    }
    for input in [Input::Tf32, Input::E4m3, Input::E5m2] {
        right(
            Gemm::new(140, 72, 272, input, Output::F32, Layout::Nt),
            "tcgen05:128x64x64/3",
        );
    }
}

#[test]
fn every_epilogue() {
    for &activation in Activation::ALL {
        for (alpha, beta, bias) in [(1.0, 0.0, true), (-0.5, 2.0, false), (2.0, 1.0, true)] {
            for (output, n) in [(Output::F16, 67), (Output::Bf16, 72), (Output::F32, 68)] {
                let epilogue = Epilogue {
                    alpha,
                    beta,
                    bias,
                    activation,
                    ..Epilogue::default()
                };
                let problem = Gemm::new(131, n, 40, Input::F16, output, Layout::Nn);
                let problem = Gemm { ldb: 72, ..problem };
                right(problem.epilogue(epilogue), "tcgen05:128x64x64/2");
            }
        }
    }
    for scales in [Scales::Tensor, Scales::Rows] {
        let problem = Gemm::new(131, 72, 144, Input::E4m3, Output::Bf16, Layout::Nt);
        right(problem.scales(scales), "tcgen05:128x64x64/2");
    }
}

/// C of which a row, a column or one element is stored.
#[test]
fn parts_of_c() {
    for &spread in Spread::ALL {
        for (output, n, bias) in [
            (Output::F16, 67, true),
            (Output::Bf16, 72, false),
            (Output::Bf16, 200, true),
            (Output::F32, 68, false),
        ] {
            let epilogue = Epilogue {
                alpha: 0.5,
                beta: -2.0,
                spread,
                bias,
                ..Epilogue::default()
            };
            let problem = Gemm::new(131, n, 40, Input::F16, output, Layout::Nt);
            right(problem.epilogue(epilogue), "tcgen05:128x64x64/2");
        }
    }
}

/// Rows that start anywhere, and words that are stored across the depth, are written anew by a launch before.
#[test]
fn operands_that_tensor_copies_can_t_read() {
    let (_, target) = common::device("b200");
    for &layout in Layout::ALL {
        for (input, output, [m, n, k]) in [
            (Input::Bf16, Output::Bf16, [67, 73, 131]),
            (Input::F16, Output::F32, [130, 66, 74]),
            (Input::Tf32, Output::F32, [68, 76, 72]),
            (Input::Tf32, Output::F32, [67, 73, 33]),
        ] {
            let one = Gemm::new(m, n, k, input, output, layout);
            right(one, "tcgen05:128x64x64/3");
            right(one.batch(2), "tcgen05:128x64x64/3");
            let tiling = "tcgen05:128x64x64/3".parse().expect("one");
            let job = job_with_tiling(&one, tiling, None, target).expect("a job");
            let aligned = input == Input::Tf32 && k == 72 && layout == Layout::Nt;
            assert_eq!(job.steps.len(), 2 - usize::from(aligned), "{one}");
        }
    }
}

#[test]
fn a_batch() {
    right(bf16(130, 72, 72).batch(3), "tcgen05:128x64x64/3");
}

/// A block has several tiles, in whatever order; accumulators and stages go on from one to the next.
#[test]
fn every_policy_and_source_with_chaos() {
    let problem = bf16(600, 200, 136);
    for (seed, schedule) in [
        "clc early greedy grouped(16)",
        "clc late max-steals(2)",
        "clc early every(2)",
        "clc early first-half",
        "clc late time-budget(5us) hilbert",
        "clc early never",
        "ticket late greedy",
        "ticket early max-steals(1)",
        "static",
        "direct reversed",
    ]
    .into_iter()
    .enumerate()
    {
        let schedule: Schedule = schedule.parse().expect("a schedule");
        for chaos in [false, true] {
            let settings = Settings {
                seed: seed as u64,
                chaos,
                ..Settings::default()
            };
            right_under(
                problem,
                "tcgen05:128x64x64/3",
                Some(schedule.clone()),
                3,
                &settings,
            );
        }
    }
}

/// Blocks of a cluster work each for itself; those past the edge have no tile.
#[test]
fn every_cluster() {
    for cluster in ["1x1", "2x1", "1x2", "2x2"] {
        for source in ["clc early greedy", "static"] {
            let mut schedule: Schedule = source.parse().expect("a schedule");
            schedule.cluster = cluster.parse().expect("a shape");
            let settings = Settings {
                chaos: true,
                ..Settings::default()
            };
            right_under(
                bf16(300, 300, 72),
                "tcgen05:128x64x64/2",
                Some(schedule),
                4,
                &settings,
            );
        }
    }
}

#[test]
fn it_is_chosen_where_there_are_such_tensor_cores() {
    let (_, target) = common::device("b200");
    let chosen = |problem: &Gemm| {
        FAMILY
            .choose(None, problem, target)
            .expect("one suits")
            .name()
    };
    assert_eq!(chosen(&bf16(4096, 4096, 4096)), "tcgen05");
    assert_eq!(chosen(&bf16(1, 1, 8)), "tcgen05");
    // Rows that start at odd places are written anew, but for little depth.
    assert_eq!(chosen(&bf16(512, 512, 511)), "tcgen05");
    assert_eq!(chosen(&bf16(512, 512, 31)), "mma-32x32");
    let plain = Target {
        arch: Arch::SM_100,
        sms: 148,
    };
    let why = FAMILY.variants[0].suits(&bf16(512, 512, 512), plain);
    assert!(why.expect_err("plain sm_100").contains("it needs sm_100a"));
}

#[test]
fn wrong_tiles_are_told() {
    let (_, target) = common::device("b200");
    for (text, why) in [
        ("tcgen05:64x64x64/4", "with 128 rows"),
        ("tcgen05:384x64x64/4", "with 128 rows"),
        ("tcgen05:256x192x64/4", "a pair's tile has 128 or 256"),
        ("tcgen05:128x96x64/4", "64, 128, 192 or 256 columns"),
        ("tcgen05:128x64x64/1", "2 to 16 stages"),
    ] {
        let error = text.parse::<TensorTiling>().expect_err(text).to_string();
        assert!(error.contains(why), "{error}");
    }
    let deep = TensorTiling {
        blocks: 1,
        cols: 256,
        stages: 9,
    };
    let error = job_with_tiling(&bf16(128, 256, 64), deep, None, target).expect_err("too deep");
    assert!(
        error
            .to_string()
            .contains("shared memory for 4 such stages"),
        "{error}"
    );
}

/// Added to the columns of a pair's tiles, and twice where two pairs make a cluster.
const PAIR: u32 = 1000;

/// The kernels whose machine code is looked at: every way to store, every type, every width.
fn assembled() -> Vec<(Target, Job)> {
    let full = Epilogue {
        alpha: 0.5,
        beta: 2.0,
        bias: true,
        activation: Activation::Gelu,
        ..Epilogue::default()
    };
    let gemm = |n, input, output, layout| Gemm::new(504, n, 512, input, output, layout);
    let (bf16, f16) = (Output::Bf16, Output::F16);
    [
        (
            gemm(512, Input::Bf16, bf16, Layout::Nt),
            256,
            "clc early greedy grouped(16)",
        ),
        (
            gemm(1024, Input::Bf16, bf16, Layout::Nt),
            PAIR + 256,
            "clc early greedy grouped(16)",
        ),
        (
            gemm(600, Input::F16, Output::F32, Layout::Tn).epilogue(full),
            PAIR + 128,
            "clc late max-steals(8)",
        ),
        (
            gemm(600, Input::E4m3, bf16, Layout::Nt).scales(Scales::Rows),
            PAIR + 256,
            "clc early greedy",
        ),
        (
            gemm(600, Input::E4m3, bf16, Layout::Nt).scales(Scales::Mx),
            256,
            "clc early greedy grouped(16)",
        ),
        (
            gemm(1024, Input::F16, f16, Layout::Tn),
            2 * PAIR + 256,
            "clc early greedy",
        ),
        (
            gemm(600, Input::E5m2, Output::F32, Layout::Nt).scales(Scales::Mx),
            2 * PAIR + 128,
            "clc late max-steals(8)",
        ),
        (
            Gemm {
                k: 528,
                lda: 528,
                ldb: 528,
                ..gemm(601, Input::E4m3, f16, Layout::Nt).scales(Scales::Mx)
            },
            192,
            "clc early greedy",
        ),
        (
            gemm(600, Input::Bf16, bf16, Layout::Nn),
            256,
            "clc late max-steals(8) & first-half",
        ),
        (
            gemm(600, Input::F16, Output::F32, Layout::Tt),
            192,
            "clc early time-budget(50us)",
        ),
        (
            gemm(600, Input::Bf16, bf16, Layout::Nt).epilogue(full),
            256,
            "direct",
        ),
        (
            gemm(601, Input::F16, f16, Layout::Nt).epilogue(full),
            256,
            "clc early greedy",
        ),
        (
            gemm(600, Input::Tf32, Output::F32, Layout::Nt).epilogue(full),
            128,
            "ticket late greedy",
        ),
        (
            gemm(600, Input::E4m3, bf16, Layout::Nt).scales(Scales::Rows),
            256,
            "clc early greedy",
        ),
        (
            gemm(600, Input::E5m2, bf16, Layout::Nt).scales(Scales::Tensor),
            64,
            "static",
        ),
    ]
    .into_iter()
    .zip(
        [Arch::SM_100A, Arch::SM_100A, Arch::SM_103A, Arch::SM_100F]
            .into_iter()
            .cycle(),
    )
    .map(|((problem, cols, schedule), arch)| {
        let target = Target { arch, sms: 148 };
        let mut schedule: Schedule = schedule.parse().expect("a schedule");
        if cols / PAIR == 2 {
            schedule.cluster = "2x2".parse().expect("a shape");
        }
        let tiling = TensorTiling {
            blocks: 1 + (cols / PAIR).min(1),
            cols: cols % PAIR,
            stages: if problem.scales == Scales::Mx { 3 } else { 4 },
        };
        let job = job_with_tiling(&problem, tiling, Some(&schedule), target);
        (
            target,
            job.unwrap_or_else(|error| panic!("{problem}: {error}")),
        )
    })
    .collect()
}

#[test]
fn ptxas_spills_nothing_and_multiplies_in_tensor_memory() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let wrong = parallel(&sample(assembled()), |(target, job)| {
        let name = format!("{} for {}", job.name, target.arch);
        let cubin = match ptxas.assemble(&job.steps[0].ptx(), target.arch.name()) {
            Ok(cubin) => cubin,
            Err(rejected) => return Some(format!("{name}: {}", rejected.log)),
        };
        if !cubin.complaints().is_empty() {
            return Some(format!("{name}: {:?}", cubin.complaints()));
        }
        for usage in cubin.usage().values() {
            println!("{name}: {} registers", usage.registers);
            if usage.spill_stores + usage.spill_loads + usage.stack > 0 {
                return Some(format!("{name}: {usage:?}"));
            }
        }
        let Some(listing) = cubin.disassembly() else {
            println!("skipped: nvdisasm not found");
            return None;
        };
        let count = |word: &str| listing.lines().filter(|line| line.contains(word)).count();
        let products = count("UTCHMMA") + count("UTCQMMA");
        // Four steps a stage; a commit for the stage and one for the accumulator. Loads are
        // there twice: the last tile's epilogue is behind the loop.
        let pair = job.name.contains("tcgen05:256x");
        let in_pairs = count("MMA.2CTA") == products * usize::from(pair);
        let for_all = count("UGETNEXTWORKID.BROADCAST") > 0;
        // A product by scales has them behind its descriptor.
        let scaled = |line: &&str| {
            let parts = line.split_once("idesc[");
            line.contains("UTCQMMA") && parts.is_some_and(|(_, rest)| rest.contains("tmem["))
        };
        let scaled = listing.lines().filter(scaled).count();
        let side_by_side = job.steps[0]
            .launch
            .cluster
            .is_some_and(|shape| shape.count() > 2);
        let with_scales = job.name.contains("scales=mx");
        // Scales of 128 rows are a copy to tensor memory.
        let copies = match with_scales {
            true if job.name.contains("x128x64/") => 2,
            true => 3,
            false => 0,
        };
        let as_it_should = products == 4
            && (count("UTMALDG.3D.MULTICAST.2CTA") > 0) == side_by_side
            && scaled == products * usize::from(with_scales)
            && count("UTCCP") == copies
            && in_pairs
            && for_all == pair
            && count("UTCBAR") == 2
            && count("LDTM") >= 2;
        (!as_it_should).then(|| {
            format!(
                "{name}: {products} products, {} commits, {} loads",
                count("UTCBAR"),
                count("LDTM")
            )
        })
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
