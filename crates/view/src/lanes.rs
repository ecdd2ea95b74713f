//! Rows of a timeline: an SM has as many as it ran blocks at a time.

use heist_launch::{TileOrigin, Time, Trace};
use std::collections::BTreeMap;

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
}

/// The bars of a run, and for each lane its SM.
pub(crate) struct Lanes {
    pub(crate) bars: Vec<Bar>,
    pub(crate) sm_of_lane: Vec<u32>,
}

/// Deals blocks out to lanes so that no two in one lane overlap.
pub(crate) fn lanes(trace: &Trace) -> Lanes {
    let mut spans: Vec<(u32, Time, Time, u32)> = trace
        .blocks
        .iter()
        .map(|block| (block.sm, block.start, block.end, block.block))
        .collect();
    if spans.is_empty() {
        // A trace of tiles alone: a block lasts from its first to its last.
        let mut blocks: BTreeMap<(u32, u32), (Time, Time)> = BTreeMap::new();
        for tile in &trace.tiles {
            let span = blocks
                .entry((tile.sm, tile.block))
                .or_insert((tile.start, tile.end));
            *span = (span.0.min(tile.start), span.1.max(tile.end));
        }
        spans.extend(
            blocks
                .iter()
                .map(|(&(sm, block), &(start, end))| (sm, start, end, block)),
        );
    }
    spans.sort_unstable();
    let mut bars = Vec::with_capacity(spans.len() + trace.tiles.len());
    let mut sm_of_lane: Vec<u32> = Vec::new();
    let mut free_at: Vec<Time> = Vec::new();
    let mut first_of_sm = 0;
    let mut lane_of: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for (sm, start, end, block) in spans {
        if sm_of_lane.last().is_some_and(|last| *last != sm) {
            first_of_sm = sm_of_lane.len();
        }
        let free = (first_of_sm..free_at.len()).find(|&lane| free_at[lane] <= start);
        let lane = free.unwrap_or_else(|| {
            sm_of_lane.push(sm);
            free_at.push(Time::ZERO);
            free_at.len() - 1
        });
        free_at[lane] = end;
        lane_of.insert((sm, block), lane as u32);
        bars.push(Bar {
            lane: lane as u32,
            sm,
            block,
            start,
            end,
            tile: None,
        });
    }
    for tile in &trace.tiles {
        bars.push(Bar {
            lane: lane_of.get(&(tile.sm, tile.block)).copied().unwrap_or(0),
            sm: tile.sm,
            block: tile.block,
            start: tile.start,
            end: tile.end,
            tile: Some((tile.tile.to_array(), tile.origin)),
        });
    }
    Lanes { bars, sm_of_lane }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::{BlockSpan, Clock, Dim3};

    #[test]
    fn blocks_that_overlap_get_lanes_of_their_own() {
        let mut trace = Trace::new("sim:h200", "k", Clock::Modelled, 2, Dim3::linear_x(4));
        for (block, sm, start, end) in [(0, 0, 0, 10), (1, 0, 5, 20), (2, 0, 10, 30), (3, 1, 0, 5)]
        {
            trace.blocks.push(BlockSpan {
                block,
                cluster: block,
                sm,
                start: Time(start),
                end: Time(end),
            });
        }
        let lanes = lanes(&trace);
        assert_eq!(lanes.sm_of_lane, [0, 0, 1]);
        let dealt: Vec<_> = lanes.bars.iter().map(|bar| (bar.block, bar.lane)).collect();
        assert_eq!(dealt, [(0, 0), (1, 1), (2, 0), (3, 2)]);
    }
}
