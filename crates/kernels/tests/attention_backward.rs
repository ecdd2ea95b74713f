//! Gradients of attention on the simulated GPU, against those in f64, with all checks
//! on.

mod common;

use heist_kernels::attention::*;
use heist_kernels::{Job, Target};
use heist_run::{Device, Settings};

const MASKS: [Mask; 3] = [
    Mask::Full,
    Mask::Causal,
    Mask::Window { left: 20, right: 3 },
];

fn job(problem: &Backward, variant: &str, target: Target) -> Job {
    let variant = BACKWARD
        .choose(Some(variant), problem, target)
        .unwrap_or_else(|error| panic!("{problem}: {error}"));
    let mut job = variant
        .job(problem, None, target)
        .unwrap_or_else(|error| panic!("{problem}: {error}"));
    fill_backward(&mut job, problem, 3);
    job
}

fn right(problem: &Backward, variant: &str, (device, target): &(Device, Target)) -> Job {
    let mut job = job(problem, variant, *target);
    common::run(&mut job, device, &Settings::default());
    let verdict = verify_backward(&job, problem, Sample::All).expect("its buffers");
    if let Err(wrong) = verdict.judge(problem) {
        panic!("{problem}, {variant}: {wrong}");
    }
    job
}

/// Lengths at the edges of tiles, every mask, type, layout, width and kind of sums, in
/// turns.
fn cases() -> Vec<Backward> {
    let lengths = [
        (1, 1),
        (63, 65),
        (65, 63),
        (64, 128),
        (33, 130),
        (130, 31),
        (100, 2),
        (2, 100),
        (97, 97),
        (128, 64),
    ];
    let dims = [64, 128, 64, 128, 16, 96, 80, 112, 32, 48];
    let mut cases = Vec::new();
    for (index, (queries, keys)) in lengths.into_iter().enumerate() {
        for which in 0..2 {
            let mut problem =
                Problem::new(1 + which, 2, queries, dims[(index + which as usize) % 10]);
            problem.lengths = Lengths::Same {
                batch: 1 + which,
                queries,
                keys,
            };
            problem.mask = MASKS[(index + which as usize) % 3];
            problem.dtype = Dtype::ALL[(index / 2 + which as usize) % 2];
            problem.kv_heads = [2, 1][(index + index / 3) % 2];
            problem.layout = [Layout::Heads, Layout::Rows][(index / 2) % 2];
            let sums = [Sums::Float, Sums::Fixed][which as usize];
            cases.push(Backward {
                attention: problem,
                sums,
            });
        }
    }
    let packed = vec![
        (5, 5),
        (0, 7),
        (66, 70),
        (1, 130),
        (70, 3),
        (17, 0),
        (40, 64),
    ];
    for (index, dim) in [64, 128, 32].into_iter().enumerate() {
        let mut problem = Problem::ragged(packed.clone(), 4, dim);
        problem.kv_heads = [2, 4, 1][index];
        problem.mask = MASKS[(index + 1) % 3];
        problem.dtype = Dtype::ALL[index % 2];
        cases.push(Backward {
            attention: problem,
            sums: [Sums::Fixed, Sums::Float, Sums::Fixed][index],
        });
    }
    cases
}

#[test]
fn on_every_shape_mask_and_type() {
    let device = common::device("sim:h200");
    for problem in cases() {
        right(&problem, "tensor", &device);
    }
}

/// The same on warpgroups, for the heads that they take, and longer sequences: their
/// tiles have 128 keys.
#[test]
fn on_warpgroups() {
    let device = common::device("sim:h200");
    let (mut cases, mut taken) = (cases(), 0);
    for (index, length) in [200, 257, 300].into_iter().enumerate() {
        let mut problem = Problem::new(1, 2, length, [64, 128, 64][index]);
        problem.mask = MASKS[(index + 1) % 3];
        problem.kv_heads = 1 + index as u32 % 2;
        problem.dtype = Dtype::ALL[index % 2];
        cases.push(Backward {
            attention: problem,
            sums: [Sums::Float, Sums::Fixed][index % 2],
        });
    }
    for problem in cases {
        if [64, 128].contains(&problem.attention.head_dim) {
            right(&problem, "wgmma", &device);
            taken += 1;
        }
    }
    assert!(taken > 8, "{taken}");
}
