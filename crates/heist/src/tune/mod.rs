//! Autotuning: the fastest kernel and schedule for one problem on one device.
//!
//! What can be tried is declared by a [`Tunable`]: a kernel of the catalogue ([`Catalogued`]), or
//! your own. Tiles come first, then the schedules of the two fastest: each stage is a sweep of
//! [`heist_tune`], with the default kernel in every race. [`DeviceBench`] builds, checks and times
//! the candidates; [`memory`] keeps the answers.
//!
//! A kernel of your own:
//!
//! ```
//! use heist::kernels::catalogue::Prepared;
//! use heist::kernels::{KernelError, Target};
//! use heist::tune::Tunable;
//! use heist_tune::{Axis, Candidate, Proposal};
//!
//! struct Mine;
//!
//! impl Tunable for Mine {
//!     fn space(&self, _: Target) -> Result<Vec<Proposal>, KernelError> {
//!         let axes = [Axis::new("block", [64, 128, 256]), Axis::new("unroll", [1, 2, 4])];
//!         let judged = |candidate: Candidate| Proposal { judged: Ok(None), candidate };
//!         Ok(Axis::product(&axes).into_iter().map(judged).collect())
//!     }
//!
//!     fn prepare(&self, candidate: &Candidate, _: Target) -> Result<Prepared, KernelError> {
//!         let threads = candidate.get("block").unwrap_or("128");
//!         // Here the kernel is built for so many threads, with its data and its check.
//!         Err(KernelError::unfit(format!("there is no kernel of {threads} threads yet")))
//!     }
//! }
//! ```

mod bench;
pub mod memory;

pub use bench::DeviceBench;

use crate::job::{self, JobError};
use heist_kernels::catalogue::{Entry, Prepared, Settings as Told, schedules};
use heist_kernels::{KernelError, Target};
use heist_run::Device;
use heist_sched::AnyPolicy;
use heist_tune::{
    Bench, Budget, Candidate, Journal, Narrowing, Progress, Proposal, Row, Stage, Sweep, SweepError,
};
use std::collections::BTreeSet;

/// A problem whose solution has choices.
pub trait Tunable {
    /// Every candidate, judged by arithmetic alone.
    ///
    /// # Errors
    /// When there is no such problem.
    fn space(&self, target: Target) -> Result<Vec<Proposal>, KernelError>;

    /// A candidate with data, ready to run, and how to tell whether it was right. The candidate
    /// without words is the default kernel.
    ///
    /// # Errors
    /// Why it can't be built.
    fn prepare(&self, candidate: &Candidate, target: Target) -> Result<Prepared, KernelError>;

    /// The buffer that holds the result.
    fn output(&self) -> &str {
        "d"
    }

    /// Schedules to try for a candidate, as a word `schedule` of it; none where the kernel
    /// distributes its tiles itself.
    fn schedules(&self, _: Target) -> Vec<String> {
        Vec::new()
    }
}

/// A kernel of the catalogue and what it was told.
#[derive(Clone)]
pub struct Catalogued<'c> {
    /// The kernel.
    pub entry: &'c dyn Entry,
    /// The problem.
    pub told: Told,
    /// A policy to try beside greedy.
    pub policy: AnyPolicy,
}

impl Tunable for Catalogued<'_> {
    fn space(&self, target: Target) -> Result<Vec<Proposal>, KernelError> {
        self.entry.space(&self.told, target)
    }

    fn prepare(&self, candidate: &Candidate, target: Target) -> Result<Prepared, KernelError> {
        self.entry.tuned(&self.told, candidate, target)
    }

    fn output(&self) -> &str {
        job::output_of(self.entry.name())
    }

    fn schedules(&self, target: Target) -> Vec<String> {
        schedules(target, &self.policy)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// The problem is invalid, or the device can't solve it.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The sweep could not go on.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// It is narrowed by what is no choice.
    #[error("`{name}` is no choice of these candidates: there are {names}")]
    NoChoice {
        /// What was said.
        name: String,
        /// The choices that there are.
        names: String,
    },
}

/// What a sweep found.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The newest row of every candidate, in the order in which they were tried.
    pub rows: Vec<Row>,
    /// The fastest one that is right.
    pub best: Option<Row>,
    /// The default kernel's row.
    pub default: Option<Row>,
    /// Candidates that were not tried because the time was over.
    pub left_out: usize,
    /// Candidates that others are to try, where the budget is a plan.
    pub planned: Vec<Candidate>,
}

/// Looks for the fastest way: tiles first, then the schedules of the two fastest.
///
/// # Errors
/// When there is no such problem, or the journal can't be written.
pub fn search(
    problem: &dyn Tunable,
    target: Target,
    bench: &mut dyn Bench,
    journal: &mut Journal,
    budget: &Budget,
    said: &mut dyn FnMut(&Progress<'_>),
) -> Result<Tuning, TuneError> {
    let tiles = tiles(problem, target)?;
    narrowings_are_choices(&tiles, &budget.narrowed)?;
    let whole = budget.shard == heist_tune::Shard::WHOLE;
    let mut sweep = Sweep::new(bench, journal, budget.clone(), Candidate::default(), said);
    sweep.stage(&tiles)?;
    // A shard does not know which tiles are the fastest of all candidates.
    if whole && sweep.planned().is_empty() {
        let proposals = scheduled(&sweep.rows(), &problem.schedules(target));
        if !proposals.is_empty() {
            sweep.stage(&Stage {
                name: SCHEDULES,
                proposals,
                share: 0.9,
            })?;
        }
    }
    Ok(tuning(&sweep))
}

/// Tries the candidates that are named, and nothing else: a part of a plan that [`search`] made.
///
/// # Errors
/// When there is no such problem.
pub fn attempt(
    problem: &dyn Tunable,
    target: Target,
    bench: &mut dyn Bench,
    named: &[Candidate],
) -> Result<Tuning, TuneError> {
    let mut tiles = tiles(problem, target)?;
    let (mut journal, budget) = (Journal::in_memory(), Budget::default());
    let mut silent = |_: &Progress<'_>| {};
    let default = Candidate::default();
    let mut sweep = Sweep::new(bench, &mut journal, budget, default, &mut silent);
    for candidate in named {
        tiles.name = match candidate.get("schedule") {
            None => TILES,
            Some(_) => SCHEDULES,
        };
        sweep.attempt(&tiles, std::slice::from_ref(candidate))?;
    }
    Ok(tuning(&sweep))
}

const TILES: &str = "tiles";
const SCHEDULES: &str = "schedules";

fn tiles(problem: &dyn Tunable, target: Target) -> Result<Stage, TuneError> {
    Ok(Stage {
        name: TILES,
        proposals: problem.space(target).map_err(JobError::from)?,
        share: 0.6,
    })
}

/// Fails where the space is narrowed by what is no choice of it: nothing would be left out.
fn narrowings_are_choices(tiles: &Stage, narrowed: &[Narrowing]) -> Result<(), TuneError> {
    let words = tiles.proposals.iter().flat_map(|one| one.candidate.words());
    let names: BTreeSet<&str> = words.map(|(name, _)| name).chain(["schedule"]).collect();
    match narrowed.iter().find(|one| !names.contains(one.name())) {
        None => Ok(()),
        Some(one) => Err(TuneError::NoChoice {
            name: one.name().to_owned(),
            names: names.into_iter().collect::<Vec<_>>().join(", "),
        }),
    }
}

fn tuning(sweep: &Sweep<'_>) -> Tuning {
    Tuning {
        rows: sweep.rows(),
        best: sweep.best(),
        default: sweep.default_row(),
        left_out: sweep.left_out(),
        planned: sweep.planned().to_vec(),
    }
}

/// The two fastest tiles under every schedule.
fn scheduled(rows: &[Row], schedules: &[String]) -> Vec<Proposal> {
    let mut timed: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            row.status == heist_tune::Status::Right && row.candidate.get("schedule").is_none()
        })
        .collect();
    timed.sort_by(|one, other| Row::by_time(one, other));
    let fastest = timed.iter().take(2);
    fastest
        .flat_map(|row| {
            schedules
                .iter()
                .map(|schedule| row.candidate.clone().with("schedule", schedule))
        })
        .map(|candidate| Proposal {
            candidate,
            judged: Ok(None),
        })
        .collect()
}

/// What kernels are made for on a device.
///
/// # Errors
/// When a real GPU is newer than Heist.
pub fn target(device: &Device) -> Result<Target, JobError> {
    Ok(job::target(device)?)
}
