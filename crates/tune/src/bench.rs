//! Building and timing candidates: a [`Bench`] in this process, or in a worker process behind a
//! line protocol ([`serve`] is the worker's side).

use crate::candidate::Candidate;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};

/// What is known of a candidate that was built and gave a right result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Threads of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Registers of a thread, where an assembler said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Bytes of shared memory of a block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u32>,
    /// Bytes of local memory of a thread: registers that were spilled, and arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<u32>,
    /// Blocks that fit on a multiprocessor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<u32>,
    /// Blocks of the launch over those that run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waves: Option<f64>,
    /// The relative norm of the difference from the reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// The reference: `f64`, or `first` for the first right result.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub against: String,
}

/// Why a candidate was not solved or timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "failure", rename_all = "lowercase")]
pub enum Failure {
    /// It can't be built.
    Refused {
        /// Why.
        why: String,
    },
    /// It ran, and its result is not right.
    Wrong {
        /// How far it is off.
        why: String,
    },
    /// A fault on the GPU, or its process died.
    Crashed {
        /// Of what.
        why: String,
    },
    /// It did not end in its time.
    Hung {
        /// The limit that it had.
        seconds: f64,
    },
}

/// What builds candidates, checks their results and takes their times.
pub trait Bench {
    /// Builds a candidate and lets it solve the problem once.
    ///
    /// # Errors
    /// Why it is not to be timed.
    fn solve(&mut self, candidate: &Candidate) -> Result<Facts, Failure>;

    /// Times a candidate that was solved, in nanoseconds.
    ///
    /// # Errors
    /// What went wrong.
    fn sample(&mut self, candidate: &Candidate, count: u32) -> Result<Vec<f64>, Failure>;

    /// Whether every sample is the same: one is enough then.
    fn is_exact(&self) -> bool {
        false
    }
}

/// A question to a bench in another process, one a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Request {
    /// [`Bench::solve`].
    Solve {
        /// What.
        candidate: Candidate,
    },
    /// [`Bench::sample`].
    Sample {
        /// What.
        candidate: Candidate,
        /// How often.
        count: u32,
    },
}

/// Its answer, one a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Response {
    /// It stands, and waits for questions.
    Ready {
        /// [`Bench::is_exact`].
        exact: bool,
    },
    /// A right result.
    Solved(Facts),
    /// Times, in nanoseconds.
    Sampled {
        /// Each of them.
        ns: Vec<f64>,
    },
    /// Neither.
    Failed(Failure),
}

/// The other side of a [`Worker`](crate::Worker): answers every line of `questions` with one of `answers`,
/// until there are no more. A failure that broke the device ends the process, after it was
/// reported: the next candidate gets a fresh process.
///
/// # Errors
/// When a line can't be read or written.
pub fn serve(
    bench: &mut dyn Bench,
    questions: impl BufRead,
    mut answers: impl Write,
) -> std::io::Result<()> {
    let mut say = |response: &Response| {
        let mut line = serde_json::to_string(response)?;
        line.push('\n');
        answers.write_all(line.as_bytes())?;
        answers.flush()
    };
    say(&Response::Ready {
        exact: bench.is_exact(),
    })?;
    for line in questions.lines() {
        let line = line?;
        let response = match serde_json::from_str(&line) {
            Ok(Request::Solve { candidate }) => bench
                .solve(&candidate)
                .map_or_else(Response::Failed, Response::Solved),
            Ok(Request::Sample { candidate, count }) => match bench.sample(&candidate, count) {
                Ok(ns) => Response::Sampled { ns },
                Err(failure) => Response::Failed(failure),
            },
            Err(error) => Response::Failed(Failure::Refused {
                why: format!("a question that can't be read: {error}"),
            }),
        };
        say(&response)?;
        if matches!(response, Response::Failed(Failure::Crashed { .. })) {
            break;
        }
    }
    Ok(())
}
