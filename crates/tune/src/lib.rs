//! Autotuning: the fastest way to solve a problem, by trying many.
//!
//! A kernel family declares its search *space*: [`Candidate`]s, each judged by arithmetic ([`Proposal`]): that
//! it can't fit, or how long it should take. A [`Sweep`] tries the promising ones on a [`Bench`], slow ones
//! briefly and close ones in turns, and writes a [`Row`] for every one into a [`Journal`], so that a killed
//! sweep can be resumed. A bench may be a [`Worker`], a process of its own: a hang or a crash affects only its
//! candidate. The answers are kept in a [`Store`].
//!
//! The crate is independent of kernels: it can sweep anything that is described by words.

mod bench;
mod candidate;
mod clock;
mod journal;
mod page;
mod refusals;
mod row;
mod statistics;
mod store;
mod sweep;
mod worker;

pub use bench::{Bench, Facts, Failure, Request, Response, serve};
pub use candidate::{Axis, Candidate, CandidateError, Narrowing, Proposal, Shard, ShardError};
pub use journal::{Journal, JournalError, latest, read};
pub use page::page;
pub use refusals::{Refusals, refusals};
pub use row::{Row, Status, Timing};
pub use statistics::{Estimate, estimate};
pub use store::{Answer, Key, Store, StoreError};
pub use sweep::{Budget, Progress, Stage, Sweep, SweepError};
pub use worker::{Worker, WorkerCommand};
