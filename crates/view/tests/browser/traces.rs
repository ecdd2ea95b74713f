//! Traces made up for tests and pictures.

use heist_launch::{
    BlockSpan, Clock, Decision, DecisionKind, Dim3, TileOrigin, TileSpan, Time, Trace,
};

/// Eight blocks on four multiprocessors, with three tiles each.
pub(crate) fn small() -> Trace {
    let mut trace = Trace::new("sim:b200", "k<1>", Clock::Modelled, 4, Dim3::linear_x(8));
    for block in 0..8u32 {
        let sm = block % 4;
        let start = 1000 * u64::from(block / 4) * 10;
        trace.blocks.push(BlockSpan {
            block,
            cluster: block,
            sm,
            start: Time::from_ns(start),
            end: Time::from_ns(start + 9000),
        });
        for turn in 0..3u64 {
            let origin = [TileOrigin::Own, TileOrigin::Stolen, TileOrigin::Stolen][turn as usize];
            trace.tiles.push(TileSpan {
                tile: Dim3::new(block + 8 * turn as u32, 0, 0),
                block,
                sm,
                start: Time::from_ns(start + turn * 3000),
                end: Time::from_ns(start + turn * 3000 + 2500),
                origin,
            });
            decide(
                &mut trace,
                block,
                start + turn * 3000 + 100,
                DecisionKind::Requested,
            );
            let answer = if turn < 2 {
                DecisionKind::Granted
            } else {
                DecisionKind::Refused
            };
            decide(&mut trace, block, start + turn * 3000 + 900, answer);
        }
    }
    trace
}

fn decide(trace: &mut Trace, block: u32, ns: u64, kind: DecisionKind) {
    let at = Time::from_ns(ns);
    trace.decisions.push(Decision { block, at, kind });
}

/// The same tiles, the last multiprocessor with all that is left: a long tail.
pub(crate) fn uneven() -> Trace {
    let mut trace = small();
    for tile in trace.tiles.iter_mut().filter(|tile| tile.block == 7) {
        tile.start = Time(tile.start.0 * 2);
        tile.end = Time(tile.end.0 * 2);
    }
    for block in trace.blocks.iter_mut().filter(|block| block.block == 7) {
        block.start = Time(block.start.0 * 2);
        block.end = Time(block.end.0 * 2);
    }
    trace
}

/// So many tiles of uneven length on 132 multiprocessors with two block slots each, whoever is
/// free first.
pub(crate) fn large(tiles: u32) -> Trace {
    let mut trace = Trace::new(
        "sim:h200",
        "large",
        Clock::Modelled,
        132,
        Dim3::linear_x(264),
    );
    let mut free: Vec<(u64, u32)> = (0..264).map(|slot| (u64::from(slot) * 3, slot)).collect();
    let mut heap: std::collections::BinaryHeap<_> = free.drain(..).map(std::cmp::Reverse).collect();
    let mut state = 1u64;
    let mut ends = vec![0u64; 264];
    for tile in 0..tiles {
        let Some(std::cmp::Reverse((now, slot))) = heap.pop() else {
            break;
        };
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let took = 300 + (state >> 54) + if state >> 61 == 0 { 2000 } else { 0 };
        let first = now < 1000 && ends[slot as usize] == 0;
        trace.tiles.push(TileSpan {
            tile: Dim3::new(tile % 500, tile / 500, 0),
            block: slot,
            sm: slot / 2,
            start: Time::from_ns(now + 40),
            end: Time::from_ns(now + took),
            origin: if first {
                TileOrigin::Own
            } else {
                TileOrigin::Ticket
            },
        });
        ends[slot as usize] = now + took;
        heap.push(std::cmp::Reverse((now + took, slot)));
    }
    for (slot, end) in (0..264u32).zip(ends) {
        trace.blocks.push(BlockSpan {
            block: slot,
            cluster: slot,
            sm: slot / 2,
            start: Time::from_ns(u64::from(slot) * 3),
            end: Time::from_ns(end + 30),
        });
    }
    trace
}

/// A small kernel that comes every 20 us and takes what is free on twelve multiprocessors.
pub(crate) fn guest() -> Trace {
    let mut trace = Trace::new(
        "sim:h200",
        "guest",
        Clock::Modelled,
        132,
        Dim3::linear_x(12),
    );
    for round in 0..3u64 {
        for sm in 0..12u32 {
            let start = 5_000 + round * 20_000 + u64::from(sm) * 300;
            trace.blocks.push(BlockSpan {
                block: round as u32 * 12 + sm,
                cluster: sm,
                sm: sm * 11,
                start: Time::from_ns(start),
                end: Time::from_ns(start + 6_000),
            });
        }
    }
    trace
}
