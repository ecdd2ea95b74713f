//! The operands of an operation, and its workspace.

use super::memory::Memory;
use heist_launch::{ElementType, Role};

/// The most operands that an operation has.
pub const SLOTS: usize = 18;

impl Operand {
    /// A tensor of `count` elements, which begins where vector loads and tensor
    /// maps can: at a multiple of 16 bytes.
    pub(super) fn tensor(
        name: &'static str,
        role: Role,
        element: ElementType,
        count: u64,
        optional: bool,
    ) -> Operand {
        Operand {
            name,
            role,
            element,
            bytes: count * element.bytes() as u64,
            alignment: 16,
            optional,
        }
    }

    /// Numbers that are read or written one by one.
    pub(super) fn list(self) -> Operand {
        Operand {
            alignment: self.element.bytes() as u64,
            ..self
        }
    }
}

/// What an operation works on.
pub trait Operands {
    /// Their names, in the order of [`Operands::memory`].
    const NAMES: &'static [&'static str];
    /// The memory of each; `None` for one that is not given.
    fn memory(&self) -> [Option<Memory<'_>>; SLOTS];
}

/// Operands by their place in a plan's list, for callers who know it as data: a
/// binding to another language, say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slots<'m>(pub [Option<Memory<'m>>; SLOTS]);

impl Operands for Slots<'_> {
    const NAMES: &'static [&'static str] = &[];

    fn memory(&self) -> [Option<Memory<'_>>; SLOTS] {
        self.0
    }
}

/// What a plan asks of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its name.
    pub name: &'static str,
    /// Whether it is read, written or both.
    pub role: Role,
    /// What it is made of.
    pub element: ElementType,
    /// The bytes that it must have at least, from its address on.
    pub bytes: u64,
    /// Its address must be a multiple of this.
    pub alignment: u64,
    /// Whether it may be omitted: the kernel does not use it, or writes it to the workspace
    /// instead.
    pub optional: bool,
}

/// The bytes that an operation needs besides its operands.
///
/// Launches that may overlap need memory of their own: in one stream all may share
/// it, two streams have two, and a captured graph has its own for as long as it
/// lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workspace {
    /// Counters that blocks draw their tiles from: zero before the first launch. A
    /// launch leaves them zero, so plans may take turns with the same.
    pub counters: u64,
    /// Scratch memory within a launch; its contents before do not matter.
    pub scratch: u64,
}

/// Memory for a [`Workspace`], at multiples of 256 bytes; of a simulated GPU none is
/// needed.
#[derive(Clone, Copy, Debug)]
pub struct WorkspaceMemory<'m> {
    /// As large as [`Workspace::counters`], and zero.
    pub counters: Memory<'m>,
    /// As large as [`Workspace::scratch`].
    pub scratch: Memory<'m>,
}

impl WorkspaceMemory<'_> {
    /// None at all, for a plan that needs none.
    pub const NONE: WorkspaceMemory<'static> = WorkspaceMemory {
        counters: Memory::NONE,
        scratch: Memory::NONE,
    };
}
