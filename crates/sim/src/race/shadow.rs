//! Shadow memory: the race detector's history of each line of memory.
//!
//! Memory is watched in lines of 128 bytes. A line keeps a short list of
//! [`Trace`]s, one for each warp, epoch and kind of access: which bytes were
//! touched, by which lane, and by which instruction. A new access is compared with the traces that
//! conflict with it; for a trace whose warp has synchronised with this one that is a comparison of
//! two numbers, otherwise byte by byte. Neighbouring bytes never race.

use super::access::{Access, AccessKind, Conflict, Geography};
use super::clock::{Agent, SEVERAL, WarpClock};
use super::touch::IN_ORDER;
pub(crate) use super::trace::Seen;
use super::trace::{Clash, Places, Trace, cell_mask};
use crate::lanes::Mask;

/// Traces that a line keeps before the oldest make room.
const MOST_TRACES: usize = 40;

/// A trace of the commonest kind, in a few bytes: a plain access to the whole line
/// in the order of the lanes. Most lines of global memory have no other.
#[derive(Clone, Copy, Debug, Default)]
struct Plain {
    agent: Agent,
    /// 0 where there is none.
    clock: u32,
    pc: u32,
    write: bool,
    /// A table of [`IN_ORDER`].
    order: u8,
}

impl Plain {
    #[inline(always)]
    fn is_one(&self) -> bool {
        self.clock != 0
    }

    /// As a trace, and no longer here.
    fn take(&mut self) -> Option<Trace> {
        let plain = std::mem::take(self);
        plain.is_one().then(|| plain.trace())
    }

    fn trace(self) -> Trace {
        Trace {
            agent: self.agent,
            clock: self.clock,
            write: self.write,
            kind: AccessKind::Plain,
            shift: 2,
            first: 0,
            bytes: u128::MAX,
            cells: Mask::MAX,
            lanes: IN_ORDER[usize::from(self.order) % IN_ORDER.len()],
            crowds: None,
            pc: self.pc,
            pcs: None,
            carried: 0,
            observers: Vec::new(),
        }
    }
}

/// One line's memory of its accesses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// The only trace, where it is of the commonest kind.
    plain: Plain,
    /// All other traces.
    more: Option<Box<Traces>>,
}

/// Values that read-modify-writes of one agent have left in one epoch and that are told apart: a spin
/// lock has one for each turn. Beyond it, who has seen the latest is not known to come after it.
const MOST_ALIKE: usize = 8;

/// The traces of a line that has seen more than one plain access.
#[derive(Clone, Debug, Default)]
struct Traces {
    list: Vec<Trace>,
    /// Bytes that two blocks have read and nobody has written, where blocks can't synchronise: any
    /// write to them races with one of the two reads, so later reads need not be recorded.
    crowded: u128,
    /// The trace that was found or made last. If `quiet`, all writes in the list happen before its
    /// warp: its other reads in that epoch conflict with nothing.
    last: usize,
    quiet: bool,
    /// The writes that the latest access conflicts with, if it is a write.
    clashes: Vec<Clash>,
    spare: Vec<Places>,
}

impl Line {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.plain = Plain::default();
        if let Some(more) = &mut self.more {
            more.crowded = 0;
            more.quiet = false;
            more.retain(|_| false);
        }
    }

    /// Records an access and returns the first conflict that it has.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        access: &Access<'_>,
        clock: &WarpClock,
        geography: Geography,
        floor: &Floor,
    ) -> Option<Conflict> {
        if let Some(more) = &mut self.more {
            if access.write {
                more.crowded &= !access.bytes;
            } else if access.bytes & !more.crowded == 0 {
                return None;
            }
            if !more.list.is_empty() {
                if !access.write
                    && more.quiet
                    && let Some(trace) = more.list.get_mut(more.last)
                    && trace.is_of(access, clock.agent, clock.now)
                {
                    trace.merge(access, &mut more.spare);
                    return None;
                }
                return self.access_any(access, clock, geography, floor);
            }
        }
        if let Some(order) = access.order
            && access.kind == AccessKind::Plain
            && self.access_in_order(access.write, order, access.pc, clock)
        {
            return None;
        }
        self.access_any(access, clock, geography, floor)
    }

    /// Records a read in an epoch after all writes to the line.
    pub(super) fn read_quietly(
        &mut self,
        access: &Access<'_>,
        (agent, now): (Agent, u32),
        geography: Geography,
        floor: &Floor,
    ) {
        let more = self.more.get_or_insert_default();
        if access.bytes & !more.crowded == 0 {
            return;
        }
        more.list.extend(self.plain.take());
        let own = more
            .list
            .iter()
            .position(|trace| trace.is_of(access, agent, now));
        match own {
            Some(own) => {
                more.list[own].merge(access, &mut more.spare);
                more.last = own;
            }
            None => more.remember_read(access, (agent, now), geography, floor),
        }
        more.quiet = true;
    }

    /// Records a plain access to the whole line in the order of the lanes, if what the line
    /// remembers is of that kind as well, alone, and stays so. False if nothing has happened.
    #[inline(always)]
    pub(super) fn access_in_order(
        &mut self,
        write: bool,
        order: u8,
        pc: u32,
        clock: &WarpClock,
    ) -> bool {
        if self.more.is_some() && !self.is_simple() {
            return false;
        }
        if self.plain.is_one() {
            let before = self.plain;
            let same_warp = before.agent == clock.agent && before.order == order;
            let stays = if write {
                // An access ordered after this write is also ordered after that one: it happens
                // before all lanes, or each lane touched the same cell.
                clock.knows_all(before.agent, before.clock) || same_warp
            } else {
                !before.write && same_warp && before.clock == clock.now
            };
            if !stays {
                return false;
            }
        }
        self.plain = Plain {
            agent: clock.agent,
            clock: clock.now,
            pc,
            write,
            order,
        };
        true
    }

    /// Whether there is no trace but the plain one.
    fn is_simple(&self) -> bool {
        self.more
            .as_ref()
            .is_none_or(|more| more.list.is_empty() && more.crowded == 0)
    }

    #[inline(never)]
    fn access_any(
        &mut self,
        access: &Access<'_>,
        clock: &WarpClock,
        geography: Geography,
        floor: &Floor,
    ) -> Option<Conflict> {
        let (agent, now) = (clock.agent, clock.now);
        let more = self.more.get_or_insert_default();
        more.list.extend(self.plain.take());
        more.clashes.clear();
        let mut conflict = None;
        let (mut own, mut alike, mut latest) = (usize::MAX, 0, usize::MAX);
        let (mut dead, mut quiet) = (false, !access.write);
        for (at, trace) in more.list.iter_mut().enumerate() {
            let same = trace.is_of(access, agent, now);
            if same {
                own = at;
            } else {
                if access.kind.is_atomic() && trace.is_like(access, agent, now) {
                    (alike, latest) = (alike + 1, at);
                }
                if trace.carried & access.bytes != 0 {
                    trace.meet(access, (agent, now), geography);
                }
            }
            if !(trace.write || access.write) {
                continue;
            }
            let near = geography.block(trace.agent) == geography.block(agent);
            if clock.knows_all(trace.agent, trace.clock) {
                if access.replaces(trace.kind, near) {
                    dead |= trace.forget(access.bytes & !trace.hidden_by(access));
                }
                continue;
            }
            quiet = false;
            let overlap = trace.bytes & access.bytes;
            if overlap == 0
                || geography.morally_strong([trace.kind, access.kind], trace.agent, agent)
            {
                continue;
            }
            let both_write = trace.write && access.write;
            if (conflict.is_none() || both_write) && !trace.is_repeated_by(access, agent) {
                let found = trace.find_conflict(access, overlap, clock);
                if both_write && found.is_some() {
                    more.clashes.push(Clash {
                        trace: trace.clone(),
                        bytes: overlap,
                    });
                }
                conflict = conflict.or(found);
            }
            if access.replaces(trace.kind, near) && !same {
                dead |= trace.forget(access.bytes & !trace.hidden_by(access));
            }
        }
        more.quiet = quiet;
        if own == usize::MAX && alike >= MOST_ALIKE {
            own = latest;
        }
        if own == usize::MAX {
            if dead {
                more.retain(|trace| trace.bytes != 0);
            }
            if access.write {
                more.push(Trace::of(access, (agent, now), geography.in_parts), floor);
                more.last = more.list.len() - 1;
            } else {
                more.remember_read(access, (agent, now), geography, floor);
            }
        } else {
            more.list[own].merge(access, &mut more.spare);
            more.last = own;
            if dead {
                more.retain(|trace| trace.bytes != 0);
            }
        }
        conflict
    }

    /// The writes that the access which was recorded last conflicts with, if it was a write.
    pub(super) fn clashes(&mut self) -> Vec<Clash> {
        let more = self.more.as_mut();
        more.map_or_else(Vec::new, |more| std::mem::take(&mut more.clashes))
    }

    /// The first conflict that an access would have now.
    pub(super) fn foresee(
        &self,
        access: &Access<'_>,
        clock: &WarpClock,
        geography: Geography,
    ) -> Option<Conflict> {
        let conflict = |trace: &Trace| {
            let overlap = trace.bytes & access.bytes;
            let kinds = [trace.kind, access.kind];
            let harmless = overlap == 0
                || !(trace.write || access.write)
                || clock.knows_all(trace.agent, trace.clock)
                || geography.morally_strong(kinds, trace.agent, clock.agent)
                || trace.is_repeated_by(access, clock.agent);
            match harmless {
                true => None,
                false => trace.find_conflict(access, overlap, clock),
            }
        };
        if self.plain.is_one() && !clock.knows_all(self.plain.agent, self.plain.clock) {
            let found = conflict(&self.plain.trace());
            if found.is_some() {
                return found;
            }
        }
        let mut traces = self.more.iter().flat_map(|more| &more.list);
        traces.find_map(conflict)
    }

    /// The reads that have seen a write: their agents, clocks and lanes.
    pub(super) fn observers(&self, seen: Seen) -> impl Iterator<Item = (Agent, u32, u8)> {
        let traces = self.more.iter().flat_map(|more| &more.list);
        let by = (seen.agent, seen.clock, seen.kind);
        let same =
            move |trace: &&Trace| trace.write && (trace.agent, trace.clock, trace.kind) == by;
        traces
            .filter(same)
            .flat_map(move |trace| trace.observers_of(seen.byte))
    }

    /// Calls `f` for every cell of every trace that has one of `bytes`.
    pub(crate) fn each(&self, bytes: u128, mut f: impl FnMut(Seen)) {
        if self.plain.is_one() {
            self.plain.trace().each(bytes, &mut f);
        }
        for trace in self.more.iter().flat_map(|more| &more.list) {
            trace.each(bytes, &mut f);
        }
    }

    /// Forgets what was known of `bytes`, and notes that an asynchronous operation
    /// wrote them.
    pub(crate) fn overwrite(&mut self, bytes: u128, kind: AccessKind, by: (Agent, u32), pc: u32) {
        let more = self.more.get_or_insert_default();
        more.list.extend(self.plain.take());
        for trace in &mut more.list {
            trace.forget(bytes);
        }
        more.quiet = false;
        more.retain(|trace| trace.bytes != 0);
        more.crowded &= !bytes;
        more.list.push(Trace {
            agent: by.0,
            clock: by.1,
            write: true,
            kind,
            shift: 2,
            first: 0,
            bytes,
            cells: cell_mask(bytes, 2, 0),
            lanes: [SEVERAL; 32],
            crowds: None,
            pc,
            pcs: None,
            carried: 0,
            observers: Vec::new(),
        });
    }
}

impl Line {
    /// Notes that an asynchronous operation of `agent`, its `clock`th, reads some bytes, or reduces
    /// into them. A later one of the same agent implies the earlier ones.
    pub(crate) fn add_by_proxy(
        &mut self,
        bytes: u128,
        (write, kind): (bool, AccessKind),
        by: (Agent, u32),
        pc: u32,
    ) {
        let (agent, clock) = by;
        // The value of a strong write may be seen.
        let carried = if write { bytes } else { 0 };
        let more = self.more.get_or_insert_default();
        if !write && bytes & !more.crowded == 0 {
            return;
        }
        more.list.extend(self.plain.take());
        more.quiet = false;
        if write {
            more.crowded &= !bytes;
        }
        let mut own = None;
        for (at, trace) in more.list.iter_mut().enumerate() {
            if trace.agent == agent && trace.kind == kind && trace.write == write {
                if trace.clock == clock {
                    own = Some(at);
                } else {
                    trace.forget(bytes);
                }
            }
        }
        if let Some(own) = own {
            let trace = &mut more.list[own];
            trace.bytes |= bytes;
            trace.cells |= cell_mask(bytes, 2, 0);
            trace.carried |= carried;
        } else {
            if more.list.len() >= MOST_TRACES {
                more.list.remove(0);
            }
            more.list.push(Trace {
                agent,
                clock,
                write,
                kind,
                shift: 2,
                first: 0,
                bytes,
                cells: cell_mask(bytes, 2, 0),
                lanes: [SEVERAL; 32],
                crowds: None,
                pc,
                pcs: None,
                carried,
                observers: Vec::new(),
            });
        }
        more.retain(|trace| trace.bytes != 0);
    }
}

impl Traces {
    /// Drops traces, and keeps their boxes.
    fn retain(&mut self, mut keep: impl FnMut(&Trace) -> bool) {
        let spare = &mut self.spare;
        self.list.retain_mut(|trace| {
            let stays = keep(trace);
            if !stays {
                spare.extend(trace.pcs.take());
            }
            stays
        });
    }

    /// Bytes that another block has read and nobody has written.
    fn read_elsewhere(&self, geography: Geography, agent: Agent) -> u128 {
        let (mut read, mut written) = (0, 0);
        for trace in &self.list {
            if trace.write {
                written |= trace.bytes;
            } else if !trace.kind.by_proxy()
                && geography.block(trace.agent) != geography.block(agent)
            {
                read |= trace.bytes;
            }
        }
        read & !written
    }

    /// Adds a trace of a read.
    fn remember_read(
        &mut self,
        access: &Access<'_>,
        (agent, now): (Agent, u32),
        geography: Geography,
        floor: &Floor,
    ) {
        if geography.isolated {
            self.crowded |= access.bytes & self.read_elsewhere(geography, agent);
        }
        self.push(Trace::of(access, (agent, now), geography.in_parts), floor);
        self.last = self.list.len() - 1;
    }

    fn push(&mut self, trace: Trace, floor: &Floor) {
        // Only now and then: it visits all of them.
        if self.list.len() >= 4 && self.list.len().is_power_of_two() {
            self.retain(|trace| !floor.is_below(trace.agent, trace.clock));
        }
        if self.list.len() >= MOST_TRACES {
            self.list.remove(0);
        }
        if self.list.capacity() == 0 {
            // Most lines of global memory are touched by one warp or two.
            self.list.reserve_exact(2);
        }
        self.list.push(trace);
    }
}

/// For each warp of a cluster the epoch before which its accesses happen before all agents that can
/// reach the memory; older traces are dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    first: Agent,
    epochs: Vec<u32>,
}

impl Floor {
    /// Of memory that agents outside the cluster can reach.
    pub(crate) const NONE: Floor = Floor {
        first: 0,
        epochs: Vec::new(),
    };

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
mod tests;
