//! Every type and layout, whole tiles and edges, under launch control with every policy and in every cluster,
//! with chaos: all of it together. A few of them unless `HEIST_CASES=all`.

use super::right_under;
use heist_kernels::gemm::{Gemm, Input, Layout, Output, Scales};
use heist_oracle::parallel;
use heist_run::Settings;
use heist_sched::Schedule;

/// One of so many is run by default.
const FEW: usize = 181;

const POLICIES: [&str; 5] = [
    "clc early greedy grouped(16)",
    "clc late max-steals(1)",
    "clc early every(2)",
    "clc late first-half",
    "clc early time-budget(5us)",
];

/// Problems of a type in a layout: whole tiles, and edges of rows, columns and depth.
fn problems(input: Input, output: Output, layout: Layout, scales: Scales) -> [Gemm; 2] {
    let eight_bit = matches!(input, Input::E4m3 | Input::E5m2);
    // An axis that is contiguous in A or B is a multiple of 16 bytes.
    let rows = if matches!(layout, Layout::Nn | Layout::Nt) {
        389
    } else {
        392
    };
    let columns = if matches!(layout, Layout::Nt | Layout::Tt) {
        131
    } else {
        136
    };
    let depths = if eight_bit { [256, 144] } else { [128, 72] };
    [(512, 256, depths[0]), (rows, columns, depths[1])]
        .map(|(m, n, k)| Gemm::new(m, n, k, input, output, layout).scales(scales))
}

fn all() -> Vec<(Gemm, String, Schedule, u32)> {
    let mut of_type = Vec::new();
    for &layout in Layout::ALL {
        for (input, output) in [
            (Input::Bf16, Output::Bf16),
            (Input::F16, Output::F16),
            (Input::F16, Output::F32),
        ] {
            of_type.push((input, output, layout, Scales::None));
        }
    }
    for (input, output, scales) in [
        (Input::Tf32, Output::F32, Scales::None),
        (Input::E4m3, Output::F32, Scales::None),
        (Input::E4m3, Output::Bf16, Scales::Rows),
        (Input::E5m2, Output::F16, Scales::Tensor),
        (Input::E4m3, Output::Bf16, Scales::Mx),
        (Input::E5m2, Output::F32, Scales::Mx),
    ] {
        of_type.push((input, output, Layout::Nt, scales));
    }
    let mut cases = Vec::new();
    for (input, output, layout, scales) in of_type {
        for problem in problems(input, output, layout, scales) {
            for policy in POLICIES {
                // As many multiprocessors as a cluster has blocks: the others are stolen.
                for (tile, cluster, sms) in [
                    ("128x128", "1x1", 1),
                    ("128x128", "2x1", 2),
                    ("128x128", "1x2", 2),
                    ("128x128", "2x2", 4),
                    ("256x128", "1x2", 2),
                    ("256x128", "2x2", 4),
                ] {
                    // Scales take the place of a stage.
                    let stages = if scales == Scales::Mx { 3 } else { 4 };
                    let tiling = format!("tcgen05:{tile}x64/{stages}");
                    let mut schedule: Schedule = policy.parse().expect("a schedule");
                    schedule.cluster = cluster.parse().expect("a shape");
                    cases.push((problem, tiling, schedule, sms));
                }
            }
        }
    }
    cases
}

#[test]
fn every_promise_at_once() {
    let everything = std::env::var_os("HEIST_CASES").is_some_and(|told| told == "all");
    let cases: Vec<_> = all().into_iter().enumerate().collect();
    let chosen: Vec<_> = cases
        .into_iter()
        .filter(|(at, _)| everything || at % FEW == 7)
        .collect();
    println!("{} products", chosen.len());
    parallel(&chosen, |(at, (problem, tiling, schedule, sms))| {
        let settings = Settings {
            seed: *at as u64,
            chaos: true,
            ..Settings::default()
        };
        right_under(*problem, tiling, Some(schedule.clone()), *sms, &settings);
    });
}
