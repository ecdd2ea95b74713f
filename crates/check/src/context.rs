//! The input of a rule: one function with its analyses.

use crate::facts::Facts;
use crate::uniform::Uniformity;
use heist_ptx::analysis::{Flow, Op};
use heist_ptx::arch::Arch;
use heist_ptx::{Function, FunctionDirective};

/// All that a rule may look at.
pub(crate) struct Context<'a, 'm> {
    pub(crate) flow: &'a Flow<'m>,
    pub(crate) facts: &'a Facts,
    pub(crate) uniformity: &'a Uniformity,
    /// The architecture, if it is one we know.
    pub(crate) arch: Option<Arch>,
}

impl<'m> Context<'_, 'm> {
    pub(crate) fn function(&self) -> &'m Function {
        self.flow.function
    }

    /// The numbers of a directive such as `.reqntid`.
    pub(crate) fn directive(&self, wanted: &str) -> Option<&'m [u64]> {
        self.function()
            .directives
            .iter()
            .find_map(|directive| match directive {
                FunctionDirective::Numbers { name, values, .. } if name == wanted => {
                    Some(values.as_slice())
                }
                _ => None,
            })
    }

    /// The numbers of the reachable instructions for which `wanted` holds.
    pub(crate) fn all(&self, wanted: impl Fn(&Op<'m>) -> bool) -> Vec<usize> {
        self.flow
            .reachable_ops()
            .filter(|(_, op)| wanted(op))
            .map(|(at, _)| at)
            .collect()
    }
}
