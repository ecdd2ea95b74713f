//! A kernel that can run: its operations, each with what the engine needs to know of it.

use crate::access::context::Cx;
use crate::code::{Code, Flow, Guard, Reach};

/// What an instruction does; one type for each shape of operation.
pub(crate) trait Instr: Send + Sync {
    /// Runs it for the lanes in [`Cx::mask`], of which there is at least one.
    fn step(&self, cx: &mut Cx<'_>) -> Flow;

    /// The instruction that a check was put around.
    fn inner(&self) -> Option<&dyn Instr> {
        None
    }
}

/// An operation with what the engine needs to know about it.
pub(crate) struct Op {
    pub(crate) instr: Box<dyn Instr>,
    pub(crate) guard: Option<Guard>,
    pub(crate) reach: Reach,
    /// Cycles of the issue port.
    pub(crate) issue: u16,
    /// Its demand on the units of its scheduler; zero for dead code.
    pub(crate) demand: crate::state::demand::Demand,
    /// Cycles until its result can be used.
    pub(crate) latency: u16,
    /// Rows of the window whose values it needs and makes; 0 is always ready.
    pub(crate) reads: [u16; 4],
    pub(crate) writes: u16,
    /// The reconvergence point of lanes that diverge here.
    pub(crate) join: u32,
}

/// Everything that a launch of one kernel can run.
pub(crate) struct Executable {
    pub(crate) ops: Vec<Op>,
    pub(crate) code: Code,
}
