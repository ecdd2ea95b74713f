//! Tests as text: PTX files that say how they are launched and what must come
//! out, run on the simulator, on the GPU, or on both and compared.
//!
//! The format is in [`directive`]. A file that says nothing about itself is
//! parsed and checked. Nothing is skipped in silence: a case that a device can't
//! run, or must not, is reported by name with the reason.

pub mod case;
pub mod child;
pub mod compare;
pub mod device;
pub mod directive;
pub mod report;
pub mod selftest;
pub mod verdict;

pub use case::{Action, Case, Expect, Findings, Mark, OnGpu, Opaque, Run, TestFile};
pub use child::{ChildDevice, serve};
pub use compare::{Difference, Tolerance, compare, compare_devices};
pub use device::{
    CaseError, Checker, GpuDevice, Losable, NoDevice, Request, SimDevice, TestDevice,
};
pub use directive::{DirectiveError, read_directives};
pub use report::{CaseResult, Counts, SelftestReport};
pub use selftest::{Selftest, find_files};
pub use verdict::Verdict;
