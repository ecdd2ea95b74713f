//! Choosing a schedule by measuring it, once.
//!
//! [`TileSource::auto`] guesses; which schedule is the fastest depends on the kernel
//! and on its data. A [`Tuner`] measures candidates in turns, drops those that
//! are clearly slower, takes more samples of those that are close, and
//! remembers the answer for the kernel and the device, in a file if told so.
//! How one sample is taken is the caller's: a launch on a GPU, or a run on the
//! simulator, whose modelled time needs no second sample.

use crate::erased::AnyPolicy;
use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::source::{Submit, TicketGrid, TileSource};
use heist_builder::Arch;
use heist_launch::{Dim3, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// What an answer is remembered for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TuneKey(String);

impl TuneKey {
    /// A kernel, by its text (the PTX of any one candidate will do, since the
    /// tile's body is in all of them), the grid of tiles and the device.
    pub fn new(ptx: &str, tiles: Dim3, device: &str) -> TuneKey {
        TuneKey(format!("{:016x} {tiles} {device}", fnv(ptx.as_bytes())))
    }

    /// The same kernel on other data, or whatever else decides how long tiles
    /// take: answers are remembered apart.
    #[must_use]
    pub fn with(self, what: impl fmt::Display) -> TuneKey {
        TuneKey(format!("{} {what}", self.0))
    }
}

/// A hash that is the same in every process, for the file.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// How hard to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Samples of every candidate before the first is dropped.
    pub first: u32,
    /// Samples of one candidate at most.
    pub most: u32,
    /// Candidates that differ by less than this part are as good as each other.
    pub close: f64,
}

impl Effort {
    /// For a clock that gives the same time every time.
    pub const EXACT: Effort = Effort {
        first: 1,
        most: 1,
        close: 0.0,
    };
}

impl Default for Effort {
    /// Five samples of each, thirty of close ones, half a percent.
    fn default() -> Effort {
        Effort {
            first: 5,
            most: 30,
            close: 0.005,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tuned {
    /// The schedule, as it prints.
    pub schedule: String,
    /// The median of its samples, in nanoseconds.
    pub median_ns: f64,
    /// How many samples of it were taken.
    pub samples: u32,
    /// Candidates that were measured.
    pub candidates: u32,
}

/// Why nothing is remembered.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The file can't be read or written.
    #[error("the tuner's memory {}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not a tuner's.
    #[error("{} is no tuner's memory: {error}; remove it, and it is made anew", path.display())]
    Text {
        /// Which.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
}

/// Measures schedules and remembers which was the fastest.
///
/// ```
/// use heist_builder::Arch;
/// use heist_launch::{Dim3, Time};
/// use heist_sched::{Effort, Schedule, TuneKey, Tuner};
///
/// let mut tuner = Tuner::new(Effort::default());
/// let candidates = Schedule::candidates(Arch::SM_90A, &"greedy".parse().unwrap());
/// let key = TuneKey::new("the kernel's PTX", Dim3::from([100, 1, 1]), "sim:h200");
/// let mut measured = 0;
/// let mut measure = |schedule: usize| {
///     measured += 1;
///     Ok::<Time, std::convert::Infallible>(Time::from_ns(if schedule == 2 { 900 } else { 1000 }))
/// };
/// assert_eq!(tuner.choose(&key, &candidates, &mut measure), Ok(Some(2)));
/// assert_eq!(tuner.choose(&key, &candidates, &mut measure), Ok(Some(2)));
/// assert!(measured < 6 * candidates.len()); // the second time it was known
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tuner {
    effort: Effort,
    known: BTreeMap<String, Tuned>,
    file: Option<PathBuf>,
}

impl Tuner {
    /// Remembers as long as it lives.
    pub fn new(effort: Effort) -> Tuner {
        Tuner {
            effort,
            ..Tuner::default()
        }
    }

    /// Remembers in a file, which need not be there yet.
    ///
    /// # Errors
    /// A file that is there and can't be read.
    pub fn remembering(effort: Effort, path: impl AsRef<Path>) -> Result<Tuner, TuneError> {
        let path = path.as_ref().to_path_buf();
        let known = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| TuneError::Text {
                path: path.clone(),
                error,
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(TuneError::File { path, error }),
        };
        Ok(Tuner {
            effort,
            known,
            file: Some(path),
        })
    }

    /// Writes the file, if there is one.
    ///
    /// # Errors
    /// Why it can't be written.
    pub fn save(&self) -> Result<(), TuneError> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let failed = |error| TuneError::File {
            path: path.clone(),
            error,
        };
        let text = serde_json::to_string_pretty(&self.known)
            .map_err(|error| failed(std::io::Error::other(error)))?;
        std::fs::write(path, text + "\n").map_err(failed)
    }

    /// What is remembered.
    pub fn known(&self, key: &TuneKey) -> Option<&Tuned> {
        self.known.get(&key.0)
    }

    /// The fastest of some schedules, by its place among them: remembered, or
    /// measured now. `measure` takes one sample of one of them. Nothing only if
    /// there are no candidates.
    ///
    /// # Errors
    /// What a measurement failed with.
    pub fn choose<E>(
        &mut self,
        key: &TuneKey,
        candidates: &[Schedule],
        measure: impl FnMut(usize) -> Result<Time, E>,
    ) -> Result<Option<usize>, E> {
        let names: Vec<String> = candidates.iter().map(Schedule::to_string).collect();
        if let Some(known) = self.known.get(&key.0)
            && let Some(at) = names.iter().position(|name| *name == known.schedule)
        {
            return Ok(Some(at));
        }
        let standings = race(self.effort, candidates.len(), measure)?;
        let Some(best) = standings.first() else {
            return Ok(None);
        };
        let tuned = Tuned {
            schedule: names[best.candidate].clone(),
            median_ns: best.median_ns,
            samples: best.samples,
            candidates: candidates.len() as u32,
        };
        self.known.insert(key.0.clone(), tuned);
        Ok(Some(best.candidate))
    }
}

/// How a candidate did in a [`race`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Its place among the candidates.
    pub candidate: usize,
    /// The median of its samples, in nanoseconds.
    pub median_ns: f64,
    /// How many were taken before it was dropped, or in all.
    pub samples: u32,
}

/// Takes samples of candidates in turns, drops those that are clearly slower, and
/// takes more of those that are close. The fastest comes first; those that were
/// dropped come after all that were not, the last dropped first.
///
/// # Errors
/// What a measurement failed with.
///
/// ```
/// use heist_launch::Time;
/// use heist_sched::{Effort, race};
/// let standings = race(Effort::EXACT, 3, |at| {
///     Ok::<Time, std::convert::Infallible>(Time::from_ns([30, 10, 20][at]))
/// });
/// let order: Vec<usize> = standings.unwrap().iter().map(|one| one.candidate).collect();
/// assert_eq!(order, [1, 2, 0]);
/// ```
pub fn race<E>(
    effort: Effort,
    candidates: usize,
    mut measure: impl FnMut(usize) -> Result<Time, E>,
) -> Result<Vec<Standing>, E> {
    let mut running: Vec<Contender> = (0..candidates).map(Contender::new).collect();
    let mut dropped = Vec::new();
    for round in 0..effort.most.max(1) {
        // Each takes every position in turn.
        let many = running.len().max(1);
        for turn in 0..running.len() {
            let contender = &mut running[(round as usize + turn) % many];
            let time = measure(contender.candidate)?;
            contender.add(time.ns());
        }
        if round + 1 >= effort.first.max(1) {
            dropped.push(drop_slower(&mut running, effort.close));
            if running.len() <= 1 {
                break;
            }
        }
    }
    dropped.push(running);
    let by_median = |mut group: Vec<Contender>| {
        group.sort_by(|a, b| a.median().total_cmp(&b.median()));
        group
    };
    let standings = dropped.into_iter().rev().flat_map(by_median);
    Ok(standings.map(|one| one.standing()).collect())
}

/// A candidate that is still in the running, and its samples in order.
struct Contender {
    candidate: usize,
    sorted: Vec<f64>,
}

impl Contender {
    fn new(candidate: usize) -> Contender {
        Contender {
            candidate,
            sorted: Vec::new(),
        }
    }

    fn add(&mut self, sample: f64) {
        let at = self.sorted.partition_point(|other| *other < sample);
        self.sorted.insert(at, sample);
    }

    fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (part * last as f64).round() as usize;
        self.sorted.get(at).copied().unwrap_or(f64::INFINITY)
    }

    fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    fn standing(&self) -> Standing {
        Standing {
            candidate: self.candidate,
            median_ns: self.median(),
            samples: self.sorted.len() as u32,
        }
    }

    /// How far the median may be from the true one: the spread of the middle
    /// half, less as samples grow.
    fn doubt(&self) -> f64 {
        let spread = self.quantile(0.75) - self.quantile(0.25);
        2.0 * spread / (self.sorted.len() as f64).sqrt()
    }
}

/// Takes out those that are slower than the best by more than chance.
fn drop_slower(running: &mut Vec<Contender>, close: f64) -> Vec<Contender> {
    let best = running
        .iter()
        .min_by(|a, b| a.median().total_cmp(&b.median()))
        .map(|best| (best.median(), best.doubt()));
    let Some((median, doubt)) = best else {
        return Vec::new();
    };
    let slower = |contender: &mut Contender| {
        let over = contender.median() - median;
        over > 0.0 && over > close * median + doubt + contender.doubt()
    };
    running.extract_if(.., slower).collect()
}

impl Schedule {
    /// What is worth trying for a policy on a target: every source that the
    /// target has, early and late, the policy and greedy; and tickets without
    /// stealing, which give tiles to blocks in the order of their arrival.
    pub fn candidates(arch: Arch, policy: &AnyPolicy) -> Vec<Schedule> {
        let mut all = vec![
            Schedule::new(TileSource::Direct),
            Schedule::new(TileSource::Static),
        ];
        let greedy = AnyPolicy::new(crate::policies::Greedy);
        let mut policies = vec![greedy];
        if policy.constant().is_none() {
            policies.push(policy.clone());
        }
        for source in [TileSource::Clc, TileSource::Ticket] {
            if source.check(arch, Dim3::ONE).is_err() {
                continue;
            }
            for policy in &policies {
                for submit in [Submit::Early, Submit::Late] {
                    let one = Schedule::new(source).policy(policy.clone()).submit(submit);
                    if source == TileSource::Ticket && policy.constant() == Some(true) {
                        let mut full = one.clone();
                        full.grid = Some(TicketGrid::Full);
                        all.push(full);
                    }
                    all.push(one);
                }
            }
        }
        let never = AnyPolicy::new(crate::policies::Never);
        all.push(Schedule::new(TileSource::Ticket).policy(never));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn candidates() -> Vec<Schedule> {
        Schedule::candidates(Arch::SM_100, &"max-steals(2)".parse().expect("a policy"))
    }

    /// The published values of FNV-1a: a file is read by another process, and by a later version.
    #[test]
    fn the_hash_of_the_file_is_fnv() {
        assert_eq!(fnv(b""), 0xCBF2_9CE4_8422_2325);
        assert_eq!(fnv(b"a"), 0xAF63_DC4C_8601_EC8C);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_F739_67E8);
    }

    fn key(name: &str) -> TuneKey {
        TuneKey::new(name, Dim3::from([7, 1, 1]), "gpu")
    }

    #[test]
    fn there_is_something_to_choose_from() {
        let names: Vec<String> = candidates().iter().map(Schedule::to_string).collect();
        assert!(
            names.contains(&"clc late max-steals(2)".to_owned()),
            "{names:?}"
        );
        assert!(names.contains(&"ticket early greedy full".to_owned()));
        let mut apart = names.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), names.len());
        let hopper = Schedule::candidates(Arch::SM_90A, &"greedy".parse().expect("a policy"));
        assert!(hopper.iter().all(|one| one.source != TileSource::Clc));
    }

    #[test]
    fn close_candidates_get_more_samples_than_slow_ones() {
        let candidates = candidates();
        let mut taken = vec![0u32; candidates.len()];
        let mut noise = 1u64;
        let mut tuner = Tuner::new(Effort::default());
        let chosen = tuner.choose(&key("a"), &candidates, |at| {
            taken[at] += 1;
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let jitter = (noise >> 59) as f64; // up to 31 of 1000
            let base = match at {
                3 => 1000.0,
                4 => 1012.0,
                _ => 1500.0,
            };
            Ok::<Time, Infallible>(Time::from_ns_f64(base + jitter))
        });
        assert_eq!(chosen, Ok(Some(3)));
        assert_eq!(taken[0], 5);
        assert!(taken[4] > 5, "{taken:?}");
        assert_eq!(
            tuner.known(&key("a")).map(|k| k.candidates),
            Some(candidates.len() as u32)
        );
        assert_eq!(tuner.known(&key("b")), None);
        assert_ne!(key("a").with("other data"), key("a"));
    }

    #[test]
    fn slower_is_who_is_beyond_all_doubts_together() {
        // Medians of 104 and of `median`, doubts of 4 and 2, and a hundredth that is close anyway.
        let dropped = |median: f64| {
            let mut running = Vec::new();
            for (at, samples) in [
                [0.0, 100.0, 104.0, 200.0],
                [0.0, median - 2.0, median, 300.0],
            ]
            .into_iter()
            .enumerate()
            {
                let mut contender = Contender::new(at);
                for sample in samples {
                    contender.add(sample);
                }
                running.push(contender);
            }
            drop_slower(&mut running, 0.01).len()
        };
        assert_eq!([dropped(111.0), dropped(112.0)], [0, 1]);
    }

    #[test]
    fn nothing_is_chosen_from_nothing_and_a_failure_is_passed_on() {
        let mut tuner = Tuner::new(Effort::EXACT);
        let measure = |_| Err::<Time, &str>("lost");
        assert_eq!(tuner.choose(&key("a"), &[], measure), Ok(None));
        assert_eq!(tuner.choose(&key("a"), &candidates(), measure), Err("lost"));
    }

    #[test]
    fn what_was_measured_is_known_in_the_next_process() {
        let path = std::env::temp_dir().join(format!("heist-tune-{}.json", std::process::id()));
        let candidates = candidates();
        let mut tuner = Tuner::remembering(Effort::EXACT, &path).expect("no file is fine");
        let chosen = tuner.choose(&key("a"), &candidates, |at| {
            Ok::<Time, Infallible>(Time::from_ns(100 - at as u64))
        });
        assert_eq!(chosen, Ok(Some(candidates.len() - 1)));
        tuner.save().expect("written");
        let mut again = Tuner::remembering(Effort::EXACT, &path).expect("read");
        let measure = |_| Err::<Time, &str>("was known");
        assert_eq!(
            again.choose(&key("a"), &candidates, measure),
            Ok(chosen.unwrap())
        );
        std::fs::write(&path, "not json").expect("written");
        let error = Tuner::remembering(Effort::EXACT, &path).unwrap_err();
        assert!(error.to_string().contains("no tuner's memory"), "{error}");
        std::fs::remove_file(&path).expect("removed");
    }
}
