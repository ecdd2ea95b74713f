//! One warp's accesses to one line in one epoch, as the line remembers them.

use super::access::{Access, AccessKind, Conflict, Geography};
use super::clock::{Agent, SEVERAL, WarpClock};
use super::touch::Crowds;
use crate::lanes::{Mask, each};

/// An instruction for each cell.
pub(super) type Places = Box<[u32; 32]>;

/// A trace of a line.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    pub(super) agent: Agent,
    pub(super) clock: u32,
    pub(super) write: bool,
    pub(super) kind: AccessKind,
    pub(super) shift: u8,
    pub(super) first: u8,
    pub(super) bytes: u128,
    /// The cells that have some of these bytes.
    pub(super) cells: Mask,
    pub(super) lanes: [u8; 32],
    /// The lanes of each cell, in kernels whose lanes synchronise in parts.
    pub(super) crowds: Option<Box<Crowds>>,
    /// The instruction, and the one of each cell where they differ.
    pub(super) pc: u32,
    pub(super) pcs: Option<Places>,
    /// Of a strong write: the bytes that still have its value, or one that
    /// read-modify-writes have made of it.
    pub(super) carried: u128,
    /// The strong reads that have seen that value: whoever comes after one of them comes
    /// after this write (PTX's observation order), and after nothing else of its warp.
    pub(super) observers: Vec<Observer>,
}

/// A strong read that has seen a strong write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observer {
    agent: Agent,
    clock: u32,
    lane: u8,
    kind: AccessKind,
    /// Whether it has put another value there, made of the one that it saw.
    modifies: bool,
    bytes: u128,
}

/// Observers of one write that are remembered: the latest ones.
const MOST_OBSERVERS: usize = 8;

impl Trace {
    pub(super) fn of(access: &Access<'_>, (agent, clock): (Agent, u32), in_parts: bool) -> Trace {
        Trace {
            agent,
            clock,
            write: access.write,
            kind: access.kind,
            shift: access.shift,
            first: access.first,
            bytes: access.bytes,
            cells: access.cells,
            lanes: *access.lanes,
            crowds: in_parts.then(|| Box::new(std::array::from_fn(|cell| access.crowd(cell)))),
            pc: access.pc,
            pcs: None,
            carried: carried_by(access),
            observers: Vec::new(),
        }
    }

    /// Another access comes to bytes that this write's value is in: it sees the value, if
    /// it and who has put it there last are strong towards each other, or puts an end to it.
    #[cold]
    pub(super) fn meet(&mut self, access: &Access<'_>, by: (Agent, u32), geography: Geography) {
        let modifies = access.kind.is_atomic();
        let (agent, clock) = by;
        let overlap = self.carried & access.bytes;
        for cell in each(cell_mask(overlap, access.shift, access.first)) {
            let (lane, width) = (access.lanes[cell], 1u32 << access.shift);
            let bytes = ((1u128 << width) - 1) << (u32::from(access.first) + cell as u32 * width);
            let carriers = self.observers.iter().rev();
            let mut carriers = carriers.filter(|one| one.modifies && one.bytes & bytes != 0);
            let (carrier, kind) = carriers
                .next()
                .map_or((self.agent, self.kind), |one| (one.agent, one.kind));
            if !geography.morally_strong([kind, access.kind], carrier, agent)
                || access.write && !modifies
            {
                if access.write {
                    self.carried &= !bytes;
                }
                continue;
            }
            self.observers.retain_mut(|one| {
                if (one.agent, one.clock, one.lane, one.modifies) == (agent, clock, lane, modifies)
                {
                    one.bytes &= !bytes;
                }
                one.bytes != 0
            });
            if self.observers.len() >= MOST_OBSERVERS {
                self.observers.remove(0);
            }
            self.observers.push(Observer {
                agent,
                clock,
                lane,
                kind: access.kind,
                modifies,
                bytes,
            });
        }
    }

    /// The bytes that a strong write takes out of sight: who has merely seen that write does
    /// not come after this access, unless a read-modify-write has seen this one itself.
    pub(super) fn hidden_by(&self, access: &Access<'_>) -> u128 {
        match access.kind {
            AccessKind::Atomic(..) => self.bytes & access.bytes & !self.carried,
            AccessKind::Strong(..) => self.bytes & access.bytes,
            _ => 0,
        }
    }

    /// The reads that have seen what was written to a byte.
    pub(super) fn observers_of(&self, byte: u32) -> impl Iterator<Item = (Agent, u32, u8)> {
        let seen = self.observers.iter();
        seen.filter(move |one| one.bytes >> byte & 1 != 0)
            .map(|one| (one.agent, one.clock, one.lane))
    }

    /// Whether a lane comes after a read that has seen what was written to a byte.
    fn is_observed(&self, byte: u32, clock: &WarpClock, lane: u8) -> bool {
        self.observers.iter().any(|one| {
            let own = one.agent == clock.agent && (one.lane == lane || one.lane == SEVERAL);
            one.bytes >> byte & 1 != 0 && (own || clock.knows(one.agent, one.clock, one.lane, lane))
        })
    }

    /// Whether an access of an agent in its epoch belongs to this trace. A write over a value that
    /// somebody has seen does not: who has seen the one has not seen the other.
    #[inline(always)]
    pub(super) fn is_of(&self, access: &Access<'_>, agent: Agent, now: u32) -> bool {
        self.is_like(access, agent, now) && (!access.write || self.goes_on_with(access))
    }

    /// Whether an access is by the same agent, in the same epoch and of the same kind.
    #[inline(always)]
    pub(super) fn is_like(&self, access: &Access<'_>, agent: Agent, now: u32) -> bool {
        self.agent == agent
            && self.clock == now
            && self.write == access.write
            && self.kind == access.kind
            && self.shift == access.shift
            && self.first == access.first
    }

    /// Whether a write leaves those who have seen the value of this trace, or will see it, right
    /// about both. A read-modify-write does, unless another write has come between the two.
    #[inline]
    fn goes_on_with(&self, access: &Access<'_>) -> bool {
        match access.kind {
            AccessKind::Atomic(..) => self.hidden_by(access) == 0,
            AccessKind::Strong(..) => {
                let mut observers = self.observers.iter();
                !observers.any(|one| one.bytes & access.bytes != 0)
            }
            _ => true,
        }
    }

    /// Whether the same warp comes again, every lane to where it was: the usual case.
    #[inline(always)]
    pub(super) fn is_repeated_by(&self, access: &Access<'_>, agent: Agent) -> bool {
        self.agent == agent
            && !self.kind.by_proxy()
            && self.shift == access.shift
            && self.first == access.first
            && self.lanes == *access.lanes
            && !access.shared
    }

    pub(super) fn pc_of(&self, cell: usize) -> u32 {
        self.pcs.as_ref().map_or(self.pc, |pcs| pcs[cell & 31])
    }

    fn cell(&self, byte: u32) -> usize {
        ((byte - u32::from(self.first)) >> self.shift) as usize & 31
    }

    /// Forgets some bytes. True if none are left.
    #[inline]
    pub(super) fn forget(&mut self, bytes: u128) -> bool {
        if self.bytes & bytes != 0 {
            self.bytes &= !bytes;
            self.cells = if self.bytes == 0 {
                0
            } else {
                cell_mask(self.bytes, self.shift, self.first)
            };
        }
        self.bytes == 0
    }

    /// Calls `f` for every cell that has one of `bytes`.
    pub(super) fn each(&self, bytes: u128, f: &mut impl FnMut(Seen)) {
        for cell in each(cell_mask(self.bytes & bytes, self.shift, self.first)) {
            f(Seen {
                byte: u32::from(self.first) + ((cell as u32) << self.shift),
                agent: self.agent,
                clock: self.clock,
                lane: self.lanes[cell],
                pc: self.pc_of(cell),
                write: self.write,
                kind: self.kind,
            });
        }
    }

    /// Adds an access that belongs to this trace. `spare` are boxes to use again.
    #[inline(always)]
    pub(super) fn merge(&mut self, access: &Access<'_>, spare: &mut Vec<Places>) {
        if let Some(crowds) = &mut self.crowds {
            for cell in each(access.cells) {
                let before = if self.cells >> cell & 1 != 0 {
                    crowds[cell]
                } else {
                    0
                };
                crowds[cell] = before | access.crowd(cell);
            }
        }
        let carried = carried_by(access);
        if carried != 0 {
            // Nobody has seen the new value yet, nor will anybody see the one before it.
            self.carried = (self.carried | carried & !self.bytes) & !self.hidden_by(access);
            for one in &mut self.observers {
                one.bytes &= !carried;
            }
        }
        if access.bytes == u128::MAX && (self.bytes == 0 || self.lanes == *access.lanes) {
            self.lanes = *access.lanes;
            (self.bytes, self.cells) = (u128::MAX, access.cells);
            self.pc = access.pc;
            spare.extend(self.pcs.take());
            return;
        }
        let (cells, present) = (access.cells, self.cells);
        join_lanes(&mut self.lanes, access.lanes, cells, present);
        self.bytes |= access.bytes;
        self.cells |= cells;
        if present & !cells == 0 {
            self.pc = access.pc;
            spare.extend(self.pcs.take());
        } else if self.pcs.is_some() || self.pc != access.pc {
            let pc = self.pc;
            let pcs = self.pcs.get_or_insert_with(|| match spare.pop() {
                Some(mut pcs) => {
                    *pcs = [pc; 32];
                    pcs
                }
                None => Box::new([pc; 32]),
            });
            put(pcs, cells, access.pc);
        }
    }

    /// The first conflict among bytes that both touch, if the two are not ordered.
    #[cold]
    pub(super) fn find_conflict(
        &self,
        access: &Access<'_>,
        mut overlap: u128,
        clock: &WarpClock,
    ) -> Option<Conflict> {
        // Cells are whole in both, so the smaller width suffices.
        let width = 1u32 << self.shift.min(access.shift);
        while overlap != 0 {
            let byte = overlap.trailing_zeros();
            overlap &= !(((1u128 << width) - 1) << (byte & !(width - 1)));
            let their_lane = self.lanes[self.cell(byte)];
            let cell = ((byte - u32::from(access.first)) >> access.shift) as usize & 31;
            let lane = access.lanes[cell];
            if self.agent == clock.agent
                && !self.kind.by_proxy()
                && lane == their_lane
                && lane != SEVERAL
            {
                continue;
            }
            if clock.knows(self.agent, self.clock, their_lane, lane)
                || self.is_observed(byte, clock, lane)
            {
                continue;
            }
            let (mut lane, mut their_lane) = (lane, their_lane);
            if lane == SEVERAL || their_lane == SEVERAL {
                match self.unordered(access.crowd(cell), self.cell(byte), clock) {
                    Some(both) => (lane, their_lane) = both,
                    None => continue,
                }
            }
            return Some(Conflict {
                byte,
                lane,
                agent: self.agent,
                their_clock: self.clock,
                their_lane,
                their_pc: self.pc_of(self.cell(byte)),
                their_write: self.write,
                their_kind: self.kind,
            });
        }
        None
    }
}

/// A write that came before one to the same bytes, with nothing to order the two.
#[derive(Clone, Debug)]
pub(crate) struct Clash {
    pub(super) trace: Trace,
    /// The bytes that both write.
    pub(super) bytes: u128,
}

impl Clash {
    /// The first conflict of the later write among some bytes of the line.
    pub(crate) fn among(
        &self,
        access: &Access<'_>,
        bytes: u128,
        clock: &WarpClock,
    ) -> Option<Conflict> {
        let overlap = self.bytes & access.bytes & bytes;
        self.trace.find_conflict(access, overlap, clock)
    }
}

impl Trace {
    /// A lane of some, and one that came to a cell before, of which the first does not know; each is
    /// [`SEVERAL`] where it was not kept which they were.
    fn unordered(&self, lanes: Mask, cell: usize, clock: &WarpClock) -> Option<(u8, u8)> {
        let own = self.agent == clock.agent && !self.kind.by_proxy();
        let unknown = |their: u8, lane: u8| {
            let same = own && their == lane && lane != SEVERAL;
            !(same || clock.knows(self.agent, self.clock, their, lane))
        };
        let theirs = match (self.lanes[cell & 31], &self.crowds) {
            (SEVERAL, Some(crowds)) => crowds[cell & 31],
            (SEVERAL, None) => {
                let lane = each(lanes).find(|&lane| unknown(SEVERAL, lane as u8));
                return lane.map(|lane| (lane as u8, SEVERAL));
            }
            (lane, _) => 1 << (lane & 31),
        };
        each(lanes).find_map(|lane| {
            let their = each(theirs).find(|&their| unknown(their as u8, lane as u8))?;
            Some((lane as u8, their as u8))
        })
    }
}

/// The bytes that a strong write gives a value that others may see.
#[inline(always)]
fn carried_by(access: &Access<'_>) -> u128 {
    match access.write && access.kind.scope().is_some() {
        true => access.bytes,
        false => 0,
    }
}

/// One cell of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) byte: u32,
    pub(crate) agent: Agent,
    pub(crate) clock: u32,
    pub(crate) lane: u8,
    pub(crate) pc: u32,
    pub(crate) write: bool,
    pub(crate) kind: AccessKind,
}

/// Eight bytes of ones and zeros for eight bits.
static BYTES_OF_BITS: [u64; 256] = {
    let mut table = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut bit = 0;
        while bit < 8 {
            if bits >> bit & 1 != 0 {
                table[bits] |= 0xff << (8 * bit);
            }
            bit += 1;
        }
        bits += 1;
    }
    table
};

/// Merges the lanes of another access into each cell: the new lane where the cell was free, and
/// `SEVERAL` where another lane was there.
#[inline(always)]
fn join_lanes(lanes: &mut [u8; 32], new: &[u8; 32], cells: Mask, present: Mask) {
    let (chunks, _) = lanes.as_chunks_mut::<8>();
    let (others, _) = new.as_chunks::<8>();
    for (at, (own, new)) in chunks.iter_mut().zip(others).enumerate() {
        let of = |mask: Mask| BYTES_OF_BITS[(mask >> (8 * at)) as usize & 0xff];
        let (take, there) = (of(cells), of(cells & present));
        let (old, new) = (u64::from_le_bytes(*own), u64::from_le_bytes(*new));
        let differ = (old ^ new) & there;
        let mut out = old & !take | new & take;
        if differ != 0 {
            for byte in 0..8 {
                if differ >> (8 * byte) & 0xff != 0 {
                    out |= u64::from(SEVERAL) << (8 * byte);
                }
            }
        }
        *own = out.to_le_bytes();
    }
}

/// The bit of each cell.
static BITS: [u32; 32] = {
    let mut bits = [0; 32];
    let mut cell = 0;
    while cell < 32 {
        bits[cell] = 1 << cell;
        cell += 1;
    }
    bits
};

/// Sets the instruction of some cells.
#[inline(always)]
fn put(pcs: &mut [u32; 32], cells: Mask, pc: u32) {
    if cells.count_ones() <= 4 {
        for cell in each(cells) {
            pcs[cell] = pc;
        }
        return;
    }
    for (slot, bit) in pcs.iter_mut().zip(&BITS) {
        let take = u32::from(cells & bit == 0).wrapping_sub(1);
        *slot ^= (*slot ^ pc) & take;
    }
}

/// The cells that have a touched byte.
pub(crate) fn cell_mask(bytes: u128, shift: u8, first: u8) -> Mask {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_at_every_granularity() {
        assert_eq!(cell_mask(0xf0, 2, 0), 0b10);
        assert_eq!(cell_mask(u128::MAX, 2, 0), u32::MAX);
        assert_eq!(cell_mask(1 << 127, 2, 0), 1 << 31);
        assert_eq!(cell_mask(0b1101, 1, 0), 0b11);
        assert_eq!(cell_mask(0b100 << 64, 1, 64), 0b10);
        assert_eq!(cell_mask(0b100 << 96, 0, 96), 0b100);
    }

    #[test]
    fn a_finding_names_the_first_byte_of_a_cell() {
        let trace = Trace {
            agent: 0,
            clock: 1,
            write: true,
            kind: AccessKind::Plain,
            shift: 2,
            first: 64,
            bytes: 0xff0 << 64,
            cells: 0b110,
            lanes: [0; 32],
            crowds: None,
            pc: 0,
            pcs: None,
            carried: 0,
            observers: Vec::new(),
        };
        let mut bytes = Vec::new();
        trace.each(u128::MAX, &mut |seen| bytes.push(seen.byte));
        assert_eq!(bytes, [68, 72]);
    }

    #[test]
    fn a_cell_that_two_lanes_touch_is_of_several() {
        let mut lanes: [u8; 32] = std::array::from_fn(|cell| cell as u8);
        let mut new = lanes;
        (new[3], new[4], new[9]) = (7, 8, 2);
        // Cell 3 was there with another lane, cell 4 was not, cell 9 is not touched.
        join_lanes(&mut lanes, &new, 0b1_1000, 0b10_0000_1000);
        assert_eq!(lanes[2..5], [2, SEVERAL, 8]);
        assert_eq!(lanes[9], 9);
        let mut pcs = [1; 32];
        put(&mut pcs, 0x8000_00f1, 5);
        assert_eq!((pcs[0], pcs[1], pcs[4], pcs[31]), (5, 1, 5, 5));
    }
}
