//! Attention on the simulated GPU: every rung against softmax in f64, with all
//! checks on.

mod common;

use heist_kernels::Target;
use heist_kernels::attention::*;
use heist_sched::Schedule;
use heist_sim::Options;

/// Runs a problem with a configuration; both differences within the bound.
fn right(problem: &Problem, config: &Config, schedule: Option<&Schedule>, device: &str) {
    let (device, target) = common::device(device);
    let own = heist_kernels::attention::schedule(config, problem, target.arch);
    let mut job = job(problem, config, schedule.unwrap_or(&own), target)
        .unwrap_or_else(|error| panic!("{problem}, {config}: {error}"));
    randomise(&mut job, problem, 7);
    common::run(&mut job, &device, &Options::default());
    let verdict = verify(&job, problem).expect("its buffers");
    let bound = bound(problem.dtype);
    assert!(verdict.out.within(bound), "{}: {}", job.name, verdict.out);
    assert!(
        verdict.lse.within(bound),
        "{}: lse {}",
        job.name,
        verdict.lse
    );
}

fn target() -> Target {
    common::device("sim:h200").1
}

/// The rung's configuration with a tile small enough for short sequences.
fn small(rung: Rung, problem: &Problem) -> Config {
    let mut config = Config::suited(rung, problem, target());
    if rung >= Rung::Buffered {
        config.down = 1;
        config.cols = 16;
    }
    config
}

#[test]
fn every_rung_type_and_mask() {
    for (index, rung) in Rung::ALL.into_iter().enumerate() {
        for dtype in Dtype::ALL {
            let masks = [Mask::Full, Mask::Causal, Mask::Window { left: 5, right: 0 }];
            for (mask_index, mask) in masks.into_iter().enumerate() {
                let mut problem = Problem::new(1, 2, 37, 32);
                problem.dtype = dtype;
                problem.mask = mask;
                problem.layout = [Layout::Heads, Layout::Rows][(index + mask_index) % 2];
                right(&problem, &small(rung, &problem), None, "sim:h200");
            }
        }
    }
}
