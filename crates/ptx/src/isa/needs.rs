//! Which features of the target an instruction needs, by its spelling.
//!
//! An instruction that every target of the table has needs none. One that needs several features
//! lists them all, the most specific first.

use super::row::Family;
use crate::arch::Feature;
use crate::instruction::{Instruction, Operand};

/// How a row says what an instruction needs.
pub(super) type Need = fn(&Asking<'_>, &mut Needs);

/// An instruction whose needs are asked for.
pub(super) struct Asking<'i> {
    pub(super) instruction: &'i Instruction,
    is_pred: &'i dyn Fn(&str) -> bool,
}

impl<'i> Asking<'i> {
    pub(super) fn has(&self, modifier: &str) -> bool {
        self.instruction.opcode.has(modifier)
    }

    /// Whether a modifier satisfies `test`.
    pub(super) fn any(&self, test: impl Fn(&str) -> bool) -> bool {
        self.modifiers().any(test)
    }

    pub(super) fn modifiers(&self) -> impl DoubleEndedIterator<Item = &'i str> {
        self.instruction.opcode.modifiers()
    }

    /// Whether operand `at` is a predicate.
    pub(super) fn is_predicate(&self, at: usize) -> bool {
        match self.instruction.operands.get(at) {
            Some(Operand::Name(name)) => (self.is_pred)(name),
            Some(Operand::Not(_)) => true,
            _ => false,
        }
    }
}

/// The features found so far, each once.
pub(super) struct Needs(Vec<Feature>);

impl Needs {
    pub(super) fn add(&mut self, feature: Feature) {
        if !self.0.contains(&feature) {
            self.0.push(feature);
        }
    }

    pub(super) fn when(&mut self, condition: bool, feature: Feature) {
        if condition {
            self.add(feature);
        }
    }
}

/// What `instruction` needs of its target and of the file's version.
///
/// ```
/// use heist_ptx::arch::Feature;
/// use heist_ptx::isa::features_of;
/// use heist_ptx::Instruction;
/// let wait = Instruction::new("mbarrier.try_wait.parity.shared::cta.b64", vec![]);
/// assert!(features_of(&wait).contains(&Feature::MbarrierTryWait));
/// assert!(features_of(&Instruction::new("add.s32", vec![])).is_empty());
/// ```
pub fn features_of(instruction: &Instruction) -> Vec<Feature> {
    needs_of(instruction, &|_| false)
}

/// [`features_of`], for someone who knows which registers are predicates.
pub(crate) fn needs_of(instruction: &Instruction, is_pred: &dyn Fn(&str) -> bool) -> Vec<Feature> {
    let asking = Asking {
        instruction,
        is_pred,
    };
    let mut needs = Needs(Vec::new());
    if let Some(row) = instruction.opcode.row() {
        (row.needs)(&asking, &mut needs);
        // Copies, barriers and mbarriers have these modifiers from the start.
        if !matches!(
            row.family,
            Family::Copy | Family::Barrier | Family::Mbarrier
        ) {
            clusters(&asking, &mut needs);
        }
    }
    needs.0
}

/// What an access to a peer's shared memory, or of cluster scope, needs.
fn clusters(asking: &Asking<'_>, needs: &mut Needs) {
    needs.when(asking.has("shared::cluster"), Feature::ClusterShared);
    needs.when(asking.has("cluster"), Feature::ClusterScope);
    needs.when(asking.has("shared::cta"), Feature::SharedCta);
}
