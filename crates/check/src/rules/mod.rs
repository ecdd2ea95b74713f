//! The rules, by subject.

mod access;
mod barrier;
mod clc;
mod constant;
mod copies;
mod local;
mod reach;
mod shared;
mod tensor;
mod tensor_memory;
mod unset;
mod wgmma;

pub(crate) use constant::constant_size;
pub(crate) use shared::shared_opt_in;

use crate::Context;
use heist_ptx::Diagnostic;

/// Looks at one function and adds what it finds.
type Rule = fn(&Context<'_, '_>, &mut Vec<Diagnostic>);

/// Every rule, in the order in which they run.
pub(crate) const ALL: &[Rule] = &[
    shared::static_size,
    local::size,
    unset::reads,
    access::alignment,
    tensor::local_fragments,
    tensor::cut_to_a_trap,
    tensor::ignored_setmaxnreg,
    tensor_memory::discipline,
    wgmma::discipline,
    copies::cp_async,
    copies::mbarrier_init,
    barrier::divergent,
    clc::requests,
    reach::dead_code,
];
