//! Labels and the scopes they live in.
//!
//! A label is seen in its own scope and in those inside it. Inline assembly
//! repeats the same labels in one scope after another, so a name alone says
//! nothing.

use heist_ptx::Name;
use std::collections::HashMap;

/// A `{ ... }` of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeId(u32);

/// The labels of a function.
#[derive(Default)]
pub(crate) struct Labels<'m> {
    /// The scope around each scope but the outermost.
    parents: Vec<ScopeId>,
    places: HashMap<(ScopeId, &'m str), usize>,
    targets: HashMap<(ScopeId, &'m str), &'m [Name]>,
}

impl<'m> Labels<'m> {
    /// The scope of the function itself.
    pub(crate) const OUTERMOST: ScopeId = ScopeId(0);

    /// A new scope inside `outer`.
    pub(super) fn open(&mut self, outer: ScopeId) -> ScopeId {
        self.parents.push(outer);
        ScopeId(self.parents.len() as u32)
    }

    /// Puts a label before instruction `at`.
    pub(super) fn define(&mut self, scope: ScopeId, name: &'m Name, at: usize) {
        self.places.insert((scope, name), at);
    }

    /// Names a list of branch targets.
    pub(super) fn define_targets(&mut self, scope: ScopeId, name: &'m Name, list: &'m [Name]) {
        self.targets.insert((scope, name), list);
    }

    /// Every place that has a label.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.places.values().copied()
    }

    /// The instruction behind the label that `name` means in `scope`.
    pub(super) fn place(&self, scope: ScopeId, name: &'m str) -> Option<usize> {
        self.outward(scope)
            .find_map(|scope| self.places.get(&(scope, name)).copied())
    }

    /// The list of branch targets that `name` means in `scope`.
    pub(super) fn list(&self, scope: ScopeId, name: &'m str) -> Option<&'m [Name]> {
        self.outward(scope)
            .find_map(|scope| self.targets.get(&(scope, name)).copied())
    }

    fn outward(&self, scope: ScopeId) -> impl Iterator<Item = ScopeId> {
        std::iter::successors(Some(scope), |scope| {
            let above = (scope.0 as usize).checked_sub(1)?;
            self.parents.get(above).copied()
        })
    }
}
