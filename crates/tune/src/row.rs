//! The row of a candidate.

use crate::bench::Facts;
use crate::candidate::Candidate;
use crate::statistics::Estimate;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Status {
    /// Its result is right, and it was timed.
    Right,
    /// Its result is right, but after a few samples it was too far behind for more.
    Slow,
    /// It ran, and its result is not right.
    Wrong {
        /// How far it is off.
        why: String,
    },
    /// It can't be built: arithmetic, the builder or the assembler say why.
    Refused {
        /// The reason, with its numbers.
        why: String,
    },
    /// Its process died.
    Crashed {
        /// Of what.
        why: String,
    },
    /// It did not end in its time, and was killed.
    Hung {
        /// The limit that it had.
        seconds: f64,
    },
}

impl Status {
    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Status::Right => "right",
            Status::Slow => "slow",
            Status::Wrong { .. } => "WRONG",
            Status::Refused { .. } => "refused",
            Status::Crashed { .. } => "crashed",
            Status::Hung { .. } => "hung",
        }
    }

    /// Whether it has a right result and a time.
    pub fn is_timed(&self) -> bool {
        matches!(self, Status::Right | Status::Slow)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Status::Right | Status::Slow => Ok(()),
            Status::Wrong { why } | Status::Refused { why } | Status::Crashed { why } => {
                write!(f, ": {why}")
            }
            Status::Hung { seconds } => write!(f, ": not done after {seconds} s"),
        }
    }
}

/// A time, and in which stage of the sweep it was taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The time.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// The stage. Times of one stage were taken in turns and can be compared.
    pub stage: String,
}

/// A candidate's row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was tried.
    pub candidate: Candidate,
    /// Whether it is the default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default: bool,
    /// What became of it.
    #[serde(flatten)]
    pub status: Status,
    /// How long it should have taken, by the family's model, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_us: Option<f64>,
    /// Its time, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// What is known of the kernel, where it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Facts>,
}

impl Row {
    /// The faster first. Of two that take the same time the one whose words come first: the order in which they
    /// were tried, by how many machines, does not matter.
    pub fn by_time(one: &Row, other: &Row) -> Ordering {
        let time = |row: &Row| row.median_ns().unwrap_or(f64::INFINITY);
        let times = time(one).total_cmp(&time(other));
        times.then_with(|| one.candidate.cmp(&other.candidate))
    }

    /// Of one that can't be had.
    pub(crate) fn refused(candidate: Candidate, why: String) -> Row {
        Row {
            candidate,
            default: false,
            status: Status::Refused { why },
            model_us: None,
            timing: None,
            facts: None,
        }
    }

    /// The median, in nanoseconds.
    pub fn median_ns(&self) -> Option<f64> {
        self.timing.as_ref().map(|timing| timing.estimate.median_ns)
    }
}
