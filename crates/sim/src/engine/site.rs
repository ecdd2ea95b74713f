//! What the blocks on one SM take from each other.
//!
//! A cluster runs on a clock of its own, as if its SM were empty, until it must
//! interact with the rest of the device. That stretch is a job: pieces of time,
//! each with the load that it puts on the units of the SM. Here the jobs of an
//! SM share it: a cluster that asks for less than an equal part of a unit gets
//! what it asks for, and the others share what is left equally. So a piece that
//! waits for memory is not slowed by others that compute, and the last block on an
//! SM runs at its full speed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The units of an SM: issue ports, multiply-add pipes, other arithmetic, the way to L2.
pub(crate) const UNITS: usize = 4;

/// A stretch of a cluster's own time, and the part of each unit of the SM that it
/// keeps busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) cycles: f64,
    pub(crate) load: [f64; UNITS],
}

impl Piece {
    /// Waiting.
    pub(crate) fn idle(cycles: u64) -> Piece {
        Piece {
            cycles: cycles as f64,
            load: [0.0; UNITS],
        }
    }
}

/// A job on an SM.
#[derive(Debug)]
struct Job {
    who: usize,
    pieces: std::vec::IntoIter<Piece>,
    now: Piece,
    /// Cycles of the cluster for one of the device.
    rate: f64,
}

#[derive(Debug, Default)]
struct Site {
    time: u64,
    version: u64,
    jobs: Vec<Job>,
}

/// All SMs (or groups of them that hold a cluster) with their jobs.
#[derive(Debug)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    due: BinaryHeap<Reverse<(u64, u32, u64)>>,
}

/// A job that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) time: u64,
    pub(crate) site: u32,
    pub(crate) who: usize,
}

/// What is left of a piece when it counts as done, in cycles.
const NOTHING: f64 = 1e-6;

impl Sites {
    /// Empty ones.
    pub(crate) fn new(sites: u32) -> Sites {
        Sites {
            sites: (0..sites).map(|_| Site::default()).collect(),
            due: BinaryHeap::new(),
        }
    }

    /// Starts a job at a time, which is not before the last one that ended there.
    pub(crate) fn start(&mut self, site: u32, who: usize, time: u64, pieces: Vec<Piece>) {
        let here = &mut self.sites[site as usize];
        here.advance(time);
        let mut pieces = pieces.into_iter();
        let now = pieces.next().unwrap_or(Piece::idle(0));
        here.jobs.push(Job {
            who,
            pieces,
            now,
            rate: 1.0,
        });
        self.plan(site);
    }

    /// The next job that ends. Jobs that end at once come one after the other.
    pub(crate) fn next(&mut self) -> Option<Ended> {
        while let Some(Reverse((time, site, version))) = self.due.pop() {
            let here = &mut self.sites[site as usize];
            if here.version != version {
                continue;
            }
            here.advance(time);
            let mut ended = None;
            for at in 0..here.jobs.len() {
                let job = &mut here.jobs[at];
                if job.now.cycles > NOTHING {
                    continue;
                }
                match job.pieces.next() {
                    Some(piece) => job.now = piece,
                    None if ended.is_none() => ended = Some(at),
                    None => {}
                }
            }
            let ended = ended.map(|at| here.jobs.remove(at).who);
            self.plan(site);
            if let Some(who) = ended {
                return Some(Ended { time, site, who });
            }
        }
        None
    }

    /// Divides the SM among its jobs anew, and notes when the next piece ends.
    fn plan(&mut self, site: u32) {
        let here = &mut self.sites[site as usize];
        here.version += 1;
        here.share();
        let wait = here
            .jobs
            .iter()
            .map(|job| (job.now.cycles / job.rate).max(0.0))
            .min_by(f64::total_cmp);
        if let Some(wait) = wait {
            let time = here.time + (wait - NOTHING).ceil().max(0.0) as u64;
            self.due.push(Reverse((time, site, here.version)));
        }
    }
}

impl Site {
    fn advance(&mut self, time: u64) {
        let passed = time.saturating_sub(self.time) as f64;
        for job in &mut self.jobs {
            job.now.cycles -= passed * job.rate;
        }
        self.time = self.time.max(time);
    }

    fn share(&mut self) {
        for job in &mut self.jobs {
            job.rate = 1.0;
        }
        for unit in 0..UNITS {
            let total: f64 = self.jobs.iter().map(|job| job.now.load[unit]).sum();
            if total <= 1.0 {
                continue;
            }
            let level = level(self.jobs.iter().map(|job| job.now.load[unit]));
            for job in &mut self.jobs {
                let load = job.now.load[unit];
                if load > level {
                    job.rate = job.rate.min(level / load);
                }
            }
        }
    }
}

/// The part of a unit that is enough for whoever asks for less, such that all of
/// it is given away. The loads are more than one in all.
fn level(loads: impl Iterator<Item = f64> + Clone) -> f64 {
    let mut level = 0.0;
    loop {
        let (mut left, mut hungry) = (1.0, 0.0);
        for load in loads.clone() {
            if load <= level {
                left -= load;
            } else {
                hungry += 1.0;
            }
        }
        let next: f64 = left / f64::max(hungry, 1.0);
        if next <= level + 1e-9 {
            return next.max(level).max(1e-6);
        }
        level = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(cycles: f64, load: f64) -> Piece {
        Piece {
            cycles,
            load: [0.0, load, 0.0, 0.0],
        }
    }

    fn all(sites: &mut Sites) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| sites.next().map(|ended| (ended.time, ended.who))).collect()
    }

    #[test]
    fn those_who_ask_for_all_share_it_and_the_last_one_gets_it() {
        let mut sites = Sites::new(2);
        sites.start(0, 1, 100, vec![busy(100.0, 1.0)]);
        sites.start(0, 2, 100, vec![busy(300.0, 1.0)]);
        sites.start(1, 3, 0, vec![busy(100.0, 1.0)]);
        // Two share until 300; then the second has 200 left and is alone.
        assert_eq!(all(&mut sites), [(100, 3), (300, 1), (500, 2)]);
    }

    #[test]
    fn waiting_is_not_slowed_and_does_not_slow() {
        let mut sites = Sites::new(1);
        sites.start(0, 1, 0, vec![Piece::idle(50), busy(10.0, 1.0)]);
        sites.start(0, 2, 0, vec![busy(100.0, 1.0)]);
        // From 50 on both compute: 20 cycles for ten of the first.
        assert_eq!(all(&mut sites), [(70, 1), (110, 2)]);
    }

    #[test]
    fn a_small_part_is_given_in_full() {
        let mut sites = Sites::new(1);
        sites.start(0, 1, 0, vec![busy(100.0, 0.25)]);
        sites.start(0, 2, 0, vec![busy(75.0, 1.0)]);
        sites.start(0, 3, 0, vec![]);
        assert_eq!(all(&mut sites), [(0, 3), (100, 1), (100, 2)]);
        let thirds = [0.1, 1.0, 0.5, 0.5];
        let found = level(thirds.into_iter());
        assert!((found - 0.3).abs() < 1e-6, "{found}");
    }
}
