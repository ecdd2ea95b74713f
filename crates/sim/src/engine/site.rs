//! How the blocks on one SM share its units.
//!
//! A cluster runs on a clock of its own, as if its SM were empty, until it must
//! interact with the rest of the device. That stretch is a job: pieces of time,
//! each with the load that it puts on the units of the SM. Here the jobs of an
//! SM share it: a cluster that asks for less than an equal part of a unit gets
//! what it asks for, and the others share what is left equally. So a piece that
//! waits for memory is not slowed by others that compute, and the last block on an
//! SM runs at its full speed. All SMs share [DRAM](super::dram).

use super::dram::Dram;
use crate::state::demand::UNITS;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

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

/// What a cluster does up to its next interaction with the device.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) pieces: Arc<[Piece]>,
    /// Bytes between DRAM and L2 in a cycle of the cluster's.
    pub(crate) traffic: f64,
}

impl Work {
    /// Of nobody who uses memory.
    pub(crate) fn without_memory(pieces: Arc<[Piece]>) -> Work {
        Work {
            pieces,
            traffic: 0.0,
        }
    }
}

/// A job on an SM.
#[derive(Clone, Debug)]
struct Job {
    who: usize,
    pieces: Arc<[Piece]>,
    traffic: f64,
    /// The piece after the present one.
    next: usize,
    now: Piece,
    /// Cycles of the cluster for one of the device.
    rate: f64,
}

/// An SM with its jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Site {
    time: u64,
    jobs: Vec<Job>,
}

/// All SMs (or groups of them that hold a cluster) with their jobs.
#[derive(Debug)]
pub(crate) struct Sites {
    /// Each with the number of plans that were made for it, and what it asks of DRAM.
    sites: Vec<(Site, u64, f64)>,
    /// In the SMs' time, in which DRAM is quick enough.
    due: BinaryHeap<Reverse<(u64, u32, u64)>>,
    dram: Dram,
    /// What all of them ask of DRAM.
    demand: f64,
    /// The SMs' time, and by how much the device's is later.
    now: u64,
    late: f64,
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
    pub(crate) fn new(sites: u32, dram: Dram) -> Sites {
        Sites {
            sites: (0..sites).map(|_| Default::default()).collect(),
            due: BinaryHeap::new(),
            dram,
            demand: 0.0,
            now: 0,
            late: 0.0,
        }
    }

    /// Starts a job at a time, which is not before the last one that ended there.
    pub(crate) fn start(&mut self, site: u32, who: usize, time: u64, work: Work) {
        let late = self.late as u64;
        // A launch may come before what has ended last on another SM.
        let time = match time.checked_sub(self.now + late) {
            Some(ahead) => self.now + (ahead as f64 / (1.0 + self.dram.delay(self.demand))) as u64,
            None => time.saturating_sub(late),
        };
        self.sites[site as usize].0.start(who, time, work);
        self.plan(site);
    }

    /// By how much the device's time is later at a time of the SMs', if nothing happens before.
    fn late_at(&self, time: u64) -> f64 {
        let passed = time.saturating_sub(self.now) as f64;
        self.late + passed * self.dram.delay(self.demand)
    }

    /// The next job that ends. Jobs that end at once come one after the other.
    pub(crate) fn next(&mut self) -> Option<Ended> {
        while let Some(Reverse((time, site, version))) = self.due.pop() {
            if self.sites[site as usize].1 != version {
                continue;
            }
            self.late = self.late_at(time);
            self.now = self.now.max(time);
            let ended = self.sites[site as usize].0.step(time);
            self.plan(site);
            if let Some(who) = ended {
                let time = time + self.late as u64;
                return Some(Ended { time, site, who });
            }
        }
        None
    }

    /// When something happens next.
    pub(crate) fn next_time(&mut self) -> Option<u64> {
        while let Some(&Reverse((time, site, version))) = self.due.peek() {
            if self.sites[site as usize].1 == version {
                return Some(time + self.late_at(time) as u64);
            }
            self.due.pop();
        }
        None
    }

    fn plan(&mut self, site: u32) {
        let (here, version, demand) = &mut self.sites[site as usize];
        *version += 1;
        let planned = here.plan();
        let asked = here.traffic();
        self.demand += asked - std::mem::replace(demand, asked);
        if let Some(time) = planned {
            self.due.push(Reverse((time, site, *version)));
        }
    }
}

impl Site {
    /// Starts a job at a time, which is not before the last step.
    pub(super) fn start(&mut self, who: usize, time: u64, Work { pieces, traffic }: Work) {
        self.advance(time);
        self.jobs.push(Job {
            who,
            now: pieces.first().copied().unwrap_or(Piece::idle(0)),
            pieces,
            traffic,
            next: 1,
            rate: 1.0,
        });
    }

    /// Goes on to a time that [`Site::plan`] gave. Of the jobs that have ended
    /// then it takes out the first one; the next step, at the same time, the next one.
    pub(super) fn step(&mut self, time: u64) -> Option<usize> {
        self.advance(time);
        let mut ended = None;
        for (at, job) in self.jobs.iter_mut().enumerate() {
            if job.now.cycles > NOTHING {
                continue;
            }
            match job.pieces.get(job.next) {
                Some(&piece) => (job.now, job.next) = (piece, job.next + 1),
                None if ended.is_none() => ended = Some(at),
                None => {}
            }
        }
        ended.map(|at| self.jobs.remove(at).who)
    }

    /// Divides the SM among its jobs anew; when the next piece ends.
    pub(super) fn plan(&mut self) -> Option<u64> {
        self.share();
        let wait = self
            .jobs
            .iter()
            .map(|job| (job.now.cycles / job.rate).max(0.0))
            .min_by(f64::total_cmp)?;
        Some(self.time + (wait - NOTHING).ceil().max(0.0) as u64)
    }

    /// What its jobs ask of DRAM, in bytes a cycle.
    fn traffic(&self) -> f64 {
        let jobs = self.jobs.iter();
        jobs.map(|job| job.traffic * job.rate).sum()
    }

    /// Takes out jobs that have not really come.
    pub(super) fn withdraw(&mut self, who: impl Fn(usize) -> bool) {
        self.jobs.retain(|job| !who(job.who));
    }

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
        let mut totals = [0.0; UNITS];
        for job in &self.jobs {
            for (total, load) in totals.iter_mut().zip(job.now.load) {
                *total += load;
            }
        }
        for (unit, total) in totals.into_iter().enumerate() {
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

/// Cycles from a free slot to the first instruction of the block put there.
pub(crate) const LAUNCH: u64 = 700;

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(cycles: f64, load: f64) -> Piece {
        Piece {
            cycles,
            load: [0.0, load, 0.0, 0.0],
        }
    }

    /// An H200 has 2424 bytes a cycle.
    fn sites(many: u32) -> Sites {
        Sites::new(many, Dram::of(&heist_ptx::arch::Gpu::H200))
    }

    fn work<const N: usize>(pieces: [Piece; N], traffic: f64) -> Work {
        Work {
            pieces: Arc::new(pieces),
            traffic,
        }
    }

    fn all(sites: &mut Sites) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| sites.next().map(|ended| (ended.time, ended.who))).collect()
    }

    #[test]
    fn those_who_ask_for_all_share_it_and_the_last_one_gets_it() {
        let mut sites = sites(2);
        sites.start(0, 1, 100, work([busy(100.0, 1.0)], 0.0));
        sites.start(0, 2, 100, work([busy(300.0, 1.0)], 0.0));
        sites.start(1, 3, 0, work([busy(100.0, 1.0)], 0.0));
        // Two share until 300; then the second has 200 left and is alone.
        assert_eq!(all(&mut sites), [(100, 3), (300, 1), (500, 2)]);
    }

    #[test]
    fn waiting_is_not_slowed_and_does_not_slow() {
        let mut sites = sites(1);
        sites.start(0, 1, 0, work([Piece::idle(50), busy(10.0, 1.0)], 0.0));
        sites.start(0, 2, 0, work([busy(100.0, 1.0)], 0.0));
        // From 50 on both compute: 20 cycles for ten of the first.
        assert_eq!(all(&mut sites), [(70, 1), (110, 2)]);
    }

    #[test]
    fn a_small_part_is_given_in_full() {
        let mut sites = sites(1);
        sites.start(0, 1, 0, work([busy(100.0, 0.25)], 0.0));
        sites.start(0, 2, 0, work([busy(75.0, 1.0)], 0.0));
        sites.start(0, 3, 0, work([], 0.0));
        assert_eq!(all(&mut sites), [(0, 3), (100, 1), (100, 2)]);
        let thirds = [0.1, 1.0, 0.5, 0.5];
        let found = level(thirds.into_iter());
        assert!((found - 0.3).abs() < 1e-6, "{found}");
    }

    #[test]
    fn those_who_ask_for_more_than_dram_has_wait_and_the_last_one_does_not() {
        let half = 2400.0 * 1000.0 / 1980.0;
        let mut sites = sites(3);
        sites.start(0, 1, 0, work([busy(1000.0, 1.0)], half));
        sites.start(1, 2, 0, work([busy(1000.0, 0.5)], half));
        sites.start(2, 3, 0, work([busy(2000.0, 0.0)], half));
        // Half as much again as there is, for 1000 cycles; then a half, which is enough.
        assert_eq!(sites.next_time(), Some(1500));
        assert_eq!(all(&mut sites), [(1500, 1), (1500, 2), (2500, 3)]);
        sites.start(0, 4, 3000, work([busy(100.0, 1.0)], 0.0));
        assert_eq!(all(&mut sites), [(3100, 4)]);
        // One that is slowed by its SM asks for less.
        sites.start(0, 5, 3100, work([busy(100.0, 1.0)], 2.0 * half));
        sites.start(0, 6, 3100, work([busy(100.0, 1.0)], 0.0));
        assert_eq!(all(&mut sites), [(3300, 5), (3300, 6)]);
    }

    #[test]
    fn a_job_may_start_before_another_one_has_ended_elsewhere() {
        let mut sites = sites(2);
        sites.start(0, 1, 0, work([Piece::idle(5000)], 0.0));
        assert_eq!(sites.next().map(|ended| ended.time), Some(5000));
        sites.start(1, 2, 200, work([busy(100.0, 1.0)], 0.0));
        assert_eq!(all(&mut sites), [(300, 2)]);
    }
}
