//! The load of a cluster on the SM's units over time, from its warps.

use super::site::Piece;
use crate::state::demand::{Stretch, Stretches, UNITS};
use std::collections::VecDeque;
use std::sync::Arc;

/// Pieces shorter than this are not told apart.
const SHORT: u64 = 32;

/// Nor are there more than about this many in a job.
const PIECES: u64 = 512;

/// The load of a cluster relative to the start of a job: equal loads have equal pieces.
#[derive(Debug, PartialEq)]
struct Shape {
    cycles: u64,
    schedulers: f64,
    /// How many of the stretches are of each warp.
    counts: Vec<usize>,
    stretches: Vec<Stretch>,
}

impl Shape {
    fn is<'w>(&self, warps: impl Iterator<Item = &'w Stretches>, from: u64) -> bool {
        let mut rest = &self.stretches[..];
        let mut counts = self.counts.iter();
        for warp in warps {
            if counts.next() != Some(&warp.0.len()) {
                return false;
            }
            let Some((here, others)) = rest.split_at_checked(warp.0.len()) else {
                return false;
            };
            if !here.iter().zip(&warp.0).all(|(a, b)| *a == b.since(from)) {
                return false;
            }
            rest = others;
        }
        counts.next().is_none()
    }
}

/// The pieces of recent jobs, by their shape: most blocks of a kernel do the same.
#[derive(Debug, Default)]
pub(crate) struct Shapes(VecDeque<(Shape, Arc<[Piece]>)>);

/// Shapes that are remembered.
const RECENT: usize = 4;

impl Shapes {
    /// The pieces of a cluster from one time of its own to another, and what they
    /// load `schedulers` with. Stretches beyond the end stay for the next job.
    pub(crate) fn pieces<'w>(
        &mut self,
        warps: impl Iterator<Item = &'w mut Stretches>,
        from: u64,
        to: u64,
        schedulers: f64,
    ) -> Arc<[Piece]> {
        let mut warps: Vec<&mut Stretches> = warps.collect();
        let cycles = to - from;
        let known = self.0.iter().position(|(shape, _)| {
            (shape.cycles, shape.schedulers) == (cycles, schedulers)
                && shape.is(warps.iter().map(|warp| &**warp), from)
        });
        let found = match known {
            Some(at) => Arc::clone(&self.0[at].1),
            None => {
                let stretches = warps.iter().flat_map(|warp| &warp.0);
                let shape = Shape {
                    cycles,
                    schedulers,
                    counts: warps.iter().map(|warp| warp.0.len()).collect(),
                    stretches: stretches.map(|one| one.since(from)).collect(),
                };
                let made: Arc<[Piece]> =
                    pieces(warps.iter().map(|warp| &**warp), from, to, schedulers).into();
                self.0.truncate(RECENT - 1);
                self.0.push_front((shape, Arc::clone(&made)));
                made
            }
        };
        for warp in &mut warps {
            warp.0.retain(|one| one.end > to);
        }
        found
    }
}

fn pieces<'w>(
    warps: impl Iterator<Item = &'w Stretches>,
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
    use crate::state::demand::{Demand, MOST};

    #[test]
    fn pieces_hold_all_of_the_load_at_its_time() {
        let mut warps = [Stretches::default(), Stretches::default()];
        let demand = |multiply| Demand::new([0, multiply, 0, 0]);
        warps[0].push(100, 200, demand(200));
        warps[0].push(300, 400, demand(400));
        warps[1].push(100, 200, demand(200));
        let mut shapes = Shapes::default();
        let made = shapes.pieces(warps.iter_mut(), 0, 350, 4.0);
        let told: Vec<(f64, f64)> = made.iter().map(|p| (p.cycles, p.load[1])).collect();
        assert_eq!(
            told,
            [(100.0, 0.0), (100.0, 1.0), (100.0, 0.0), (50.0, 1.0)]
        );
        let rest = shapes.pieces(warps.iter_mut(), 350, 400, 4.0);
        assert_eq!((rest[0].cycles, rest[0].load[1]), (50.0, 1.0));
        let none = shapes.pieces(warps.iter_mut(), 400, 400, 4.0);
        assert!(none.is_empty());
    }

    #[test]
    fn the_same_at_another_time_has_the_same_pieces() {
        let mut shapes = Shapes::default();
        let mut made = |at: u64, first: u64, second: u64| {
            let mut warps = [Stretches::default(), Stretches::default()];
            warps[0].push(
                at + 10,
                at + 90,
                Demand::new([first, 0, 0, 0].map(|n| n as u32)),
            );
            warps[1].push(
                at + 10,
                at + 90,
                Demand::new([second, 0, 0, 0].map(|n| n as u32)),
            );
            let made = shapes.pieces(warps.iter_mut(), at, at + 100, 4.0);
            assert!(warps.iter().all(|warp| warp.0.is_empty()));
            made
        };
        let one = made(1000, 40, 80);
        assert!(Arc::ptr_eq(&one, &made(5000, 40, 80)));
        let other = made(5000, 40, 40);
        assert_ne!(one, other);
        assert!(Arc::ptr_eq(&one, &made(0, 40, 80)));
        // As much in all, and other warps of it.
        let mut single = [Stretches::default()];
        single[0].push(10, 90, Demand::new([40, 0, 0, 0]));
        single[0].push(10, 90, Demand::new([80, 0, 0, 0]));
        let again = shapes.pieces(single.iter_mut(), 0, 100, 4.0);
        assert!(!Arc::ptr_eq(&one, &again));
    }

    #[test]
    fn many_stretches_are_put_together() {
        let mut warp = Stretches::default();
        for at in 0..10_000 {
            warp.push(at * 10, at * 10 + 10, Demand::new([5, 0, 0, 0]));
        }
        assert!(warp.0.len() <= MOST);
        let made = pieces(std::iter::once(&warp), 0, 100_000, 1.0);
        let sum: f64 = made.iter().map(|piece| piece.cycles * piece.load[0]).sum();
        assert!((sum - 50_000.0).abs() < 1.0, "{sum}");
        assert!(made.len() as u64 <= PIECES + 1);
    }
}
