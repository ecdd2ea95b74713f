//! Rows of a timeline: an SM has as many as it ran blocks at a time.

use crate::Run;
use heist_launch::{TileOrigin, TileSpan, Time, Trace};
use std::collections::{BTreeMap, BTreeSet};

/// One bar of a timeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) lane: u32,
    pub(crate) sm: u32,
    pub(crate) block: u32,
    pub(crate) start: Time,
    pub(crate) end: Time,
    /// The tile and how it came; `None` for the block itself.
    pub(crate) tile: Option<([u32; 3], TileOrigin)>,
    /// Whose it is: 0 is the run's own kernel, the others share the GPU with it.
    pub(crate) tenant: u32,
}

/// The bars of a run, and for each lane its SM.
pub(crate) struct Lanes {
    pub(crate) bars: Vec<Bar>,
    pub(crate) sm_of_lane: Vec<u32>,
}

/// A block of one of the kernels on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Block {
    pub(crate) sm: u32,
    pub(crate) start: Time,
    pub(crate) end: Time,
    pub(crate) tenant: u32,
    pub(crate) block: u32,
}

/// The blocks of a trace. One that left tiles and no span of its own, as a block does that a stop
/// found at work, lasts from its first tile to its last.
pub(crate) fn blocks(trace: &Trace, tenant: u32) -> Vec<Block> {
    let span = |block: &heist_launch::BlockSpan| Block {
        sm: block.sm,
        start: block.start,
        end: block.end,
        tenant,
        block: block.block,
    };
    let ended: Vec<Block> = trace.blocks.iter().map(span).collect();
    let known: BTreeSet<(u32, u32)> = ended.iter().map(|b| (b.sm, b.block)).collect();
    let mut spans: BTreeMap<(u32, u32), (Time, Time)> = BTreeMap::new();
    let open = |tile: &&TileSpan| !known.contains(&(tile.sm, tile.block));
    for tile in trace.tiles.iter().filter(open) {
        let span = spans
            .entry((tile.sm, tile.block))
            .or_insert((tile.start, tile.end));
        *span = (span.0.min(tile.start), span.1.max(tile.end));
    }
    let block = |(&(sm, block), &(start, end)): (&(u32, u32), &(Time, Time))| Block {
        sm,
        start,
        end,
        tenant,
        block,
    };
    ended.into_iter().chain(spans.iter().map(block)).collect()
}

/// Deals blocks out to lanes so that no two in one lane overlap.
pub(crate) fn lanes(run: &Run<'_>) -> Lanes {
    let mut spans: Vec<Block> = Vec::new();
    for (tenant, (_, trace)) in (0..).zip(run.tenants()) {
        spans.extend(blocks(trace, tenant));
    }
    spans.sort_unstable();
    let mut bars = Vec::with_capacity(spans.len() + run.trace.tiles.len());
    let mut sm_of_lane: Vec<u32> = Vec::new();
    let mut free_at: Vec<Time> = Vec::new();
    let mut first_of_sm = 0;
    let mut lane_of: BTreeMap<(u32, u32, u32), u32> = BTreeMap::new();
    for span in spans {
        if sm_of_lane.last().is_some_and(|last| *last != span.sm) {
            first_of_sm = sm_of_lane.len();
        }
        let free = (first_of_sm..free_at.len()).find(|&lane| free_at[lane] <= span.start);
        let lane = free.unwrap_or_else(|| {
            sm_of_lane.push(span.sm);
            free_at.push(Time::ZERO);
            free_at.len() - 1
        });
        free_at[lane] = span.end;
        lane_of.insert((span.tenant, span.sm, span.block), lane as u32);
        bars.push(Bar {
            lane: lane as u32,
            sm: span.sm,
            block: span.block,
            start: span.start,
            end: span.end,
            tile: None,
            tenant: span.tenant,
        });
    }
    for (tenant, (_, trace)) in (0..).zip(run.tenants()) {
        for tile in &trace.tiles {
            let lane = lane_of.get(&(tenant, tile.sm, tile.block));
            bars.push(Bar {
                lane: lane.copied().unwrap_or(0),
                sm: tile.sm,
                block: tile.block,
                start: tile.start,
                end: tile.end,
                tile: Some((tile.tile.to_array(), tile.origin)),
                tenant,
            });
        }
    }
    Lanes { bars, sm_of_lane }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BlockSpan, Clock, Dim3};

    fn trace(blocks: &[(u32, u32, u64, u64)]) -> Trace {
        let mut trace = Trace::new("sim:h200", "k", Clock::Modelled, 2, Dim3::linear_x(4));
        for &(block, sm, start, end) in blocks {
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm,
                start: Time(start),
                end: Time(end),
            });
        }
        trace
    }

    #[test]
    fn blocks_that_overlap_get_lanes_of_their_own() {
        let trace = trace(&[(0, 0, 0, 10), (1, 0, 5, 20), (2, 0, 10, 30), (3, 1, 0, 5)]);
        let lanes = lanes(&Run::new("a", &trace));
        assert_eq!(lanes.sm_of_lane, [0, 0, 1]);
        let dealt: Vec<_> = lanes.bars.iter().map(|bar| (bar.block, bar.lane)).collect();
        assert_eq!(dealt, [(0, 0), (1, 1), (2, 0), (3, 2)]);
    }

    #[test]
    fn two_kernels_on_one_gpu_share_its_lanes() {
        let own = trace(&[(0, 0, 0, 10), (1, 1, 0, 10)]);
        let other = trace(&[(0, 0, 10, 20), (1, 1, 5, 20)]);
        let beside = [("guest", &other)];
        let lanes = lanes(&Run::new("a", &own).beside(&beside));
        assert_eq!(lanes.sm_of_lane, [0, 1, 1]);
        let dealt: Vec<_> = lanes
            .bars
            .iter()
            .map(|b| (b.tenant, b.block, b.lane))
            .collect();
        assert_eq!(dealt, [(0, 0, 0), (1, 0, 0), (0, 1, 1), (1, 1, 2)]);
    }
}
