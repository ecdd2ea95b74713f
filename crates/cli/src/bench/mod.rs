//! Ours and the peers, side by side.
//!
//! A [`Contest`] is one problem with everything that solves it. Every arm solves
//! it once, on poisoned outputs, and the results are compared before anything is
//! timed. Then samples are taken in turns: in each round every arm once, each
//! in every position, on a cold L2 or back to back ([`Sampling`]). A ratio is of two samples of the
//! same round.

pub mod evidence;
pub(crate) mod pack;
mod peers;
mod posing;
pub(crate) mod profile;
mod ready;
pub mod spec;
pub mod suite;

pub use peers::{PeerError, Peers, Posed, PreparedPeer, Problem, Tensor};

use heist::job::distance;
use heist_gpu::{Figures, Gpu, GpuError, Graph, KernelInfo, PtxText, Sampler, Stream};
use heist_launch::{Buffer, Time};
use serde_json::{Value, json};
use std::fmt;
use std::time::{Duration, Instant};

/// One of ours, ready on a GPU.
pub trait Candidate {
    /// Puts one call into a stream.
    ///
    /// # Errors
    /// When the driver refuses it.
    fn enqueue(&self, stream: &Stream) -> Result<(), GpuError>;

    /// Overwrites the outputs, so that unwritten elements are visible.
    ///
    /// # Errors
    /// When the driver refuses it.
    fn poison(&self, stream: &Stream) -> Result<(), GpuError>;

    /// The result as it is now.
    ///
    /// # Errors
    /// When the GPU faulted.
    fn result(&self) -> Result<Buffer, GpuError>;

    /// What runs: its PTX, and what the assembler made of it.
    fn kernels(&self) -> Vec<(PtxText, KernelInfo)>;
}

/// One problem and what solves it.
pub struct Contest<'c> {
    /// What it is called in the table.
    pub name: String,
    /// The problem as the peers take it, or why they can't.
    pub problem: Result<Problem, String>,
    /// How often it is solved in one measured call.
    pub calls: u32,
    /// Arithmetic operations of one call.
    pub flops: f64,
    /// Bytes that must move at least once.
    pub bytes: f64,
    /// Ours, by name.
    pub ours: Vec<(String, Box<dyn Candidate + 'c>)>,
    /// Theirs, by name.
    pub peers: Vec<&'static str>,
    /// The largest relative norm of the difference of two right results.
    pub tolerance: f64,
}

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// How long to run before measuring.
    pub warm_up: Duration,
    /// How many rounds.
    pub rounds: u32,
    /// What a sample is.
    pub sampling: Sampling,
}

/// How a sample is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// One call on a cold L2 cache, with the clock of a GPU that rests in between.
    Cold,
    /// Calls back to back for about so long, with the clock that the power limit leaves.
    Sustained(Duration),
}

impl Sampling {
    /// How many times a graph of `calls` calls is launched for a sample, where a call takes so long;
    /// `None` where it is one cold launch.
    fn launches(self, call: Time, calls: u32) -> Option<u32> {
        let Sampling::Sustained(length) = self else {
            return None;
        };
        let one = call.ns() * f64::from(calls);
        let many = (length.as_nanos() as f64 / one.max(1.0)).ceil();
        Some(many.clamp(1.0, 100_000.0) as u32)
    }
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            warm_up: Duration::from_millis(500),
            rounds: 30,
            sampling: Sampling::Cold,
        }
    }
}

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// Whether it is one of ours.
    pub ours: bool,
    /// Its samples.
    pub figures: Figures,
    /// The relative norm of its difference from the first of ours; `None` for that one.
    pub error: Option<f64>,
}

/// What a contest gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The contest.
    pub name: String,
    /// Arithmetic operations of one call.
    pub flops: f64,
    /// Bytes that must move.
    pub bytes: f64,
    /// The arms: ours first.
    pub arms: Vec<Arm>,
    /// Peers that could not take part, and why.
    pub absent: Vec<(String, String)>,
    /// The first result that disagrees, if one does.
    pub wrong: Option<String>,
}

/// Why a contest gave nothing.
#[derive(Debug)]
pub enum BenchError {
    /// The GPU or the driver.
    Gpu(GpuError),
    /// The peers went away in the middle.
    Peers(PeerError),
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Gpu(error) => error.fmt(f),
            BenchError::Peers(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BenchError {}

impl From<GpuError> for BenchError {
    fn from(error: GpuError) -> BenchError {
        BenchError::Gpu(error)
    }
}

/// An arm while it is measured.
enum Runner {
    Ours(Graph),
    Peer(PreparedPeer),
}

impl Contest<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// When the GPU faults or the peers' process ends. A peer that can't take part
    /// is no error.
    pub fn run(
        &self,
        gpu: &Gpu,
        mut peers: Option<&mut Peers>,
        effort: Effort,
    ) -> Result<Outcome, BenchError> {
        let sampler = gpu.sampler()?;
        let mut outcome = Outcome {
            name: self.name.clone(),
            flops: self.flops,
            bytes: self.bytes,
            arms: Vec::new(),
            absent: Vec::new(),
            wrong: None,
        };
        let mut runners = Vec::new();
        let mut first: Option<Buffer> = None;
        for (name, candidate) in &self.ours {
            let result = solve(candidate.as_ref(), sampler.stream())?;
            outcome.enter(name, true, &mut first, result, self.tolerance);
            runners.push(Runner::Ours(self.capture(candidate.as_ref(), &sampler)?));
        }
        if let Some(peers) = peers.as_deref_mut() {
            let posed = match &self.problem {
                Ok(problem) => peers.pose(problem),
                Err(why) => Err(PeerError::Unable(why.clone())),
            };
            for name in &self.peers {
                let peer = match &posed {
                    Ok(posed) => peers.prepare(name, posed),
                    Err(why) => Err(why.clone()),
                };
                match peer {
                    Ok(peer) => {
                        let result = peer.result.clone();
                        outcome.enter(name, false, &mut first, result, self.tolerance);
                        runners.push(Runner::Peer(peer));
                    }
                    Err(PeerError::Unable(why)) => outcome.absent.push(((*name).into(), why)),
                    Err(gone) => return Err(BenchError::Peers(gone)),
                }
            }
        }
        let calls = self.calls.max(1);
        let mut sample =
            |runner: &Runner, launches: Option<u32>| match (runner, peers.as_deref_mut()) {
                (Runner::Ours(graph), _) => {
                    let launch = |stream: &Stream| graph.launch(stream);
                    let time = match launches {
                        None => sampler.sample(1, launch)?,
                        Some(many) => sampler.back_to_back(lead(many), many, launch)?,
                    };
                    Ok(Time(time.0 / u64::from(calls)))
                }
                (Runner::Peer(peer), Some(peers)) => {
                    peers.sample(peer, launches).map_err(BenchError::Peers)
                }
                (Runner::Peer(_), None) => unreachable!("a peer was prepared by the peers"),
            };
        let mut launches = Vec::new();
        for runner in &runners {
            let first: Time = sample(runner, None)?;
            let call = first.min(sample(runner, None)?);
            launches.push(effort.sampling.launches(call, calls));
        }
        let began = Instant::now();
        while began.elapsed() < effort.warm_up && !runners.is_empty() {
            for (runner, launches) in runners.iter().zip(&launches) {
                sample(runner, *launches)?;
            }
        }
        for round in 0..effort.rounds as usize {
            for turn in 0..runners.len() {
                let index = (round + turn) % runners.len();
                let time = sample(&runners[index], launches[index])?;
                outcome.arms[index].figures.samples.push(time);
            }
        }
        if let Some(peers) = peers {
            peers.forget();
        }
        Ok(outcome)
    }

    fn capture(&self, candidate: &dyn Candidate, sampler: &Sampler) -> Result<Graph, GpuError> {
        sampler.stream().capture(|stream| {
            for _ in 0..self.calls.max(1) {
                candidate.enqueue(stream)?;
            }
            Ok(())
        })
    }
}

/// Launches before those of a sustained sample that count: the clock falls to what the power limit
/// leaves for this kernel.
fn lead(launches: u32) -> u32 {
    launches / 4
}

fn solve(candidate: &dyn Candidate, stream: &Stream) -> Result<Buffer, GpuError> {
    candidate.poison(stream)?;
    candidate.enqueue(stream)?;
    stream.synchronize()?;
    candidate.result()
}

impl Outcome {
    /// Adds an arm, its result compared with the first one.
    fn enter(
        &mut self,
        name: &str,
        ours: bool,
        first: &mut Option<Buffer>,
        result: Buffer,
        tolerance: f64,
    ) {
        let error = first.as_ref().map(|first| distance(first, &result));
        if first.is_none() {
            *first = Some(result);
        }
        // Not a number is wrong too.
        if error.is_some_and(|error| {
            !matches!(
                error.partial_cmp(&tolerance),
                Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
            )
        }) && self.wrong.is_none()
        {
            let against = self.arms.first().map_or("", |arm| arm.name.as_str());
            self.wrong = Some(format!(
                "{}: {name} and {against} differ by {:.2e} of the norm",
                self.name,
                error.unwrap_or(f64::NAN)
            ));
        }
        self.arms.push(Arm {
            name: name.to_owned(),
            ours,
            figures: Figures {
                name: name.to_owned(),
                samples: Vec::new(),
            },
            error,
        });
    }

    /// The fastest of ours.
    pub fn best_of_ours(&self) -> Option<&Arm> {
        let median = |arm: &&Arm| {
            arm.figures
                .nanoseconds()
                .map_or(f64::INFINITY, |s| s.median)
        };
        self.arms
            .iter()
            .filter(|arm| arm.ours)
            .min_by(|a, b| median(a).total_cmp(&median(b)))
    }

    /// One row for each arm: time, rate, and how fast the best of ours is beside it.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let best = self.best_of_ours();
        let row = |arm: &Arm| {
            let spread = arm.figures.nanoseconds();
            let cell = |value: Option<String>| value.unwrap_or_else(|| "-".into());
            let ratio = best
                .filter(|_| !arm.ours)
                .and_then(|best| arm.figures.times_as_long_as(&best.figures));
            vec![
                format!("{}{}", arm.name, if arm.ours { " (heist)" } else { "" }),
                cell(spread.map(|s| format!("{:.2}", s.median / 1e3))),
                cell(spread.map(|s| format!("{:.2}..{:.2}", s.p10 / 1e3, s.p90 / 1e3))),
                cell(spread.map(|s| format!("{:.1}", self.flops / s.median / 1e3))),
                cell(spread.map(|s| format!("{:.0}", self.bytes / s.median))),
                cell(ratio.map(|s| format!("{:.3}", s.median))),
                cell(arm.error.map(|error| format!("{error:.1e}"))),
            ]
        };
        self.arms.iter().map(row).collect()
    }

    /// For machines.
    pub fn to_json(&self) -> Value {
        let best = self.best_of_ours();
        let arm = |arm: &Arm| {
            let spread = arm.figures.nanoseconds();
            let ratio = best
                .filter(|_| !arm.ours)
                .and_then(|best| arm.figures.times_as_long_as(&best.figures));
            json!({
                "name": arm.name,
                "ours": arm.ours,
                "ns": spread.map(|s| [s.p10, s.median, s.p90]),
                "ours_over_this": ratio.map(|s| [s.p10, s.median, s.p90]),
                "error": arm.error,
                "samples_ns": arm.figures.samples.iter().map(|time| time.ns()).collect::<Vec<_>>(),
            })
        };
        json!({
            "name": self.name,
            "flops": self.flops,
            "bytes": self.bytes,
            "arms": self.arms.iter().map(arm).collect::<Vec<_>>(),
            "absent": self.absent,
            "wrong": self.wrong,
        })
    }
}

/// The heads of [`Outcome::rows`].
pub const HEADS: [&str; 7] = [
    "kernel",
    "us",
    "p10..p90",
    "TFLOP/s",
    "GB/s",
    "our speed over it",
    "differs",
];

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::Time;

    fn outcome() -> Outcome {
        let mut outcome = Outcome {
            name: "case".into(),
            flops: 2e9,
            bytes: 1e6,
            arms: Vec::new(),
            absent: Vec::new(),
            wrong: None,
        };
        let mut first = None;
        let right = Buffer::from_slice(&[1.0f32, 2.0]);
        outcome.enter("slow", true, &mut first, right.clone(), 1e-3);
        outcome.enter("fast", true, &mut first, right.clone(), 1e-3);
        outcome.enter("peer", false, &mut first, right, 1e-3);
        for (arm, ns) in outcome.arms.iter_mut().zip([4000, 1000, 2000]) {
            arm.figures.samples = vec![Time::from_ns(ns); 3];
        }
        outcome
    }

    #[test]
    fn a_peer_is_measured_against_the_best_of_ours() {
        let rows = outcome().rows();
        assert_eq!(rows[2][5], "2.000");
        assert_eq!((rows[0][5].as_str(), rows[1][5].as_str()), ("-", "-"));
        assert_eq!(rows[1][3], "2000.0");
    }

    #[test]
    fn a_sustained_sample_lasts_as_long_for_every_arm() {
        let sustained = Sampling::Sustained(Duration::from_millis(100));
        let us = |us: u64| Time::from_ns(us * 1000);
        assert_eq!(sustained.launches(us(10), 1), Some(10_000));
        assert_eq!(sustained.launches(us(10), 20), Some(500));
        assert_eq!(sustained.launches(us(300_000), 1), Some(1));
        assert_eq!(sustained.launches(us(0), 1), Some(100_000));
        assert_eq!(Sampling::Cold.launches(us(10), 1), None);
    }

    #[test]
    fn a_result_that_differs_is_told() {
        let mut outcome = outcome();
        assert_eq!(outcome.wrong, None);
        let mut first = Some(Buffer::from_slice(&[1.0f32, 2.0]));
        for wrong in [[1.0, 2.5], [f32::NAN, 2.0]] {
            outcome.wrong = None;
            let wrong = Buffer::from_slice(&wrong);
            outcome.enter("off", false, &mut first, wrong, 1e-3);
            assert!(
                outcome
                    .wrong
                    .as_deref()
                    .is_some_and(|why| why.contains("off"))
            );
        }
    }
}
