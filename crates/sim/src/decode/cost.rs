//! What an operation costs, and how control leaves it.

use heist_ptx::Diagnostic;

/// A result that says what is wrong with the PTX.
pub(crate) type Decoded<T> = Result<T, Box<Diagnostic>>;

/// How control leaves an operation, for the flow graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// To the next one.
    On,
    /// To a label, or on as well if guarded.
    To(u32),
    /// To one of a list of labels, or on as well if guarded.
    Table(u32),
    /// Nowhere: exit, return, trap.
    Ends,
}

/// Cycles of the issue port, and cycles until the result is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) issue: u16,
    pub(crate) latency: u16,
}

impl Cost {
    /// Integer and single-precision arithmetic.
    pub(crate) const ALU: Cost = Cost::new(1, 4);
    /// Multiplications of 64 bits and other sequences of a few instructions.
    pub(crate) const WIDE: Cost = Cost::new(4, 12);
    /// Double precision.
    pub(crate) const DOUBLE: Cost = Cost::new(2, 8);
    /// The special function unit.
    pub(crate) const SPECIAL: Cost = Cost::new(4, 18);
    /// Division and its kind: a call of a routine.
    pub(crate) const ROUTINE: Cost = Cost::new(20, 60);
    /// Shared memory.
    pub(crate) const SHARED: Cost = Cost::new(2, 24);
    /// Global memory.
    pub(crate) const GLOBAL: Cost = Cost::new(4, 500);
    /// An atomic in global memory.
    pub(crate) const ATOMIC: Cost = Cost::new(4, 600);
    /// Constants and parameters.
    pub(crate) const CONSTANT: Cost = Cost::new(1, 8);
    /// Branches and barriers.
    pub(crate) const CONTROL: Cost = Cost::new(1, 0);

    pub(crate) const fn new(issue: u16, latency: u16) -> Cost {
        Cost { issue, latency }
    }
}
