//! What names stand for: registers and variables.

use crate::code::{Pred, Slot};
use heist_ptx::ScalarType;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a name is declared as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Declared {
    /// A register or a family of them, each of so many lanes. They have no rows until
    /// they are mentioned: compilers declare far more than they use.
    Registers {
        id: u32,
        ty: ScalarType,
        lanes: u32,
    },
    Memory(Memory),
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Named {
    Register(Register),
    Memory(Memory),
}

/// A register, or a vector of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Register {
    pub(crate) ty: ScalarType,
    /// The first row, or the first predicate.
    pub(crate) at: u32,
    pub(crate) lanes: u32,
}

impl Register {
    /// Rows that one lane of it takes.
    pub(crate) fn rows(self) -> u32 {
        rows_of(self.ty)
    }

    /// Each part of a vector as a register of its own, and where it lies in memory behind
    /// the first; the whole of a register that is no vector.
    pub(crate) fn parts(self) -> impl Iterator<Item = (Register, u32)> {
        (0..self.lanes).map(move |index| {
            let part = Register {
                at: self.at + index * self.rows(),
                lanes: 1,
                ..self
            };
            (part, index * self.ty.bytes())
        })
    }

    /// The slot of part `index`.
    pub(crate) fn slot(self, index: u32) -> Slot {
        Slot::register(self.at + index * self.rows())
    }

    pub(crate) fn pred(self) -> Pred {
        Pred(self.at)
    }
}

/// Rows that a register of this type takes.
pub(crate) fn rows_of(ty: ScalarType) -> u32 {
    match ty.bits() {
        128 => 4,
        64 => 2,
        _ => 1,
    }
}

/// A variable: where it lies in its space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Memory {
    pub(crate) place: Storage,
    /// Its size; 0 where the declaration leaves it open.
    pub(crate) size: u64,
}

/// Where a variable lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Storage {
    /// At this address of global memory.
    Global(u64),
    /// At this offset of the constant variables.
    Const(u64),
    /// At this offset of the block's shared memory.
    Shared(u32),
    /// At this offset of the dynamic shared memory.
    Dynamic(u64),
    /// At this offset of the function's frame; kernels' `.local`, device functions' `.param`.
    Frame(u32),
    /// At this offset of the kernel's parameters.
    Param(u32),
}

/// The functions that an indirect call may call: their numbers, by their addresses.
pub(crate) type Targets = Arc<FxHashMap<u64, u32>>;

/// What the functions of an indirect call are known by.
#[derive(PartialEq, Eq, Hash)]
pub(crate) enum TargetsKey {
    /// The list at this address.
    List(usize),
    /// Functions with so many parameters and results.
    Signature { params: usize, returns: usize },
}
