//! Operands that are written anew before they are multiplied, and those that begin at any element.

use super::*;

/// What tiles can't read of tf32 a launch writes anew: the operand with a tile's columns where it is stored across the depth, and rows that
/// start anywhere.
#[test]
fn tf32_is_written_along_the_depth_first() {
    use Layout::{Nn, Nt, Tn, Tt};
    for (tiling, m, n, k, layout, launches) in [
        ("wgmma:64x32x64/2", 68, 40, 36, Nn, 2),
        ("wgmma:64x32x64/2/swapped", 68, 40, 36, Tt, 2),
        ("wgmma:64x32x64/2", 68, 40, 41, Tn, 2),
        ("wgmma:64x32x64/2/swapped", 36, 68, 41, Tn, 2),
        // Rows that start at multiples of 4 bytes.
        ("wgmma:64x32x64/2", 33, 35, 37, Nt, 2),
        ("wgmma:64x32x64/2/swapped", 33, 35, 40, Nn, 2),
        ("wgmma:64x32x64/2", 33, 35, 40, Nt, 1),
        ("wgmma:64x32x64/2/split=2", 33, 35, 330, Tt, 3),
    ] {
        for batch in [1, 3] {
            let one = Gemm::new(m, n, k, Input::Tf32, Output::F32, layout);
            let problem = Gemm { batch, ..one };
            right_in_tiles(problem, tiling, None, 132);
            let (_, target) = common::device("h200");
            let job = job_with_tiling(&problem, tiling.parse().expect("one"), None, target);
            assert_eq!(job.expect("a job").steps.len(), launches, "{problem}");
        }
    }
}

/// Halves whose rows do not start at multiples of 16 bytes, one launch before whatever it writes: one operand or both, in layouts that stay what they are,
/// rows of one element, of an odd number, and of so many that those that are written begin with lines.
#[test]
fn halves_whose_rows_start_anywhere_are_written_anew_first() {
    use Layout::{Nn, Nt, Tn, Tt};
    for (tiling, m, n, k, layout, launches) in [
        ("wgmma:64x32x64/2", 33, 35, 37, Nt, 2),
        ("wgmma:64x64x64/2", 33, 35, 40, Nn, 2),
        ("wgmma:64x64x64/2", 71, 72, 67, Tn, 2),
        ("wgmma:64x64x64/2/swapped", 66, 35, 9, Tt, 2),
        ("wgmma:64x8x64/3/swapped/split=3", 1, 130, 331, Nt, 3),
        ("wgmma:64x32x64/2/split=2/cluster=depth", 70, 1, 333, Nn, 2),
        ("wgmma:64x32x64/2", 1, 1, 1, Tn, 2),
        ("wgmma:64x64x64/2", 72, 72, 37, Tn, 1),
    ] {
        for (input, output, batch) in [(Input::Bf16, Output::Bf16, 1), (Input::F16, Output::F32, 3)]
        {
            let one = Gemm::new(m, n, k, input, output, layout);
            let problem = Gemm { batch, ..one };
            right_in_tiles(problem, tiling, None, 132);
            let (_, target) = common::device("h200");
            let job = job_with_tiling(&problem, tiling.parse().expect("one"), None, target);
            assert_eq!(job.expect("a job").steps.len(), launches, "{problem}");
        }
    }
}

/// One launch whose lanes load single elements, or two: by the depth, and by rounds of tiles.
#[test]
fn little_depth_is_not_written_anew() {
    let (_, target) = common::device("h200");
    for (m, n, k, input, anew) in [
        (47, 59, 20, Input::F16, false),
        (1119, 32, 29, Input::Bf16, false),
        (98, 3672, 97, Input::Tf32, true),
        (98, 3672, 301, Input::Tf32, true),
        (79, 89, 6916, Input::F16, true),
        (301, 120, 401, Input::Tf32, true),
        // Rounds.
        (131, 121, 31, Input::Bf16, false),
        (2001, 3001, 31, Input::Bf16, true),
        // Few tiles.
        (101, 641, 161, Input::Bf16, true),
        (64, 641, 61, Input::Bf16, false),
        // Rows that start where they should.
        (48, 64, 24, Input::F16, true),
    ] {
        let problem = Gemm::new(m, n, k, input, Output::F32, Layout::Nt);
        let chosen = FAMILY.choose(None, &problem, target).expect("one").name();
        assert_eq!(chosen.starts_with("wgmma"), anew, "{problem}: {chosen}");
    }
    // A batch is nothing for `mma.sync` but of few rows.
    let batch = Gemm::new(47, 59, 20, Input::F16, Output::F32, Layout::Nt).batch(2);
    assert_eq!(
        FAMILY.choose(None, &batch, target).expect("one").name(),
        "thin"
    );
}

/// The same job over operands that begin so many elements behind the start of their buffers, and end with their last elements.
pub(super) fn behind(mut job: Job, problem: &Gemm, elements: [usize; 2]) -> Job {
    let gap = |major, outer, pitch| match major {
        Major::Depth => pitch - problem.k,
        Major::Outer => pitch - outer,
    };
    let gaps = [
        gap(problem.layout.a(), problem.m, problem.lda),
        gap(problem.layout.b(), problem.n, problem.ldb),
    ];
    let pitches = [problem.lda, problem.ldb];
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        let data = job.data(name).expect("an operand").clone();
        let (ty, size) = (data.ty(), data.ty().bytes());
        let (gap, pitch) = (gaps[at] as usize * size, pitches[at] as usize * size);
        let bytes = size * elements[at];
        // What is before, and between rows, is not a number.
        let mut own = data.bytes().to_vec();
        for row in own.chunks_mut(pitch.max(1)) {
            let end = row.len();
            row[end.min(pitch - gap)..].fill(0xff);
        }
        own.truncate(own.len() - gap);
        let shifted = [vec![0xff; bytes], own].concat();
        let shifted = Buffer::from_bytes(ty, shifted).expect("whole elements");
        for step in &mut job.steps {
            for param in &mut step.params {
                if let Arg::Pointer { buffer, offset } = param
                    && *buffer == BufferRef::Named(name.to_owned())
                {
                    *offset += bytes as u64;
                }
            }
        }
        job = job.buffer(name, Role::In, shifted);
    }
    job
}

/// Runs a multiplication over views that begin at such elements, and compares.
pub(super) fn right_behind(problem: Gemm, variant: &str, elements: [usize; 2], device: &str) {
    let (device, target) = common::device(device);
    let per = 16 / problem.input.bytes() as usize;
    let anywhere = elements.map(|elements| !elements.is_multiple_of(per));
    let problem = Gemm {
        anywhere,
        ..problem
    };
    let variant = FAMILY
        .choose(Some(variant), &problem, target)
        .expect("it suits");
    let job = variant.job(&problem, None, target).expect("a job");
    let mut prepared = prepared(job, problem, 5);
    prepared.job = behind(prepared.job, &problem, elements);
    common::run(&mut prepared.job, &device, &Settings::default());
    let difference = (prepared.verify)(&prepared.job).expect("a comparison");
    assert!(
        difference.within(prepared.bound),
        "{problem} {elements:?}: {difference}"
    );
}

/// Views that begin at every element, with every pitch: by warpgroups, which read them written anew, and by `mma.sync`, which reads them as they are.
#[test]
fn operands_begin_at_any_element() {
    let inputs = [
        (Input::F16, Output::F32),
        (Input::Bf16, Output::Bf16),
        (Input::Tf32, Output::F32),
    ];
    for start in 0..8 {
        let (input, output) = inputs[start % 3];
        let layout = Layout::ALL[start % 4];
        for (variant, device) in [("wgmma", "h200"), ("mma-64x64", "a100")] {
            let mut problem = Gemm::new(40, 24, 48, input, output, layout);
            right_behind(problem, variant, [start % 8, 0], device);
            (problem.lda, problem.ldb) = (56 + start as u32, 57);
            right_behind(problem, variant, [3, start % 8], device);
            // Pairs of halves start where words do, and the last one of a row is a half.
            let mut problem = Gemm::new(39, 23, 47, input, output, layout);
            (problem.lda, problem.ldb) = (50, 58);
            right_behind(problem, variant, [0, 0], device);
        }
    }
}
