//! Packed sequences of many lengths.

use super::{H200, Set, chosen};
use heist_kernels::attention::{
    Dtype, Mask, Problem, WarpgroupShape, staying, warpgroup_plan, warpgroup_schedule,
    warpgroup_shape,
};
use heist_sched::{Schedule, TileSource};

/// Lengths of ten batches, 16 heads: one long sequence among short ones, power laws, two kinds.
pub(crate) fn packed_batches() -> Vec<(Vec<u32>, u32, Mask)> {
    let zipf = |count: u32, first: u32| (1..=count).map(|i| (first / i).max(64)).collect();
    let with = |long: u32, count: usize, short: u32| {
        let mut all = vec![short; count];
        all.insert(count / 2, long);
        all
    };
    let uniform = (0..32u32).map(|i| 128 + (i * 1237) % 1920).collect();
    let geometric = (0..12u32).map(|i| 8192u32 >> (i / 2)).collect();
    let lognormal = (0..48u32)
        .map(|i| {
            let at = (f64::from((i * 29) % 48) + 0.5) / 48.0;
            (600.0 * (1.2 * (at / (1.0 - at)).ln() / 1.7).exp()) as u32
        })
        .collect();
    let two: Vec<u32> = (0..64)
        .map(|i| if i % 16 == 0 { 4096 } else { 256 })
        .collect();
    let short = (0..128u32).map(|i| 32 + (i * 97) % 480).collect();
    vec![
        (with(8192, 63, 128), 128, Mask::Causal),
        (zipf(64, 16384), 128, Mask::Causal),
        (uniform, 128, Mask::Causal),
        (geometric, 128, Mask::Causal),
        (lognormal, 128, Mask::Full),
        (two, 128, Mask::Full),
        (vec![2048; 8], 128, Mask::Causal),
        (zipf(64, 16384), 64, Mask::Full),
        (with(16384, 100, 64), 64, Mask::Causal),
        (short, 64, Mask::Causal),
    ]
}

/// A packed batch: what is chosen, and every way to hand out its tiles.
pub(crate) fn packed_set((lengths, dim, mask): (Vec<u32>, u32, Mask)) -> Set {
    let each = lengths.iter().map(|&length| (length, length)).collect();
    let mut problem = Problem::ragged(each, 16, dim);
    (problem.mask, problem.dtype) = (mask, Dtype::Bf16);
    let mut arms = vec![chosen(&problem)];
    let own = warpgroup_shape(&problem, H200).scheduled();
    let longest = WarpgroupShape {
        listed: None,
        ..own
    };
    let listed = own;
    let narrow = WarpgroupShape {
        groups: 2,
        keys: 128,
        ..listed
    };
    for source in [TileSource::Direct, TileSource::Static, TileSource::Ticket] {
        for (name, shape) in [("for the longest", longest), ("listed", listed)] {
            let mut schedule = Schedule::new(source);
            if shape.listed.is_none() {
                schedule.order = warpgroup_schedule(&problem, H200).order;
            }
            let plan = warpgroup_plan(&problem, shape, &schedule, H200);
            arms.push((format!("{name} {source}"), problem.clone(), plan));
        }
    }
    let direct = Schedule::new(TileSource::Direct);
    let mut stay = |shape: WarpgroupShape, name: &str| {
        let shape = staying(&problem, shape, 1, H200);
        let plan = warpgroup_plan(&problem, shape, &direct, H200);
        arms.push((format!("{name} stay"), problem.clone(), plan));
    };
    if narrow != listed {
        stay(narrow, "listed 128x128");
    }
    for heads in [1, 2, 4, 8, 16] {
        let shape = WarpgroupShape {
            listed: Some(heads),
            ..listed
        };
        stay(shape, &format!("listed {heads}"));
    }
    Set { problem, arms }
}
