//! One warp's access to one line of memory: its kind, its scope, its bytes, and what it may
//! conflict with.

use super::clock::{Agent, SEVERAL};
use super::touch::{Crowds, LineTouch};
use crate::lanes::Mask;

/// Bytes in a line.
pub(crate) const LINE: usize = 128;

/// How an access relates to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    /// An ordinary load or store.
    Plain,
    /// A volatile, relaxed, acquire or release access of this scope, of elements of this many bytes.
    Strong(Scope, u8),
    /// An atomic of this scope on this many bytes.
    Atomic(Scope, u8),
    /// The data of a `cp.async`, put down when its thread waited for it.
    Copy,
    /// A write or read by an asynchronous copy.
    Async,
    /// A reduction of an asynchronous copy into global memory: atomic, and over when its group is.
    Reduction,
    /// A write through the generic proxy that completes at an mbarrier: `st.async`, `red.async`,
    /// and `cp.async` with `cp.async.mbarrier.arrive`.
    Delivered,
    /// A read by the tensor cores.
    Product,
}

impl AccessKind {
    /// The scope of an access that synchronises.
    #[inline]
    pub(crate) fn scope(self) -> Option<Scope> {
        match self {
            AccessKind::Strong(scope, _) | AccessKind::Atomic(scope, _) => Some(scope),
            AccessKind::Reduction => Some(Scope::Gpu),
            AccessKind::Plain
            | AccessKind::Copy
            | AccessKind::Async
            | AccessKind::Delivered
            | AccessKind::Product => None,
        }
    }

    /// Whether it is a read-modify-write.
    #[inline]
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, AccessKind::Atomic(..))
    }

    /// Whether it goes through the async proxy.
    #[inline]
    pub(crate) fn by_proxy(self) -> bool {
        matches!(
            self,
            AccessKind::Async | AccessKind::Reduction | AccessKind::Product
        )
    }

    /// Whether both synchronise, are of different sizes, and so are not atomic towards each other
    /// where they overlap. Loads and stores of a part of a word of 32 bits are let pass: that is how
    /// libcu++ makes atomics of 8 and 16 bits.
    #[inline]
    pub(crate) fn differs_in_size(self, other: AccessKind) -> bool {
        use AccessKind::{Atomic, Strong};
        match (self, other) {
            (Atomic(_, a), Atomic(_, b)) => a != b,
            (Strong(_, a), Atomic(_, b) | Strong(_, b)) | (Atomic(_, a), Strong(_, b)) => {
                a != b && a.max(b) > 4
            }
            _ => false,
        }
    }
}

/// Whom a synchronisation reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Block,
    Cluster,
    Gpu,
    System,
}

/// One warp's access to one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    pub(crate) write: bool,
    pub(crate) kind: AccessKind,
    /// The instruction.
    pub(crate) pc: u32,
    /// The bytes of the line that are touched.
    pub(crate) bytes: u128,
    /// Which lane touches cell `i`, the bytes from `first + (i << shift)`;
    /// [`SEVERAL`] for more than one. Only cells with touched bytes count.
    pub(crate) lanes: &'a [u8; 32],
    pub(crate) shift: u8,
    pub(crate) first: u8,
    /// Whether some cell is touched by several lanes.
    pub(crate) shared: bool,
    /// Then the lanes of each cell.
    pub(crate) crowds: Option<&'a Crowds>,
    /// The cells with touched bytes.
    pub(crate) cells: Mask,
    /// The table of [`IN_ORDER`] that `lanes` is, where the whole line is touched.
    pub(crate) order: Option<u8>,
}

impl<'a> Access<'a> {
    /// What an instruction does to the part of its bytes that lies in one line.
    #[inline]
    pub(crate) fn of(part: &LineTouch<'a>, write: bool, kind: AccessKind, pc: u32) -> Access<'a> {
        Access {
            write,
            kind,
            pc,
            bytes: part.bytes,
            lanes: part.lanes,
            shift: part.shift,
            first: part.first,
            shared: part.shared,
            crowds: part.crowds,
            cells: part.cells,
            order: part.order,
        }
    }

    /// The lanes that touch a cell.
    pub(crate) fn crowd(&self, cell: usize) -> Mask {
        match (self.lanes[cell & 31], self.crowds) {
            (SEVERAL, Some(crowds)) => crowds[cell & 31],
            (SEVERAL, None) => Mask::MAX,
            (lane, _) => 1 << (lane & 31),
        }
    }

    /// Whether an earlier access of that kind to the same bytes need not be remembered any more. An
    /// access ordered after a plain write is also ordered after everything before it, or races with
    /// the write. But an access need not be ordered after an atomic to be free of races with it, so
    /// a plain access before an atomic is kept, and so is one of another block (`near`: the same
    /// block), which is in other scopes.
    #[inline]
    pub(crate) fn replaces(&self, kind: AccessKind, near: bool) -> bool {
        self.write && (self.kind.scope().is_none() || self.kind == kind && near)
    }
}

/// A race: two accesses without a happens-before order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The byte of the line.
    pub(crate) byte: u32,
    /// The lane of the access that found it.
    pub(crate) lane: u8,
    /// The earlier access.
    pub(crate) agent: Agent,
    pub(crate) their_clock: u32,
    pub(crate) their_lane: u8,
    pub(crate) their_pc: u32,
    pub(crate) their_write: bool,
    pub(crate) their_kind: AccessKind,
}

/// Whether two agents are in the same block or cluster, for comparing scopes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geography {
    pub(crate) warps_per_block: u32,
    pub(crate) blocks_per_cluster: u32,
    /// Whether the kernel has no means to order one block's accesses before another's.
    pub(crate) isolated: bool,
    /// Whether lanes of a warp may synchronise without the others.
    pub(crate) in_parts: bool,
}

impl Geography {
    #[inline]
    pub(crate) fn block(self, agent: Agent) -> u32 {
        agent / self.warps_per_block
    }

    #[inline]
    pub(crate) fn reaches(self, scope: Scope, a: Agent, b: Agent) -> bool {
        match scope {
            Scope::Block => self.block(a) == self.block(b),
            Scope::Cluster => {
                self.block(a) / self.blocks_per_cluster == self.block(b) / self.blocks_per_cluster
            }
            Scope::Gpu | Scope::System => true,
        }
    }

    /// Whether two strong accesses are ordered by the memory itself.
    #[inline]
    pub(crate) fn morally_strong(self, kinds: [AccessKind; 2], a: Agent, b: Agent) -> bool {
        match kinds.map(AccessKind::scope) {
            [Some(x), Some(y)] => {
                self.reaches(x, a, b)
                    && self.reaches(y, a, b)
                    && !kinds[0].differs_in_size(kinds[1])
            }
            _ => false,
        }
    }
}
