//! Shared by the search spaces of all families: candidates read as numbers, and schedules.

use crate::error::KernelError;
use crate::family::Target;
use crate::plan::LaunchPlan;
use heist_sched::{AnyPolicy, Schedule};
use heist_tune::{Axis, Candidate};
use std::str::FromStr;

/// A problem whose kernels the tuner chooses among.
pub trait Tuned {
    /// Its kernel in the catalogue.
    const KERNEL: &'static str;
    /// The problem in words, as the catalogue takes them: an answer of the tuner is filed under
    /// them. `None` for one that no words describe.
    fn words(&self) -> Option<String>;
    /// The launches of a candidate of its space. A word `schedule` in it is the schedule; without
    /// words it is the kernel that suits best.
    ///
    /// # Errors
    /// Why there is no such kernel, for this problem on this device.
    fn tuned(&self, candidate: &Candidate, target: Target) -> Result<LaunchPlan, KernelError>;
}

/// Orders that are tried.
const ORDERS: [&str; 5] = [
    "linear",
    "grouped(4)",
    "grouped(8)",
    "grouped(16)",
    "hilbert",
];

/// Schedules that are tried on a device: every source, early and late, greedy and under
/// `policy`, in every order.
pub fn schedules(target: Target, policy: &AnyPolicy) -> Vec<String> {
    let schedules = Schedule::candidates(target.arch, policy).into_iter();
    // The text of a schedule can't name the ticket grid.
    let plain = schedules.filter(|schedule| schedule.grid.is_none());
    plain
        .flat_map(|schedule| ORDERS.map(|order| in_order(&schedule, order)))
        .collect()
}

fn in_order(schedule: &Schedule, order: &str) -> String {
    match order {
        "linear" => schedule.to_string(),
        _ => format!("{schedule} {order}"),
    }
}

/// The schedule that a candidate names.
pub(crate) fn schedule(candidate: &Candidate) -> Result<Option<Schedule>, KernelError> {
    let named = candidate.get("schedule").map(str::parse::<Schedule>);
    named
        .transpose()
        .map_err(|error| KernelError::unfit(error.to_string()))
}

/// Fails where a candidate makes a choice that `what` does not have: nobody would look at it, and
/// another kernel than the one that was asked for would run. A schedule may always be there.
pub(crate) fn only<'n>(
    candidate: &Candidate,
    what: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<(), KernelError> {
    let names: Vec<&str> = names.into_iter().chain(["schedule"]).collect();
    match candidate.words().find(|(name, _)| !names.contains(name)) {
        None => Ok(()),
        Some((name, value)) => Err(KernelError::unfit(format!(
            "`{name}={value}` of the candidate `{candidate}` is no choice: {what} has {}",
            names.join(", ")
        ))),
    }
}

/// A choice of a candidate, read as a `T`.
pub(crate) fn choice<T: FromStr>(candidate: &Candidate, name: &str) -> Result<T, KernelError> {
    let text = candidate.get(name).unwrap_or_default();
    text.parse()
        .map_err(|_| KernelError::unfit(format!("a candidate with {name}=`{text}`: {candidate}")))
}

/// The same, or a value where the candidate does not say.
pub(crate) fn choice_or<T: FromStr>(
    candidate: &Candidate,
    name: &str,
    otherwise: T,
) -> Result<T, KernelError> {
    match candidate.get(name) {
        Some(_) => choice(candidate, name),
        None => Ok(otherwise),
    }
}

/// Why so much shared memory does not fit, with the numbers.
pub(crate) fn too_much_shared(bytes: u64, room: u64, target: Target) -> Option<String> {
    (bytes > room).then(|| {
        format!(
            "{bytes} bytes of shared memory a block, and {} has {room} for it",
            target.arch
        )
    })
}

/// The names of some choices.
pub(crate) fn names_of(axes: &[Axis]) -> impl Iterator<Item = &'static str> {
    axes.iter().map(|axis| axis.name)
}
