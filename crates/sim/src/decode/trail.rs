//! The facts about an operation that the value-following checks need.

use super::address::Addr;
use crate::code::{Gate, Pred, PredSrc, Selects};
use crate::special::Axis;
use crate::state::follow::ClusterRegister;
use crate::state::memory::window::Window;

/// What a check needs to know of an operation, in rows of the kernel's window.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// Registers that it reads, in the order of its operands.
    pub(crate) reads: Vec<u32>,
    pub(crate) writes: Vec<u32>,
    /// Whether its results come from memory.
    pub(crate) loads: bool,
    /// Whether it has no effect besides its results.
    pub(crate) pure: bool,
    /// Whether it may be run with other bytes, to see which of them its results are made of.
    pub(crate) derives: bool,
    /// Whether it copies memory, with all bytes that are not defined.
    pub(crate) copies: bool,
    /// Whether a lane's results are made of all lanes' registers.
    pub(crate) mixes: bool,
    /// Whether its results are predicates, and it has no other effect.
    pub(crate) decided: bool,
    /// Whether it runs under a guard, so that some lanes may not take part.
    pub(crate) guarded: bool,
    pub(crate) role: Role,
    /// Special registers of the cluster that it reads.
    pub(crate) place: Option<ClusterRegister>,
    /// The coordinates of a granted cluster that it writes: axis and row.
    pub(crate) first: Vec<(Axis, u32)>,
    /// How many of its registers are the value that is passed on, if it is a shuffle: none of a constant.
    pub(crate) shuffles: Option<usize>,
    /// What decides which of two registers its result is, if it is a `selp`.
    pub(crate) selects: Option<Selects>,
    /// Predicates that it reads and writes.
    pub(crate) asks: Vec<PredSrc>,
    pub(crate) decides: Vec<Pred>,
    /// Whether a predicate may decide its result alone, if it is an `and` or an `or` with one.
    pub(crate) gate: Option<Gate>,
    /// Registers that it reads, where it follows them by itself.
    pub(crate) own_reads: Vec<u32>,
    /// The bytes of each register that it loads, or stores, if it is a load or a store.
    pub(crate) element: u32,
    /// The registers that it stores, in the order of memory; none for a constant.
    pub(crate) stored: Vec<Option<u32>>,
    /// Where it goes, if it is a strong load or store; none for an atomic.
    pub(crate) strong: Option<Strong>,
}

/// A strong load or store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strong {
    pub(crate) stores: bool,
    pub(crate) window: Option<Window>,
    pub(crate) addr: Addr,
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
    /// Its result has a part of each register that it reads.
    Packs,
    /// Adds two 32-bit numbers.
    Adds,
    /// A store to an address that may lie in global memory.
    Stores(Addr),
}
