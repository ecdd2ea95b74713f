//! A sweep: which candidates are tried, how long each is timed, and which one is best.
//!
//! The next step depends only on the rows so far, so that a killed sweep that is resumed on the
//! same journal does only the rest.

use crate::bench::{Bench, Failure};
use crate::candidate::{Candidate, Narrowing, Proposal, Shard};
use crate::journal::{Journal, JournalError, latest, newest};
use crate::row::{Row, Status, Timing};
use crate::statistics::{Estimate, estimate};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Samples that a candidate gets when it enters.
const FIRST: u32 = 3;
/// One that is this many times slower than the best is given up then.
const GIVEN_UP: f64 = 1.5;
/// One that is within this much of the best takes part in the race of its stage.
const CLOSE: f64 = 1.1;
/// At most so many race.
const FIELD: usize = 8;
/// Samples of a racer: it is taken in turns with the others, some at a time.
const RACE: u32 = 30;
const TURN: u32 = 3;

/// What a sweep may spend.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Candidates that are built, at most, in each stage.
    pub limit: usize,
    /// How long it may take; candidates not tried by then are left out, and reported.
    pub time: Option<Duration>,
    /// Fixes which candidates the model does not favour are tried too.
    pub seed: u64,
    /// Which part of the candidates this process tries.
    pub shard: Shard,
    /// What it keeps to.
    pub narrowed: Vec<Narrowing>,
    /// Candidates are not tried but named ([`Sweep::planned`]): others try them, and write their
    /// rows into the journal.
    pub plan: bool,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            limit: 64,
            time: None,
            seed: 1,
            shard: Shard::WHOLE,
            narrowed: Vec::new(),
            plan: false,
        }
    }
}

/// How far a sweep is.
#[derive(Debug)]
pub struct Progress<'p> {
    /// The stage.
    pub stage: &'p str,
    /// Candidates, or turns of a race, that are done.
    pub done: usize,
    /// Of so many.
    pub of: usize,
    /// The best so far.
    pub best: Option<&'p Row>,
}

/// What is tried together.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its name.
    pub name: &'static str,
    /// The candidates, judged.
    pub proposals: Vec<Proposal>,
    /// Up to which part of the sweep's time candidates of this stage are begun. Races are short,
    /// and are always run.
    pub share: f64,
}

/// Why a sweep ended early.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The journal could not be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Nothing is left to try.
    #[error("{stage}: nothing to try: {why}")]
    Nothing {
        /// Where.
        stage: &'static str,
        /// Why.
        why: String,
    },
}

/// A sweep under way.
pub struct Sweep<'s> {
    bench: &'s mut dyn Bench,
    journal: &'s mut Journal,
    budget: Budget,
    /// The default candidate.
    default: Candidate,
    begun: Instant,
    said: &'s mut dyn FnMut(&Progress<'_>),
    left_out: usize,
    planned: Vec<Candidate>,
}

impl<'s> Sweep<'s> {
    /// A sweep on a bench; `said` hears how far it is.
    pub fn new(
        bench: &'s mut dyn Bench,
        journal: &'s mut Journal,
        budget: Budget,
        default: Candidate,
        said: &'s mut dyn FnMut(&Progress<'_>),
    ) -> Sweep<'s> {
        Sweep {
            bench,
            journal,
            budget,
            default,
            begun: Instant::now(),
            said,
            left_out: 0,
            planned: Vec::new(),
        }
    }

    /// Candidates that were not tried because the time was over.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Candidates that others are to try, where the budget is a plan. A stage that has some is not over.
    pub fn planned(&self) -> &[Candidate] {
        &self.planned
    }

    /// The newest row of every candidate.
    pub fn rows(&self) -> Vec<Row> {
        latest(self.journal.rows())
    }

    /// The fastest one that is right. Times of one race are compared with each other: where
    /// there was one, its best is the best.
    pub fn best(&self) -> Option<Row> {
        let is_race = |row: &&Row| row.status == Status::Right && stage_of(row).starts_with(RACING);
        let last = self.journal.rows().iter().rev().find(is_race);
        // Asked after every candidate: of thousands that were refused, none has a time.
        let timed = self
            .journal
            .rows()
            .iter()
            .filter(|row| row.timing.is_some());
        let mut timed = newest(timed);
        timed.retain(|row| row.status.is_timed());
        timed.retain(|row| last.is_none_or(|last| stage_of(row) == stage_of(last)));
        let best = timed
            .into_iter()
            .min_by(|one, other| Row::by_time(one, other));
        best.cloned()
    }

    /// The row of the default.
    pub fn default_row(&self) -> Option<Row> {
        let mut rows = self.journal.rows().iter().rev();
        let newest = rows.find(|row| row.candidate == self.default)?;
        newest.default.then(|| newest.clone())
    }

    /// Tries the candidates of a stage, the default before them, and lets the close ones race.
    ///
    /// # Errors
    /// When the journal can't be written, or there is no candidate at all.
    pub fn stage(&mut self, stage: &Stage) -> Result<(), SweepError> {
        if self.journal.is_done(stage.name) {
            return Ok(());
        }
        let mut chosen = vec![self.proposal(stage, &self.default)];
        chosen.extend(self.choose(stage)?);
        if self.budget.plan {
            let unknown = chosen.iter().map(|proposal| &proposal.candidate);
            let unknown = unknown.filter(|candidate| !self.journal.knows(candidate));
            self.planned = unknown.cloned().collect();
            if !self.planned.is_empty() {
                return Ok(());
            }
        }
        for (at, proposal) in chosen.iter().enumerate() {
            let best = self.best();
            (self.said)(&Progress {
                stage: stage.name,
                done: at,
                of: chosen.len(),
                best: best.as_ref(),
            });
            let default = proposal.candidate == self.default;
            let known = self.journal.knows(&proposal.candidate);
            if known || !(default || self.budget.shard.has(at)) {
                continue;
            }
            if self.is_late(stage.share) {
                self.left_out += 1;
                continue;
            }
            let row = self.enter(proposal, best.as_ref(), stage.name);
            self.journal.add(row)?;
        }
        if self.budget.shard == Shard::WHOLE {
            self.race(stage.name)?;
            if self.left_out == 0 {
                self.journal.finish(stage.name)?;
            }
        }
        Ok(())
    }

    /// Tries the candidates that are named, and nothing else: a part of a plan. Each gets the row that
    /// it would get in its stage.
    ///
    /// # Errors
    /// When the journal can't be written.
    pub fn attempt(&mut self, stage: &Stage, named: &[Candidate]) -> Result<(), SweepError> {
        for candidate in named {
            let proposal = self.proposal(stage, candidate);
            let row = match proposal.judged {
                Err(why) => Row::refused(proposal.candidate, why),
                Ok(_) => self.enter(&proposal, None, stage.name),
            };
            self.journal.add(row)?;
        }
        Ok(())
    }

    fn is_late(&self, share: f64) -> bool {
        let time = self.budget.time;
        time.is_some_and(|time| self.begun.elapsed() >= time.mul_f64(share))
    }

    /// A candidate as its stage judges it; one that the stage does not have is not judged.
    fn proposal(&self, stage: &Stage, candidate: &Candidate) -> Proposal {
        let mut judged = stage.proposals.iter();
        let same = judged.find(|one| one.candidate == *candidate);
        same.cloned().unwrap_or(Proposal {
            candidate: candidate.clone(),
            judged: Ok(None),
        })
    }

    /// Writes the rows of refused candidates, and chooses among the rest: three of four by the
    /// model, and the others at random, since every model is wrong somewhere.
    fn choose(&mut self, stage: &Stage) -> Result<Vec<Proposal>, SweepError> {
        let mut seen = HashSet::from([self.default.clone()]);
        let mut possible = Vec::new();
        for proposal in &stage.proposals {
            let candidate = &proposal.candidate;
            let kept = self.budget.narrowed.iter().all(|one| one.admits(candidate));
            if !kept || !seen.insert(candidate.clone()) {
                continue;
            }
            match &proposal.judged {
                Ok(_) => possible.push(proposal.clone()),
                Err(why) if !self.journal.knows(candidate) => {
                    self.journal
                        .add(Row::refused(candidate.clone(), why.clone()))?;
                }
                Err(_) => {}
            }
        }
        if possible.is_empty() && seen.len() == 1 && !stage.proposals.is_empty() {
            let why = "the parts that it is narrowed to have no candidate in common";
            return Err(SweepError::Nothing {
                stage: stage.name,
                why: why.to_owned(),
            });
        }
        let mut possible = in_turns(possible);
        let favoured = (self.budget.limit * 3).div_ceil(4).min(possible.len());
        let mut rest = possible.split_off(favoured);
        let mut random = fastrand::Rng::with_seed(self.budget.seed);
        random.shuffle(&mut rest);
        rest.truncate(self.budget.limit - favoured.min(self.budget.limit));
        possible.extend(rest);
        Ok(possible)
    }

    /// Builds a candidate, checks its result, and takes its first samples.
    fn enter(&mut self, proposal: &Proposal, best: Option<&Row>, stage: &str) -> Row {
        let candidate = &proposal.candidate;
        let mut row = Row {
            candidate: candidate.clone(),
            default: *candidate == self.default,
            status: Status::Right,
            // A model is good for three decimals, and those are read as they were written.
            model_us: proposal
                .judged
                .clone()
                .ok()
                .flatten()
                .map(|us| (us * 1e3).round() / 1e3),
            timing: None,
            facts: None,
        };
        let solved = self.bench.solve(candidate);
        let sampled = solved.and_then(|facts| {
            row.facts = Some(facts);
            self.bench.sample(candidate, self.first())
        });
        match sampled.map(|samples| estimate(&samples)) {
            Ok(Some(estimate)) => {
                let best = best.and_then(Row::median_ns);
                if best.is_some_and(|best| estimate.low_ns > best * GIVEN_UP) && !row.default {
                    row.status = Status::Slow;
                }
                row.timing = Some(Timing {
                    estimate,
                    stage: stage.to_owned(),
                });
            }
            Ok(None) => row.status = crashed("it was timed, and gave no time"),
            Err(failure) => row.status = failure.into(),
        }
        row
    }

    fn first(&self) -> u32 {
        if self.bench.is_exact() { 1 } else { FIRST }
    }

    /// Times the candidates close to the best in turns, until their intervals do not overlap.
    fn race(&mut self, stage: &'static str) -> Result<(), SweepError> {
        let name = format!("{RACING}{stage}");
        let Some(best) = self.best().and_then(|row| row.median_ns()) else {
            return Ok(());
        };
        let mut rows: Vec<Row> = self.rows();
        rows.retain(|row| {
            let close = row.median_ns().is_some_and(|time| time <= best * CLOSE);
            row.status == Status::Right && (close || row.default)
        });
        rows.sort_by(Row::by_time);
        let default = rows
            .iter()
            .position(|row| row.default)
            .map(|at| rows.remove(at));
        rows.truncate(FIELD);
        rows.extend(default);
        let mut field: Vec<Racer> = rows.into_iter().map(Racer::new).collect();
        if self.bench.is_exact() {
            // Every sample is the same: the first ones are the race.
            for racer in field {
                self.journal.add(racer.finish(&name))?;
            }
            return Ok(());
        }
        let turns = (RACE / TURN) as usize;
        for turn in 0..turns {
            let leader = self.best();
            (self.said)(&Progress {
                stage: &name,
                done: turn,
                of: turns,
                best: leader.as_ref(),
            });
            for racer in field.iter_mut().filter(|racer| racer.runs) {
                match self.bench.sample(&racer.row.candidate, TURN) {
                    Ok(samples) => racer.samples.extend(samples),
                    Err(failure) => {
                        racer.row.status = failure.into();
                        racer.runs = false;
                    }
                }
            }
            drop_the_slower(&mut field);
            if field.iter().filter(|racer| racer.runs).count() <= 1 {
                break;
            }
        }
        for racer in field {
            self.journal.add(racer.finish(&name))?;
        }
        Ok(())
    }
}

/// By the model; those that it says nothing of are neither before nor behind the others, and come among them
/// in their own order, as dense as they are in the space.
fn in_turns(possible: Vec<Proposal>) -> Vec<Proposal> {
    let model = |one: &Proposal| one.judged.clone().ok().flatten();
    let (mut modelled, others): (Vec<_>, Vec<_>) =
        possible.into_iter().partition(|one| model(one).is_some());
    modelled.sort_by(|one, other| {
        let time = |one: &Proposal| model(one).unwrap_or(f64::INFINITY);
        time(one).total_cmp(&time(other))
    });
    let placed = |list: Vec<Proposal>| {
        let count = list.len() as f64;
        let places = list.into_iter().enumerate();
        places.map(move |(at, one)| (at as f64 / count, one))
    };
    let mut all: Vec<(f64, Proposal)> = placed(modelled).chain(placed(others)).collect();
    all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    all.into_iter().map(|(_, one)| one).collect()
}

const RACING: &str = "race of ";

/// The stage that a row's time is of.
fn stage_of(row: &Row) -> &str {
    row.timing.as_ref().map_or("", |timing| &timing.stage)
}

fn crashed(why: &str) -> Status {
    Status::Crashed {
        why: why.to_owned(),
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        match failure {
            Failure::Refused { why } => Status::Refused { why },
            Failure::Wrong { why } => Status::Wrong { why },
            Failure::Crashed { why } => Status::Crashed { why },
            Failure::Hung { seconds } => Status::Hung { seconds },
        }
    }
}

/// A candidate in a race.
struct Racer {
    row: Row,
    samples: Vec<f64>,
    runs: bool,
}

impl Racer {
    fn new(row: Row) -> Racer {
        Racer {
            row,
            samples: Vec::new(),
            runs: true,
        }
    }

    fn estimate(&self) -> Option<Estimate> {
        estimate(&self.samples)
    }

    /// Its row, with the times of the race.
    fn finish(mut self, stage: &str) -> Row {
        let estimate = self
            .estimate()
            .or_else(|| self.row.timing.as_ref().map(|timing| timing.estimate));
        self.row.timing = estimate.map(|estimate| Timing {
            estimate,
            stage: stage.to_owned(),
        });
        self.row
    }
}

/// Drops racers that are significantly slower than the leader. The default runs to the end: the
/// answer is compared with it.
fn drop_the_slower(field: &mut [Racer]) {
    const ENOUGH: u32 = 9;
    let estimates = field
        .iter()
        .filter(|racer| racer.runs)
        .filter_map(Racer::estimate);
    let leader = estimates.min_by(|one, other| one.median_ns.total_cmp(&other.median_ns));
    let Some(leader) = leader.filter(|leader| leader.samples >= ENOUGH) else {
        return;
    };
    for racer in field
        .iter_mut()
        .filter(|racer| racer.runs && !racer.row.default)
    {
        if racer
            .estimate()
            .is_some_and(|own| own.is_slower_than(&leader))
        {
            racer.runs = false;
        }
    }
}
