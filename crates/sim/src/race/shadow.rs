//! What the race detector remembers of memory.
//!
//! Memory is watched in lines of 128 bytes. A line keeps a short list of
//! [`Trace`]s, one for each warp, epoch and kind of access: which bytes were
//! touched, by which lane, and by which instruction. A new access is held
//! against the traces that conflict with it; the check is a comparison of two
//! numbers for a trace whose warp has synchronised with this one, and byte by
//! byte only where it has not. Neighbouring bytes never race.

use super::clock::{Agent, SEVERAL, WarpClock};
use crate::lanes::Mask;

/// Bytes in a line.
pub(crate) const LINE: usize = 128;
/// Traces that a line keeps before the oldest make room.
const MOST_TRACES: usize = 40;

/// How an access relates to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An ordinary load or store.
    Plain,
    /// A volatile, relaxed, acquire or release access of this scope.
    Strong(Scope),
    /// An atomic of this scope on this many bytes.
    Atomic(Scope, u8),
    /// The data of a `cp.async`, put down when its thread waited for it.
    Copy,
    /// A write or read by an asynchronous copy.
    Async,
}

impl Kind {
    /// The scope of an access that synchronises.
    pub(crate) fn scope(self) -> Option<Scope> {
        match self {
            Kind::Strong(scope) | Kind::Atomic(scope, _) => Some(scope),
            Kind::Plain | Kind::Copy | Kind::Async => None,
        }
    }

    /// Whether both are atomics, of different sizes: then they are not atomic towards each other.
    pub(crate) fn differs_in_size(self, other: Kind) -> bool {
        matches!((self, other), (Kind::Atomic(_, a), Kind::Atomic(_, b)) if a != b)
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
    pub(crate) kind: Kind,
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
}

/// What a line remembers.
#[derive(Clone, Debug)]
struct Trace {
    agent: Agent,
    clock: u32,
    write: bool,
    kind: Kind,
    shift: u8,
    first: u8,
    bytes: u128,
    lanes: [u8; 32],
    /// The instruction, and the one of each cell where they differ.
    pc: u32,
    pcs: Option<Box<[u32; 32]>>,
}

impl Trace {
    fn pc_of(&self, cell: usize) -> u32 {
        self.pcs.as_ref().map_or(self.pc, |pcs| pcs[cell & 31])
    }

    fn cell(&self, byte: u32) -> usize {
        ((byte - u32::from(self.first)) >> self.shift) as usize & 31
    }
}

/// One cell of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) byte: u32,
    pub(crate) agent: Agent,
    pub(crate) clock: u32,
    pub(crate) lane: u8,
    pub(crate) pc: u32,
    pub(crate) write: bool,
    pub(crate) kind: Kind,
}

/// Two accesses that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The byte of the line.
    pub(crate) byte: u32,
    /// The lane of the access that found it.
    pub(crate) lane: u8,
    /// The earlier access.
    pub(crate) agent: Agent,
    pub(crate) their_lane: u8,
    pub(crate) their_pc: u32,
    pub(crate) their_write: bool,
    pub(crate) their_kind: Kind,
}

/// Whether two agents are in the same block or cluster: what a scope is held against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geography {
    pub(crate) warps_per_block: u32,
    pub(crate) blocks_per_cluster: u32,
    /// Whether the kernel has no means to order one block's accesses before another's.
    pub(crate) isolated: bool,
}

impl Geography {
    pub(crate) fn block(self, agent: Agent) -> u32 {
        agent / self.warps_per_block
    }

    fn reaches(self, scope: Scope, a: Agent, b: Agent) -> bool {
        match scope {
            Scope::Block => self.block(a) == self.block(b),
            Scope::Cluster => {
                self.block(a) / self.blocks_per_cluster == self.block(b) / self.blocks_per_cluster
            }
            Scope::Gpu | Scope::System => true,
        }
    }

    /// Whether two strong accesses are ordered by the memory itself.
    fn morally_strong(self, a: (Kind, Agent), b: (Kind, Agent)) -> bool {
        match (a.0.scope(), b.0.scope()) {
            (Some(x), Some(y)) => {
                self.reaches(x, a.1, b.1) && self.reaches(y, a.1, b.1) && !a.0.differs_in_size(b.0)
            }
            _ => false,
        }
    }
}

/// One line's memory of its accesses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    traces: Vec<Trace>,
    /// Bytes that two blocks have read and nobody has written, where blocks can't
    /// be ordered: whoever writes them races with one of the two, so that later
    /// readers need not be remembered.
    crowded: u128,
}

impl Line {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.traces.clear();
        self.crowded = 0;
    }

    /// Records an access and returns the first conflict that it has.
    pub(crate) fn access(
        &mut self,
        access: &Access<'_>,
        clock: &WarpClock,
        geography: Geography,
        floor: &Floor,
    ) -> Option<Conflict> {
        let (agent, now) = (clock.agent, clock.now);
        if access.write {
            self.crowded &= !access.bytes;
        } else if access.bytes & !self.crowded == 0 {
            return None;
        }
        let mut conflict = None;
        let mut own = usize::MAX;
        let mut dead = false;
        for (at, trace) in self.traces.iter_mut().enumerate() {
            let same = trace.agent == agent
                && trace.clock == now
                && trace.write == access.write
                && trace.kind == access.kind
                && trace.shift == access.shift
                && trace.first == access.first;
            if same {
                own = at;
            }
            if !(trace.write || access.write) {
                continue;
            }
            if clock.knows_all(trace.agent, trace.clock) {
                if access.write {
                    // Whoever comes after this write comes after that access too.
                    trace.bytes &= !access.bytes;
                    dead |= trace.bytes == 0;
                }
                continue;
            }
            let overlap = trace.bytes & access.bytes;
            if overlap == 0
                || geography.morally_strong((trace.kind, trace.agent), (access.kind, agent))
            {
                continue;
            }
            // Every lane where it was before: the usual case within a warp.
            let in_place = trace.agent == agent
                && trace.kind != Kind::Async
                && trace.shift == access.shift
                && trace.first == access.first
                && trace.lanes == *access.lanes
                && !access.shared;
            if conflict.is_none() && !in_place {
                conflict = find_conflict(trace, access, overlap, clock);
            }
            if access.write && !same {
                trace.bytes &= !access.bytes;
                dead |= trace.bytes == 0;
            }
        }
        if own == usize::MAX {
            if dead {
                self.traces.retain(|trace| trace.bytes != 0);
            }
            if geography.isolated && !access.write {
                self.crowded |= access.bytes & self.read_elsewhere(geography, agent);
            }
            self.push(access, agent, now, floor);
        } else {
            self.traces[own].merge(access);
            if dead {
                self.traces.retain(|trace| trace.bytes != 0);
            }
        }
        conflict
    }

    /// Bytes that another block has read and nobody has written.
    fn read_elsewhere(&self, geography: Geography, agent: Agent) -> u128 {
        let (mut read, mut written) = (0, 0);
        for trace in &self.traces {
            if trace.write {
                written |= trace.bytes;
            } else if geography.block(trace.agent) != geography.block(agent) {
                read |= trace.bytes;
            }
        }
        read & !written
    }

    /// Calls `f` for every cell of every trace that has one of `bytes`.
    pub(crate) fn each(&self, bytes: u128, mut f: impl FnMut(Seen)) {
        for trace in &self.traces {
            let mut cells = cell_mask(trace.bytes & bytes, trace.shift, trace.first);
            while cells != 0 {
                let cell = cells.trailing_zeros();
                cells &= cells - 1;
                f(Seen {
                    byte: u32::from(trace.first) + (cell << trace.shift),
                    agent: trace.agent,
                    clock: trace.clock,
                    lane: trace.lanes[cell as usize],
                    pc: trace.pc_of(cell as usize),
                    write: trace.write,
                    kind: trace.kind,
                });
            }
        }
    }

    /// Forgets what was known of `bytes`, and notes that an asynchronous operation
    /// wrote them.
    pub(crate) fn overwrite(&mut self, bytes: u128, agent: Agent, clock: u32, pc: u32) {
        for trace in &mut self.traces {
            trace.bytes &= !bytes;
        }
        self.traces.retain(|trace| trace.bytes != 0);
        self.crowded &= !bytes;
        self.traces.push(Trace {
            agent,
            clock,
            write: true,
            kind: Kind::Async,
            shift: 2,
            first: 0,
            bytes,
            lanes: [SEVERAL; 32],
            pc,
            pcs: None,
        });
    }

    fn push(&mut self, access: &Access<'_>, agent: Agent, now: u32, floor: &Floor) {
        if self.traces.len() >= 4 {
            self.traces
                .retain(|trace| !floor.is_below(trace.agent, trace.clock));
        }
        if self.traces.len() >= MOST_TRACES {
            self.traces.remove(0);
        }
        if self.traces.capacity() == 0 {
            // Most lines of global memory are touched by one warp.
            self.traces.reserve_exact(1);
        }
        self.traces.push(Trace {
            agent,
            clock: now,
            write: access.write,
            kind: access.kind,
            shift: access.shift,
            first: access.first,
            bytes: access.bytes,
            lanes: *access.lanes,
            pc: access.pc,
            pcs: None,
        });
    }
}

impl Trace {
    fn merge(&mut self, access: &Access<'_>) {
        if access.bytes == u128::MAX && (self.bytes == 0 || self.lanes == *access.lanes) {
            self.lanes = *access.lanes;
            (self.pc, self.pcs) = (access.pc, None);
            self.bytes = u128::MAX;
            return;
        }
        let cells = cell_mask(access.bytes, access.shift, access.first);
        let present = cell_mask(self.bytes, self.shift, self.first);
        let lanes = &mut self.lanes;
        crate::lanes::wide(
            #[inline(always)]
            || {
                for (cell, (slot, &new)) in lanes.iter_mut().zip(access.lanes).enumerate() {
                    let own = *slot;
                    let joined = if present >> cell & 1 != 0 && own != new {
                        SEVERAL
                    } else {
                        new
                    };
                    *slot = if cells >> cell & 1 != 0 { joined } else { own };
                }
            },
        );
        self.bytes |= access.bytes;
        if present & !cells == 0 {
            (self.pc, self.pcs) = (access.pc, None);
        } else if self.pcs.is_some() || self.pc != access.pc {
            let pc = self.pc;
            let pcs = self.pcs.get_or_insert_with(|| Box::new([pc; 32]));
            for cell in crate::lanes::each(cells) {
                pcs[cell] = access.pc;
            }
        }
    }
}

/// The cells that have a touched byte.
fn cell_mask(bytes: u128, shift: u8, first: u8) -> Mask {
    let bytes = bytes >> first;
    match shift {
        0 => bytes as u32,
        1 => squeeze((bytes as u64) | (bytes as u64) >> 1, 2),
        _ => {
            let mut any = bytes | bytes >> 1;
            any |= any >> 2;
            let low = squeeze(any as u64, 4);
            let high = squeeze((any >> 64) as u64, 4);
            low | high << 16
        }
    }
}

/// Every `step`th bit, packed; `step` is 2 or 4.
fn squeeze(bits: u64, step: u32) -> u32 {
    let mut x = if step == 4 {
        let x = bits & 0x1111_1111_1111_1111;
        (x | x >> 3) & 0x0303_0303_0303_0303
    } else {
        let x = bits & 0x5555_5555_5555_5555;
        let x = (x | x >> 1) & 0x3333_3333_3333_3333;
        (x | x >> 2) & 0x0f0f_0f0f_0f0f_0f0f
    };
    if step == 4 {
        x = (x | x >> 6) & 0x000f_000f_000f_000f;
        x = (x | x >> 12) & 0x0000_00ff_0000_00ff;
        ((x | x >> 24) & 0xffff) as u32
    } else {
        x = (x | x >> 4) & 0x00ff_00ff_00ff_00ff;
        x = (x | x >> 8) & 0x0000_ffff_0000_ffff;
        (x | x >> 16) as u32
    }
}

#[cold]
fn find_conflict(
    trace: &Trace,
    access: &Access<'_>,
    mut overlap: u128,
    clock: &WarpClock,
) -> Option<Conflict> {
    // Cells are whole in both, and the smaller of the two decides nothing twice.
    let width = 1u32 << trace.shift.min(access.shift);
    while overlap != 0 {
        let byte = overlap.trailing_zeros();
        overlap &= !(((1u128 << width) - 1) << (byte & !(width - 1)));
        let their_lane = trace.lanes[trace.cell(byte)];
        let lane = access.lanes[((byte - u32::from(access.first)) >> access.shift) as usize & 31];
        if trace.agent == clock.agent
            && trace.kind != Kind::Async
            && lane == their_lane
            && lane != SEVERAL
        {
            continue;
        }
        if clock.knows(trace.agent, trace.clock, their_lane, lane) {
            continue;
        }
        return Some(Conflict {
            byte,
            lane,
            agent: trace.agent,
            their_lane,
            their_pc: trace.pc_of(trace.cell(byte)),
            their_write: trace.write,
            their_kind: trace.kind,
        });
    }
    None
}

/// The epoch of each warp of a cluster before which everybody who can reach the
/// memory knows what it did; traces below it are forgotten.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    first: Agent,
    epochs: Vec<u32>,
}

impl Floor {
    pub(crate) fn new(first: Agent, agents: usize) -> Floor {
        Floor {
            first,
            epochs: vec![0; agents],
        }
    }

    pub(crate) fn raise(&mut self, agent: Agent, epoch: u32) {
        if let Some(slot) = self.epochs.get_mut(agent.wrapping_sub(self.first) as usize) {
            *slot = (*slot).max(epoch);
        }
    }

    fn is_below(&self, agent: Agent, clock: u32) -> bool {
        self.epochs
            .get(agent.wrapping_sub(self.first) as usize)
            .is_some_and(|&epoch| clock < epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::ALL;

    const WIDE: Geography = Geography {
        warps_per_block: 2,
        blocks_per_cluster: 1,
        isolated: false,
    };

    fn identity() -> [u8; 32] {
        std::array::from_fn(|lane| lane as u8)
    }

    fn access(write: bool, lanes: &[u8; 32]) -> Access<'_> {
        Access {
            write,
            kind: Kind::Plain,
            pc: 7,
            bytes: u128::MAX,
            lanes,
            shift: 2,
            first: 0,
            shared: false,
        }
    }

    #[test]
    fn unordered_warps_race_and_ordered_ones_do_not() {
        let (mut a, mut b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
        let floor = Floor::new(0, 2);
        let lanes = identity();
        let mut line = Line::default();
        assert_eq!(line.access(&access(true, &lanes), &a, WIDE, &floor), None);
        let found = line
            .clone()
            .access(&access(false, &lanes), &b, WIDE, &floor);
        assert!(found.is_some_and(|conflict| conflict.agent == 0 && conflict.their_write));
        b.acquire(&a.release(ALL, ALL), ALL, ALL);
        assert_eq!(line.access(&access(false, &lanes), &b, WIDE, &floor), None);
        // The first warp does not know of that read, so it may not write again.
        assert!(
            line.access(&access(true, &lanes), &a, WIDE, &floor)
                .is_some()
        );
    }

    #[test]
    fn neighbouring_bytes_do_not_race() {
        let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
        let floor = Floor::new(0, 2);
        let lanes = identity();
        let mut line = Line::default();
        let even = Access {
            bytes: 0x5555,
            shift: 0,
            ..access(true, &lanes)
        };
        let odd = Access {
            bytes: 0xaaaa,
            ..even
        };
        assert_eq!(line.access(&even, &a, WIDE, &floor), None);
        assert_eq!(line.access(&odd, &b, WIDE, &floor), None);
        assert!(
            line.access(&access(false, &lanes), &b, WIDE, &floor)
                .is_some()
        );
    }

    #[test]
    fn lanes_of_one_warp_race_until_they_synchronise() {
        let mut a = WarpClock::new(0, 0, 2);
        let floor = Floor::new(0, 2);
        let (lanes, mut reversed) = (identity(), identity());
        reversed.reverse();
        let mut line = Line::default();
        assert_eq!(line.access(&access(true, &lanes), &a, WIDE, &floor), None);
        assert_eq!(line.access(&access(false, &lanes), &a, WIDE, &floor), None);
        let found = line
            .clone()
            .access(&access(false, &reversed), &a, WIDE, &floor);
        assert!(found.is_some_and(|conflict| conflict.their_lane != conflict.lane));
        a.sync_lanes(ALL, ALL);
        assert_eq!(
            line.access(&access(false, &reversed), &a, WIDE, &floor),
            None
        );
    }

    #[test]
    fn readers_of_isolated_blocks_are_not_all_remembered() {
        let apart = Geography {
            isolated: true,
            ..WIDE
        };
        let floor = Floor::default();
        let lanes = identity();
        let mut line = Line::default();
        for block in 0..100 {
            let reader = WarpClock::new(2 * block, 2 * block, 2);
            assert_eq!(
                line.access(&access(false, &lanes), &reader, apart, &floor),
                None
            );
        }
        assert_eq!(line.traces.len(), 2);
        // Each of the first two readers too: the other one has read it as well.
        for block in [0, 1, 50] {
            let writer = WarpClock::new(2 * block, 2 * block, 2);
            let found = line
                .clone()
                .access(&access(true, &lanes), &writer, apart, &floor);
            assert!(found.is_some_and(|conflict| !conflict.their_write));
        }
    }

    #[test]
    fn a_cell_keeps_its_own_instruction() {
        let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
        let floor = Floor::new(0, 2);
        let lanes = identity();
        let mut line = Line::default();
        for (pc, bytes) in [(7, 0xf), (8, 0xf0), (9, 0xf00)] {
            let part = Access {
                pc,
                bytes,
                ..access(true, &lanes)
            };
            assert_eq!(line.access(&part, &a, WIDE, &floor), None);
        }
        for (pc, bytes) in [(7, 0xf), (8, 0xf0), (9, 0xf00)] {
            let part = Access {
                bytes,
                ..access(false, &lanes)
            };
            let found = line.clone().access(&part, &b, WIDE, &floor);
            assert_eq!(found.map(|conflict| conflict.their_pc), Some(pc));
        }
    }

    #[test]
    fn atomics_do_not_race_within_their_scope() {
        let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(2, 2, 2));
        let floor = Floor::default();
        let lanes = identity();
        let of = |scope| Access {
            kind: Kind::Strong(scope),
            ..access(true, &lanes)
        };
        let mut line = Line::default();
        assert_eq!(line.access(&of(Scope::Gpu), &a, WIDE, &floor), None);
        assert_eq!(line.clone().access(&of(Scope::Gpu), &b, WIDE, &floor), None);
        assert!(
            line.clone()
                .access(&of(Scope::Block), &b, WIDE, &floor)
                .is_some()
        );
        assert!(
            line.access(&access(false, &lanes), &b, WIDE, &floor)
                .is_some()
        );
    }

    #[test]
    fn atomics_of_different_sizes_are_not_atomic_towards_each_other() {
        let (a, b) = (WarpClock::new(0, 0, 2), WarpClock::new(2, 2, 2));
        let floor = Floor::default();
        let lanes = identity();
        let of = |size, bytes| Access {
            kind: Kind::Atomic(Scope::Gpu, size),
            bytes,
            ..access(true, &lanes)
        };
        let mut line = Line::default();
        assert_eq!(line.access(&of(8, 0xff), &a, WIDE, &floor), None);
        for (size, bytes, races) in [(8, 0xff, false), (4, 0xf0, true), (4, 0xf00, false)] {
            let found = line.clone().access(&of(size, bytes), &b, WIDE, &floor);
            assert_eq!(found.is_some(), races, "{size} bytes at {bytes:#x}");
        }
    }

    #[test]
    fn cells_are_found_at_every_granularity() {
        assert_eq!(cell_mask(0xf0, 2, 0), 0b10);
        assert_eq!(cell_mask(u128::MAX, 2, 0), u32::MAX);
        assert_eq!(cell_mask(1 << 127, 2, 0), 1 << 31);
        assert_eq!(cell_mask(0b1101, 1, 0), 0b11);
        assert_eq!(cell_mask(0b100 << 64, 1, 64), 0b10);
        assert_eq!(cell_mask(0b100 << 96, 0, 96), 0b100);
    }
}
