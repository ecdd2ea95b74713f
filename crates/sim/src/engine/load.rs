//! When a warp kept which units busy, and what that is for its cluster.

use super::site::{Piece, UNITS};
use crate::decode::pipe::Demand;

/// A stretch of a warp's time, and the cycles of a scheduler's units in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    start: u64,
    end: u64,
    busy: [u64; UNITS],
}

/// The stretches of a warp that its cluster's pieces do not hold yet, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stretches(Vec<Stretch>);

/// More of them than this are put together in pairs.
const MOST: usize = 512;

impl Stretches {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn push(&mut self, start: u64, end: u64, demand: Demand) {
        if end <= start || demand == Demand::default() {
            return;
        }
        let busy = demand.parts().map(u64::from);
        if self.0.len() >= MOST {
            let pairs = self.0.chunks(2).map(|pair| {
                let mut one = pair[0];
                if let Some(other) = pair.get(1) {
                    one.end = other.end;
                    for (unit, busy) in one.busy.iter_mut().zip(other.busy) {
                        *unit += busy;
                    }
                }
                one
            });
            self.0 = pairs.collect();
        }
        self.0.push(Stretch { start, end, busy });
    }
}

/// Pieces shorter than this are not told apart.
const SHORT: u64 = 32;
/// Nor are there more than about this many in a job.
const PIECES: u64 = 512;

/// The pieces of a cluster from one time of its own to another, and what they load
/// `schedulers` with. Stretches beyond the end stay for the next job.
pub(crate) fn pieces<'w>(
    warps: impl Iterator<Item = &'w mut Stretches>,
    from: u64,
    to: u64,
    schedulers: f64,
) -> Vec<Piece> {
    let mut changes: Vec<(u64, [f64; UNITS])> = Vec::new();
    for warp in warps {
        for one in &warp.0 {
            let (start, end) = (one.start.max(from), one.end.min(to));
            if start >= end {
                continue;
            }
            let long = (one.end - one.start) as f64 * schedulers;
            let load = one.busy.map(|busy| busy as f64 / long);
            changes.push((start, load));
            changes.push((end, load.map(|load| -load)));
        }
        warp.0.retain(|one| one.end > to);
    }
    changes.sort_unstable_by_key(|(time, _)| *time);
    let short = SHORT.max((to - from) / PIECES);
    let mut pieces = Vec::new();
    let mut load = [0.0; UNITS];
    // The piece being made: since when, and the load times the cycles in it.
    let (mut since, mut held, mut last) = (from, [0.0; UNITS], from);
    let mut close = |since: u64, until: u64, held: [f64; UNITS]| {
        let cycles = (until - since) as f64;
        pieces.push(Piece {
            cycles,
            load: held.map(|held: f64| (held / cycles).max(0.0)),
        });
    };
    for (time, change) in changes {
        for (held, load) in held.iter_mut().zip(load) {
            *held += load * (time - last) as f64;
        }
        last = time;
        if time - since >= short {
            close(since, time, held);
            (since, held) = (time, [0.0; UNITS]);
        }
        for (load, change) in load.iter_mut().zip(change) {
            *load += change;
        }
    }
    for (held, load) in held.iter_mut().zip(load) {
        *held += load * (to - last) as f64;
    }
    if to > since {
        close(since, to, held);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hold_all_of_the_load_at_its_time() {
        let mut warps = [Stretches::default(), Stretches::default()];
        let demand = |multiply| Demand::new([0, multiply, 0, 0]);
        warps[0].push(100, 200, demand(200));
        warps[0].push(300, 400, demand(400));
        warps[1].push(100, 200, demand(200));
        let made = pieces(warps.iter_mut(), 0, 350, 4.0);
        let told: Vec<(f64, f64)> = made.iter().map(|p| (p.cycles, p.load[1])).collect();
        assert_eq!(
            told,
            [(100.0, 0.0), (100.0, 1.0), (100.0, 0.0), (50.0, 1.0)]
        );
        let rest = pieces(warps.iter_mut(), 350, 400, 4.0);
        assert_eq!((rest[0].cycles, rest[0].load[1]), (50.0, 1.0));
        assert!(pieces(warps.iter_mut(), 400, 400, 4.0).is_empty());
    }

    #[test]
    fn many_stretches_are_put_together() {
        let mut warp = Stretches::default();
        for at in 0..10_000 {
            warp.push(at * 10, at * 10 + 10, Demand::new([5, 0, 0, 0]));
        }
        assert!(warp.0.len() <= MOST);
        let made = pieces(std::iter::once(&mut warp), 0, 100_000, 1.0);
        let sum: f64 = made.iter().map(|piece| piece.cycles * piece.load[0]).sum();
        assert!((sum - 50_000.0).abs() < 1.0, "{sum}");
        assert!(made.len() as u64 <= PIECES + 1);
    }
}
