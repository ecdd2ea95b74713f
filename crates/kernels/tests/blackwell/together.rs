//! Every type and layout, whole tiles and edges, under launch control with every policy and in every cluster,
//! with chaos: all of it together. A few of them unless `HEIST_CASES=all`.

use super::common::{few, launch_control};
use super::right_under;
use heist_kernels::gemm::{Gemm, Input, Layout, Output, Scales};
use heist_oracle::parallel;
use heist_sched::Schedule;

/// One of so many is run by default.
const FEW: usize = 181;

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
            // Scales take the place of a stage.
            let stages = if scales == Scales::Mx { 3 } else { 4 };
            for (schedule, sms) in launch_control() {
                let along = schedule.cluster.y > 1;
                let tiles = ["128x128", "256x128"].into_iter();
                for tile in tiles.take(1 + usize::from(along)) {
                    let tiling = format!("tcgen05:{tile}x64/{stages}");
                    cases.push((problem, tiling, schedule.clone(), sms));
                }
            }
        }
    }
    cases
}

#[test]
fn every_promise_at_once() {
    parallel(&few(all(), FEW), |(settings, case)| {
        let (problem, tiling, schedule, sms) = case;
        right_under(*problem, tiling, Some(schedule.clone()), *sms, settings);
    });
}
