//! A kernel's own body, decoded, and how a check is put around an operation of it.

use crate::access::context::Cx;
use crate::code::Flow;
use crate::decode::address::{Addr, Base};
use crate::decode::trail::{Role, Trail};
use crate::engine::executable::{Instr, Op};
use heist_ptx::Name;
use heist_ptx::analysis::Graph;
use rustc_hash::FxHashMap;

/// A kernel's own body, decoded.
pub(crate) struct Body<'b> {
    pub(crate) ops: &'b mut [Op],
    pub(crate) graph: &'b Graph,
    pub(crate) trails: &'b [Trail],
    /// Registers by their rows.
    pub(crate) names: &'b [(u32, Name)],
}

impl Body<'_> {
    /// Numbers for these registers and for all that are computed from them; what is loaded from memory is
    /// another matter.
    pub(super) fn computed_from(&self, first: impl Iterator<Item = u32>) -> FxHashMap<u32, u32> {
        let mut numbers = FxHashMap::default();
        let follow = |row: u32, numbers: &mut FxHashMap<u32, u32>| {
            let next = numbers.len() as u32;
            numbers.entry(row).or_insert(next);
        };
        first.for_each(|row| follow(row, &mut numbers));
        loop {
            let known = numbers.len();
            for trail in self.trails.iter().filter(|trail| !trail.loads) {
                if trail.reads.iter().any(|row| numbers.contains_key(row)) {
                    let made = trail.writes.iter();
                    made.for_each(|&row| follow(row, &mut numbers));
                }
            }
            if numbers.len() == known {
                return numbers;
            }
        }
    }
}

impl Trail {
    /// Whether its result has a part of each of several registers.
    pub(super) fn packs(&self) -> bool {
        self.role == Role::Packs || self.role == Role::Moves && self.reads.len() > 1
    }

    /// Whether it only computes another register: that is not yet a use of what it reads.
    pub(super) fn only_computes(&self) -> bool {
        self.pure && !self.writes.is_empty()
            || matches!(self.role, Role::Copies | Role::Moves | Role::Adds)
    }
}

/// The register of an address.
pub(super) fn base_row(addr: Addr) -> Option<u32> {
    match addr.base {
        Base::Long(slot) | Base::Word(slot) if !slot.is_constant() && !slot.is_special() => {
            Some(slot.row())
        }
        _ => None,
    }
}

/// Replaces an operation by one that is made of it.
pub(super) fn around(op: &mut Op, make: impl FnOnce(Box<dyn Instr>) -> Box<dyn Instr>) {
    let inner = std::mem::replace(&mut op.instr, Box::new(Nothing));
    op.instr = make(inner);
}

/// Stands in for an operation while it is being wrapped.
struct Nothing;

impl Instr for Nothing {
    fn step(&self, _: &mut Cx<'_>) -> Flow {
        Flow::Next
    }
}
