//! Checks that follow values through registers.
//!
//! Most instructions of most kernels need no such check, so nothing is done in the
//! engine. When a kernel has been decoded, [`wrap`] finds the instructions that matter
//! and puts a check around each; the others run as they are. Only the kernel's own
//! body is followed, not the functions that it calls.

pub(crate) mod lineage;
pub(crate) mod unset;

use crate::access::context::Cx;
use crate::code::{Flow, Instr, Op};
use crate::decode::Leaves;
use crate::decode::operand::Addr;
use crate::special::Axis;
use heist_ptx::Name;

/// What a check needs to know of an operation, in rows of the kernel's window.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// Registers that it reads, in the order of its operands.
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    /// Whether its results come from memory.
    pub(crate) loads: bool,
    /// Whether it does nothing but make results of what it reads.
    pub(crate) pure: bool,
    /// Whether it runs under a guard, so that some lanes may not take part.
    pub(crate) guarded: bool,
    pub(crate) role: Role,
    /// Special registers of the cluster that it reads.
    pub(crate) place: Option<Place>,
    /// The coordinates of a granted cluster that it writes: axis and row.
    pub(crate) first: Vec<(Axis, u32)>,
}

/// What an operation does with the values that it reads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Role {
    /// Something that makes new values.
    #[default]
    Computes,
    /// Its result is the first register that it reads, perhaps of another lane or in
    /// another width.
    Copies,
    /// Its result is its only operand.
    Moves,
    /// Adds two 32-bit numbers.
    Adds,
    /// A store to an address that may lie in global memory.
    Stores(Addr),
}

/// A special register that says where in its cluster a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// `%cluster_ctaid`.
    Offset(Axis),
    /// `%cluster_ctarank`.
    Rank,
}

/// A kernel's own body, decoded.
pub(crate) struct Body<'b> {
    pub(crate) ops: &'b mut [Op],
    pub(crate) leaves: &'b [Leaves],
    pub(crate) trails: &'b [Trail],
    /// The place of each label.
    pub(crate) labels: &'b [u32],
    /// Rows of the window.
    pub(crate) rows: u32,
    /// Registers by their rows.
    pub(crate) names: &'b [(u32, Name)],
}

/// What a warp must keep for the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Registers that may hold what comes of one that was read before it was set, by name.
    pub(crate) unset: Vec<Name>,
    /// Registers that may hold something of a granted cluster's place.
    pub(crate) lineage: usize,
}

/// Puts checks around the operations of a body that need them.
pub(crate) fn wrap(mut body: Body<'_>) -> Watched {
    Watched {
        unset: unset::wrap(&mut body),
        lineage: lineage::wrap(&mut body),
    }
}

/// Replaces an operation by one that is made of it.
fn around(op: &mut Op, make: impl FnOnce(Box<dyn Instr>) -> Box<dyn Instr>) {
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
