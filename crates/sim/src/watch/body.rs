//! A kernel's own body, decoded, and how a check is put around an operation of it.

use crate::access::context::Cx;
use crate::code::Flow;
use crate::decode::trail::Trail;
use crate::engine::executable::{Instr, Op};
use heist_ptx::Name;
use heist_ptx::analysis::Graph;

/// A kernel's own body, decoded.
pub(crate) struct Body<'b> {
    pub(crate) ops: &'b mut [Op],
    pub(crate) graph: &'b Graph,
    pub(crate) trails: &'b [Trail],
    /// Registers by their rows.
    pub(crate) names: &'b [(u32, Name)],
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
