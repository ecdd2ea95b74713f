//! What can be wrong with a kernel that type-checks.

use crate::emit::CallSite;
use heist_ptx::arch::{Arch, Feature};
use std::fmt;

/// Why a kernel could not be built: what, with its numbers, and where in the
/// Rust source.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildError {
    /// What is wrong.
    pub problem: Problem,
    /// File, line and column of the Rust code that asked for it.
    pub at: String,
}

/// What is wrong with a kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// More shared memory than a block can have.
    SharedMemory {
        /// What was asked for, in bytes.
        asked: u64,
        /// The most there is.
        limit: u64,
        /// The architecture.
        arch: Arch,
        /// Each array with its bytes, largest first.
        pieces: Vec<(String, u64)>,
    },
    /// A feature that the target lacks.
    Unsupported {
        /// The feature.
        feature: Feature,
        /// The architecture it was built for.
        arch: Arch,
    },
    /// A size that must be a multiple of another and is not.
    DoesNotDivide {
        /// What it is.
        what: String,
        /// The size.
        size: u64,
        /// What it must be a multiple of.
        by: u64,
    },
    /// A number outside its range.
    OutOfRange {
        /// What it is.
        what: String,
        /// The number.
        value: i64,
        /// The smallest allowed.
        low: i64,
        /// The largest allowed.
        high: i64,
    },
    /// Any other problem, as a sentence.
    Other(String),
}

impl BuildError {
    /// An error found by the code at `at`.
    #[track_caller]
    pub fn new(problem: Problem) -> BuildError {
        BuildError::at(problem, std::panic::Location::caller())
    }

    pub(crate) fn at(problem: Problem, place: CallSite) -> BuildError {
        BuildError {
            problem,
            at: place.to_string(),
        }
    }

    pub(crate) fn unsupported(feature: Feature, arch: Arch, place: CallSite) -> BuildError {
        BuildError::at(Problem::Unsupported { feature, arch }, place)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::SharedMemory {
                asked,
                limit,
                arch,
                pieces,
            } => {
                write!(
                    f,
                    "{asked} bytes of shared memory asked for, {} more than the {limit} that a block can have on {arch}",
                    asked - limit
                )?;
                for (index, (name, bytes)) in pieces.iter().enumerate() {
                    let lead = if index == 0 { ": " } else { ", " };
                    write!(f, "{lead}{name} {bytes}")?;
                }
                f.write_str("; use smaller tiles or fewer stages")
            }
            Problem::Unsupported { feature, arch } => write!(
                f,
                "{arch} lacks what this kernel uses: {} needs {}",
                feature.name(),
                feature.support()
            ),
            Problem::DoesNotDivide { what, size, by } => {
                write!(f, "{what} is {size}, which is not a multiple of {by}")
            }
            Problem::OutOfRange {
                what,
                value,
                low,
                high,
            } => write!(f, "{what} is {value}; it must lie between {low} and {high}"),
            Problem::Other(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.problem, self.at)
    }
}

impl std::error::Error for BuildError {}
