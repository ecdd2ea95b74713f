//! Checks an access for uninitialised bytes and races, and records it.

use super::conflict::{report_race, report_unwritten};
use super::context::Cx;
use super::group::{Does, Group, Home};
use crate::lanes::each;
use crate::options::Checks;
use crate::race::access::{Access, AccessKind, Conflict, Geography, LINE};
use crate::race::clock::{Behind, SEVERAL, WarpClock};
use crate::race::history::History;
use crate::race::shadow::Floor;
use crate::race::touch::LineTouch;
use crate::race::trace::Clash;
use crate::state::memory::region::Region;
use crate::state::team::Team;
use crate::state::users::Part;

/// Checks a group for uninitialised bytes and races, and records it.
#[inline]
pub(crate) fn watch(
    cx: &mut Cx<'_>,
    group: &Group,
    contiguous: bool,
    does: Does,
    kind: AccessKind,
) {
    watch_unless(cx, group, contiguous, does, kind, |_, _| u128::MAX);
}

/// The same, where unordered writes may be harmless because both write the same value: `changes`
/// are the bytes of a line that the access is about to change.
#[inline]
pub(crate) fn watch_unless(
    cx: &mut Cx<'_>,
    group: &Group,
    contiguous: bool,
    does: Does,
    kind: AccessKind,
    changes: impl Fn(&mut Cx<'_>, u64) -> u128,
) {
    if matches!(group.home, Home::Const | Home::Param | Home::Local) {
        return;
    }
    note_guest(cx, group, kind);
    // Bytes in flight are not written yet; that has been reported already.
    let told =
        super::flight::check(cx, group, does) | super::flight::check_expected(cx, group, does);
    let mut look = Look::at(cx.fragment.pc, cx.machine.watches(), does, kind);
    look.told = told;
    {
        let region = match group.home {
            Home::Global(at) => match cx.machine.global.get_mut(at) {
                Some(one) => &mut one.region,
                None => return,
            },
            Home::Shared(rank) => &mut cx.blocks[rank as usize].shared,
            _ => return,
        };
        if does == Does::Reads && region.history.is_still() {
            region.traffic.read(&group.touch(), contiguous);
            return;
        }
        if does == Does::Reads
            && kind == AccessKind::Plain
            && region.put_off(&group.touch(), look.pc, &cx.warp.clock)
        {
            return;
        }
        let (clock, floor) = (&cx.warp.clock, floor(cx.team, group.home));
        group
            .touch()
            .lines(contiguous, |line| look.line(region, line, clock, floor));
    }
    if look.has_found() {
        tell(cx, group, look, changes);
    }
}

/// Remembers who uses a peer's shared memory. A strong access may itself be what the peer waits for.
#[inline]
fn note_guest(cx: &mut Cx<'_>, group: &Group, kind: AccessKind) {
    let Home::Shared(rank) = group.home else {
        return;
    };
    if rank == cx.warp.rank || kind != AccessKind::Plain || !cx.machine.options.checks.races {
        return;
    }
    let pc = cx.fragment.pc;
    let guests = &mut cx.blocks[rank as usize].guests;
    for lane in each(group.mask) {
        guests.note((Part::Looks, 0), &cx.warp.clock, lane as u8, pc);
    }
}

/// Checks a write to shared memory that starts now and may happen at any time until it is waited
/// for: all earlier accesses must be known already. It is recorded when it is over.
pub(crate) fn foresee(cx: &mut Cx<'_>, group: &Group) {
    let (checks, geography) = cx.machine.watches();
    let (Home::Shared(rank), true) = (group.home, checks.races) else {
        return;
    };
    let pc = cx.fragment.pc;
    let (clock, floor) = (&cx.warp.clock, floor(cx.team, group.home));
    let history = &mut cx.blocks[rank as usize].shared.history;
    let touch = group.touch();
    let mut found = None;
    touch.lines(touch.is_contiguous(), |part| {
        if found.is_none() {
            let access = Access::of(part, true, AccessKind::Copy, pc);
            let conflict = history.foresee(part.line, &access, clock, geography, floor);
            found = conflict.map(|conflict| (conflict, part.line));
        }
    });
    if let Some((conflict, line)) = found {
        let offset = line * LINE as u64 + u64::from(conflict.byte);
        let conflict = named(cx, group, offset, conflict, pc);
        let kind = AccessKind::Plain;
        report_race(cx, group.home, offset, conflict, Does::Writes, kind);
    }
}

/// Records a write that was checked when it started.
pub(crate) fn record_foreseen(cx: &mut Cx<'_>, group: &Group, kind: AccessKind) {
    let mut look = Look::at(cx.fragment.pc, cx.machine.watches(), Does::Writes, kind);
    let Home::Shared(rank) = group.home else {
        return;
    };
    let (clock, floor) = (&cx.warp.clock, floor(cx.team, group.home));
    let region = &mut cx.blocks[rank as usize].shared;
    let touch = group.touch();
    touch.lines(touch.is_contiguous(), |line| {
        look.line(region, line, clock, floor)
    });
}

/// The epoch below which all agents that can reach this memory have synchronised; cluster barriers
/// do not count for global memory.
#[inline(always)]
pub(crate) fn floor(team: &Team, home: Home) -> &Floor {
    match home {
        Home::Shared(_) => &team.floor,
        _ => const { &Floor::NONE },
    }
}

/// The check of an access, line by line.
pub(crate) struct Look {
    does: Does,
    kind: AccessKind,
    pc: u32,
    checks: Checks,
    geography: Geography,
    /// Whether the cause of the uninitialised bytes was reported already.
    told: bool,
    /// The first uninitialised byte.
    unwritten: Option<u64>,
    /// The first race, and its line.
    found: Option<(Conflict, u64)>,
    /// The first one that is none between two writes.
    with_read: Option<(Conflict, u64)>,
    /// All of those between two writes, by line.
    clashes: Vec<(u64, Clash)>,
}

impl Look {
    /// Of the instruction at `pc`.
    #[inline(always)]
    pub(crate) fn at(
        pc: u32,
        (checks, geography): (Checks, Geography),
        does: Does,
        kind: AccessKind,
    ) -> Look {
        Look {
            does,
            kind,
            pc,
            checks,
            geography,
            told: false,
            unwritten: None,
            found: None,
            with_read: None,
            clashes: Vec::new(),
        }
    }

    /// Checks and records the part of the access in one line.
    #[inline(always)]
    pub(crate) fn line(
        &mut self,
        region: &mut Region,
        line: &LineTouch<'_>,
        clock: &WarpClock,
        floor: &Floor,
    ) {
        let write = self.does == Does::Writes;
        region.note(line.line, line.bytes, write);
        region.tell(line.line, line.bytes, write, self.kind.scope().is_some());
        if write {
            region.mark_line(line.line, line.bytes);
        } else if self.checks.unwritten {
            let missing = region.unwritten_in(line.line, line.bytes);
            if missing != 0 && self.unwritten.is_none() {
                self.unwritten =
                    Some(line.line * LINE as u64 + u64::from(missing.trailing_zeros()));
            }
        }
        if !self.checks.races {
            return;
        }
        if let Some(order) = line.order
            && self.kind == AccessKind::Plain
            && region
                .history
                .access_in_order(line.line, (write, order), self.pc, clock)
        {
            return;
        }
        self.record(&mut region.history, line, clock, floor);
    }

    /// Checks the part of the access in one line for races, and records it.
    #[inline(never)]
    fn record(
        &mut self,
        history: &mut History,
        line: &LineTouch<'_>,
        clock: &WarpClock,
        floor: &Floor,
    ) {
        let access = Access::of(line, self.does == Does::Writes, self.kind, self.pc);
        let conflict = history.access(line.line, &access, clock, self.geography, floor);
        if let Some(conflict) = conflict {
            self.note(history, (conflict, line.line));
        }
    }

    #[cold]
    fn note(&mut self, history: &mut History, found: (Conflict, u64)) {
        let (conflict, line) = found;
        self.found.get_or_insert(found);
        if self.does == Does::Writes && conflict.their_write {
            let clashes = history.clashes(line).into_iter();
            self.clashes.extend(clashes.map(|clash| (line, clash)));
        } else {
            self.with_read.get_or_insert(found);
        }
    }

    /// The first race, without those between two writes of the same value. A warp writes many values:
    /// some may be new where nobody else writes, and the same where others do.
    fn harmful(
        self,
        cx: &mut Cx<'_>,
        group: &Group,
        changes: impl Fn(&mut Cx<'_>, u64) -> u128,
    ) -> Option<(Conflict, u64)> {
        let first = self.found?;
        if self.clashes.is_empty() || self.checks.same_value || !first.0.their_write {
            return Some(first);
        }
        let touch = group.touch();
        let differs = |&(line, ref clash): &(u64, Clash)| {
            let changed = changes(cx, line);
            let mut found = None;
            touch.lines(touch.is_contiguous(), |part| {
                if part.line == line && found.is_none() {
                    let access = Access::of(part, true, self.kind, self.pc);
                    found = clash.among(&access, changed, &cx.warp.clock);
                }
            });
            found.map(|conflict| (conflict, line))
        };
        self.clashes.iter().find_map(differs).or(self.with_read)
    }

    /// Whether there is something to report.
    #[inline]
    pub(crate) fn has_found(&self) -> bool {
        self.unwritten.is_some() || self.found.is_some()
    }
}

/// Reports what a look has found.
#[cold]
pub(crate) fn tell(
    cx: &mut Cx<'_>,
    group: &Group,
    look: Look,
    changes: impl Fn(&mut Cx<'_>, u64) -> u128,
) {
    let (pc, does, kind) = (look.pc, look.does, look.kind);
    if let Some(offset) = look.unwritten
        && !look.told
        && look.found.is_none_or(|(conflict, _)| {
            !matches!(
                conflict.their_kind,
                AccessKind::Async | AccessKind::Reduction | AccessKind::Delivered
            )
        })
        && !super::doubt::loaded(cx, group)
    {
        report_unwritten(cx, group, offset);
    }
    if let Some((conflict, line)) = look.harmful(cx, group, changes)
        && !(matches!(group.home, Home::Shared(_)) && is_ordered_in_shared(cx, &conflict))
    {
        let offset = line * LINE as u64 + u64::from(conflict.byte);
        let conflict = named(cx, group, offset, conflict, pc);
        report_race(cx, group.home, offset, conflict, does, kind);
    }
}

/// Whether fences that order accesses to shared memory alone stand between the two.
fn is_ordered_in_shared(cx: &Cx<'_>, conflict: &Conflict) -> bool {
    let access = (conflict.agent, conflict.their_clock, conflict.their_lane);
    let clock = &cx.warp.clock;
    clock.knows_fenced(Behind::Restricted, access, conflict.lane)
}

/// A conflict with the lanes of both accesses where they are known, and never the same lane twice:
/// a line records that several lanes of a warp touched a cell, not which.
fn named(cx: &Cx<'_>, group: &Group, offset: u64, conflict: Conflict, pc: u32) -> Conflict {
    let own = conflict.agent == cx.warp.clock.agent;
    let size = u64::from(group.size);
    let here = |lane: &usize| offset.wrapping_sub(group.offsets[*lane]) < size;
    let mut lanes = each(group.mask).filter(here).map(|lane| lane as u8);
    let mut conflict = conflict;
    if conflict.lane == SEVERAL || (own && conflict.lane == conflict.their_lane) {
        let other = lanes.find(|&lane| !own || lane != conflict.their_lane);
        conflict.lane = other.unwrap_or(conflict.lane);
    }
    // Two lanes of one instruction: take the next active lane.
    if own && conflict.their_lane == SEVERAL && conflict.their_pc == pc {
        let other = lanes.find(|&lane| lane != conflict.lane);
        conflict.their_lane = other.unwrap_or(SEVERAL);
    }
    conflict
}
