//! The critical path: what the end of the run waited for, step by step back to its start.
//!
//! ```
//! # use heist_launch::{BlockSpan, Clock, Dim3, Time, Trace};
//! # let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(2));
//! # for block in 0..2 {
//! #     let (start, end) = (Time::ZERO, Time::from_ns(1000 * (1 + u64::from(block))));
//! #     trace.blocks.push(BlockSpan { block, cluster: block, sm: block, start, end });
//! # }
//! let path = heist_view::path(&heist_view::Run::new("direct", &trace));
//! assert_eq!(path.steps, [1]); // the block that ends last, which waited for nobody
//! assert_eq!(path.working + path.waiting + path.launching, 2000.0);
//! ```

use crate::Run;
use crate::lanes::{Block, blocks};
use heist_launch::Time;
use serde::Serialize;
use std::collections::BTreeMap;

/// The chain of tiles and blocks that ends last. Its three times add up to the run's.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Path {
    /// Its tiles from the first to the last, as they are numbered in
    /// [`Trace::tiles`](heist_launch::Trace::tiles); its blocks where no tiles were measured.
    pub steps: Vec<usize>,
    /// Time in tiles, in nanoseconds.
    pub working: f64,
    /// Time in blocks between tiles.
    pub waiting: f64,
    /// Time between blocks.
    pub launching: f64,
}

/// One step: a tile, or a whole block where tiles were not measured.
#[derive(Clone, Copy)]
struct Step {
    start: Time,
    end: Time,
    number: usize,
}

/// Walks from the tile that ends last to the one before it in its block, from the first one of
/// a block to the block that made room for it, and so on to the start.
pub fn path(run: &Run<'_>) -> Path {
    let trace = run.trace;
    let Some((begin, end)) = trace.window() else {
        return Path::default();
    };
    let own = blocks(trace, 0);
    let mut steps: BTreeMap<(u32, u32), Vec<Step>> = BTreeMap::new();
    for (number, tile) in trace.tiles.iter().enumerate() {
        let (start, end) = (tile.start, tile.end);
        let of_block = steps.entry((tile.sm, tile.block)).or_default();
        of_block.push(Step { start, end, number });
    }
    if trace.tiles.is_empty() {
        for (number, block) in own.iter().enumerate() {
            let (start, end) = (block.start, block.end);
            let of_block = steps.entry((block.sm, block.block)).or_default();
            of_block.push(Step { start, end, number });
        }
    }
    for of_block in steps.values_mut() {
        of_block.sort_unstable_by_key(|step| step.start);
    }
    let mut by_sm: BTreeMap<u32, Vec<Block>> = BTreeMap::new();
    for block in own {
        by_sm.entry(block.sm).or_default().push(block);
    }
    for of_sm in by_sm.values_mut() {
        of_sm.sort_unstable_by_key(|block| block.end);
    }
    let mut found = Path::default();
    let mut now = end;
    let mut block = by_sm
        .values()
        .filter_map(|of_sm| of_sm.last())
        .max_by_key(|b| b.end);
    while let Some(at) = block {
        found.launching += now.since(at.end).ns();
        now = now.min(at.end);
        for step in steps.get(&(at.sm, at.block)).into_iter().flatten().rev() {
            if step.start >= now {
                continue;
            }
            found.waiting += now.since(step.end).ns();
            found.working += now.min(step.end).since(step.start).ns();
            found.steps.push(step.number);
            now = step.start;
        }
        found.waiting += now.since(at.start).ns();
        now = now.min(at.start);
        let of_sm = &by_sm[&at.sm];
        let before = of_sm.partition_point(|b| b.end <= now);
        // A block that takes no time could make room for itself.
        block = of_sm[..before].iter().rev().find(|b| b.start < now);
    }
    found.launching += now.since(begin).ns();
    found.steps.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BlockSpan, Clock, Dim3, TileOrigin, TileSpan, Trace};

    #[test]
    fn the_path_goes_through_blocks_to_the_start_and_adds_up() {
        let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 2, Dim3::linear_x(4));
        for (block, sm, start, end) in [(0, 0, 0, 50), (1, 1, 0, 30), (2, 1, 35, 90)] {
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm,
                start: Time::from_ns(start),
                end: Time::from_ns(end),
            });
        }
        let tiles = [(0, 0, 5, 50), (1, 1, 5, 28), (2, 1, 40, 60), (2, 1, 65, 90)];
        for (block, sm, start, end) in tiles {
            trace.tiles.push(TileSpan {
                tile: Dim3::new(block, 0, 0),
                block,
                sm,
                start: Time::from_ns(start),
                end: Time::from_ns(end),
                origin: TileOrigin::Own,
            });
        }
        let found = path(&Run::new("a", &trace));
        assert_eq!(found.steps, [1, 2, 3]);
        assert_eq!(found.working, 23.0 + 20.0 + 25.0);
        assert_eq!(found.waiting, 5.0 + 2.0 + 5.0 + 5.0);
        assert_eq!(found.launching, 5.0);
        assert_eq!(found.working + found.waiting + found.launching, 90.0);
    }

    #[test]
    fn a_block_that_takes_no_time_does_not_wait_for_itself() {
        let mut trace = Trace::new("sim:b200", "k", Clock::Modelled, 1, Dim3::linear_x(2));
        for block in 0..2 {
            let (start, end) = (Time::from_ns(5), Time::from_ns(5));
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm: 0,
                start,
                end,
            });
        }
        let found = path(&Run::new("a", &trace));
        assert_eq!(
            (found.working, found.waiting, found.launching),
            (0.0, 0.0, 0.0)
        );
    }
}
