//! Plain loads and stores of a 32-bit word, the commonest accesses there are: whole warps,
//! to global memory or the block's own shared memory, in a shape that the instruction has
//! had before ([`pattern`](crate::state::pattern)). All checks are made, once for each line instead
//! of once for each lane. In any other case the fast path gives up before it has any effect, and
//! [`Load`] or [`Store`] does the access.

use super::load::Load;
use super::store::Store;
use crate::access::context::{Cx, rows};
use crate::access::group::{Does, Group, Home};
use crate::access::look::{Look, tell};
use crate::code::{Code, Flow, Slot};
use crate::decode::address::{Addr, Base};
use crate::engine::executable::Instr;
use crate::lanes::{ALL, Lane, Row, wide};
use crate::options::Checks;
use crate::race::access::{AccessKind, Geography};
use crate::race::history::Read;
use crate::race::shadow::Floor;
use crate::state::block::Block;
use crate::state::late::Pass;
use crate::state::memory::global::Global;
use crate::state::memory::region::Region;
use crate::state::memory::window::{SharedPlace, Window};
use crate::state::pattern::{Pattern, WORD, Ways};
use crate::state::warp::Warp;

/// A load of a word into a register of one row; `SHARED` for shared memory, and
/// otherwise of global memory.
pub(super) struct LoadWord<const SHARED: bool> {
    pub(super) target: Slot,
    pub(super) long: Load,
}

/// A store of a word out of a register of one row.
pub(super) struct StoreWord<const SHARED: bool> {
    pub(super) source: Slot,
    pub(super) long: Store,
}

/// A load as what does it best.
pub(super) fn load(long: Load, word: Option<(Slot, Window)>) -> Box<dyn Instr> {
    match word {
        Some((target, Window::Shared | Window::OwnShared)) => {
            Box::new(LoadWord::<true> { target, long })
        }
        Some((target, Window::Global)) => Box::new(LoadWord::<false> { target, long }),
        _ => Box::new(long),
    }
}

/// A store as what does it best.
pub(super) fn store(long: Store, word: Option<(Slot, Window)>) -> Box<dyn Instr> {
    match word {
        Some((source, Window::Shared | Window::OwnShared)) => {
            Box::new(StoreWord::<true> { source, long })
        }
        Some((source, Window::Global)) => Box::new(StoreWord::<false> { source, long }),
        _ => Box::new(long),
    }
}

impl<const SHARED: bool> Instr for LoadWord<SHARED> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let quick = cx.mask == ALL
            && wide(
                #[inline(always)]
                || match SHARED && defers(cx) {
                    true => self.quietly(cx),
                    false => self.in_order(cx),
                },
            )
            .is_some();
        if quick {
            return Flow::Next;
        }
        self.slowly(cx)
    }
}

impl<const SHARED: bool> Instr for StoreWord<SHARED> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        // Which cells have an undefined value is asked there.
        if cx.stores_undefined() {
            return the_long_way(cx, self.long.addr(), &self.long);
        }
        let quick = cx.mask == ALL
            && wide(
                #[inline(always)]
                || self.in_order(cx),
            )
            .is_some();
        if quick {
            return stored(cx);
        }
        self.slowly(cx)
    }
}

/// Goes on behind a store, which may end somebody's wait.
#[inline(always)]
fn stored(cx: &mut Cx<'_>) -> Flow {
    cx.machine.changes += 1;
    cx.team.progress += 1;
    Flow::Next
}

/// Whether reads of the block's shared memory may be deferred.
#[inline(always)]
fn defers(cx: &Cx<'_>) -> bool {
    let block = cx.blocks.get(cx.warp.rank as usize);
    block.is_some_and(|block| block.shared.history.defers())
}

/// Does an access by the slow path, and remembers its shape.
fn the_long_way(cx: &mut Cx<'_>, addr: &Addr, instr: &dyn Instr) -> Flow {
    let pc = cx.fragment.pc;
    if cx.mask == ALL && cx.machine.late.pass == Pass::Finds && cx.machine.patterns.misses(pc) {
        let addresses = addr.eval(cx);
        cx.machine.patterns.learn(pc, &addresses);
    }
    instr.step(cx)
}

/// The shape of an access and the address of its lane 0, if it has one that its
/// instruction remembers.
#[inline(always)]
fn shape<'a>(
    addr: &Addr,
    ways: &'a Ways,
    code: &Code,
    regs: &[Row],
    window: u32,
) -> Option<(&'a Pattern, u64)> {
    match addr.base {
        Base::Long(slot) => {
            let base = u64::view(rows(code, regs, window, slot, 2));
            let address = base[0].wrapping_add(addr.offset as u64);
            let pattern = ways.at(address)?;
            pattern
                .fits_long(base, address)
                .then_some((pattern, address))
        }
        Base::Word(slot) => {
            let base = u32::view(rows(code, regs, window, slot, 1));
            let address = u64::from(base[0].wrapping_add(addr.offset as u32));
            let pattern = ways.at(address)?;
            pattern
                .fits_word(base, address)
                .then_some((pattern, address))
        }
        Base::Frame(_) => None,
    }
}

/// The allocation at an address: its number, where it starts, its length and itself.
/// `recent` is the one of the last time.
#[inline(always)]
fn allocation(
    global: &mut Global,
    recent: usize,
    address: u64,
) -> Option<(usize, u64, u64, &mut Region)> {
    let at = if global.holds(recent, address) {
        recent
    } else {
        global.find(address)?
    };
    let one = global.get_mut(at)?;
    (!one.freed).then_some((at, one.base, one.len, &mut one.region))
}

/// The block's own shared memory, if nothing but plain accesses concern it now.
#[inline(always)]
fn own_shared(blocks: &mut [Block], rank: u32) -> Option<&mut Region> {
    let block = blocks.get_mut(rank as usize)?;
    let calm = block.flights.is_empty() && block.mbarriers.is_empty() && block.expected.is_empty();
    calm.then_some(&mut block.shared)
}

/// An access in a shape that its instruction has had before, the memory that all of it
/// lies in, and the rest of its surroundings.
struct RepeatedAccess<'a> {
    pattern: &'a Pattern,
    home: Home,
    /// Where in the memory lane 0 lies.
    start: u64,
    region: &'a mut Region,
    pc: u32,
    /// Where the register window starts.
    window: u32,
    code: &'a Code,
    warp: &'a mut Warp,
    floor: &'a Floor,
    watches: (Checks, Geography),
}

/// Finds the place of an access that is `good`, without a trace of it.
#[inline(always)]
fn find<'a, const SHARED: bool>(
    addr: &Addr,
    cx: &'a mut Cx<'_>,
    good: impl FnOnce(&Pattern) -> bool,
) -> Option<RepeatedAccess<'a>> {
    let (pc, window) = (cx.fragment.pc, cx.fragment.base);
    let (machine, warp) = (&mut *cx.machine, &mut *cx.warp);
    let watches = machine.watches();
    let memory = machine.patterns.of(pc)?;
    let (pattern, address) = shape(addr, &memory.ways, cx.code, &warp.regs, window)?;
    if !good(pattern) {
        return None;
    }
    let (home, start, len, region) = if SHARED {
        let region = own_shared(cx.blocks, warp.rank)?;
        let (rank, within) = (warp.rank, machine.shared_start);
        let own = u64::from(SharedPlace { rank, within }.address());
        let len = u64::from(machine.shared_len);
        // An address below it, or of a peer, is far beyond its end.
        (Home::Shared(rank), address.wrapping_sub(own), len, region)
    } else {
        let (at, base, len, region) = allocation(&mut machine.global, memory.recent, address)?;
        memory.recent = at;
        (Home::Global(at), address - base, len, region)
    };
    memory.misses = 0;
    pattern.is_inside(start, len).then_some(RepeatedAccess {
        pattern,
        home,
        start,
        region,
        pc,
        window,
        code: cx.code,
        warp,
        floor: crate::access::look::floor(cx.team, home),
        watches,
    })
}

impl RepeatedAccess<'_> {
    fn group(&self) -> Group {
        Group {
            home: self.home,
            mask: ALL,
            offsets: self.pattern.offsets(self.start),
            size: WORD,
        }
    }

    /// Records an access to a whole line in the order of the lanes that conflicts with nothing.
    /// None, without effect, in any other case.
    #[inline(always)]
    fn record_in_order(&mut self, write: bool) -> Option<()> {
        let order = self.pattern.whole_line()?;
        let (checks, line) = (self.watches.0, self.start / 128);
        if !write && self.region.history.is_still() {
            self.region.traffic.touch(line, u128::MAX, false);
            return Some(());
        }
        let missing = !write && checks.unwritten && self.region.unwritten_in(line, u128::MAX) != 0;
        let history = &mut self.region.history;
        if missing
            || !checks.races
            || !history.access_in_order(line, (write, order), self.pc, &self.warp.clock)
        {
            return None;
        }
        self.region.note(line, u128::MAX, write);
        self.region.tell(line, u128::MAX, write, false);
        if write {
            self.region.mark_line(line, u128::MAX);
        }
        Some(())
    }

    /// Checks an access for races, and records it.
    #[inline(always)]
    fn look(&mut self, does: Does) -> Look {
        let mut look = Look::at(self.pc, self.watches, does, AccessKind::Plain);
        if does == Does::Reads && self.region.history.is_still() {
            for part in self.pattern.parts() {
                let line = part.line(self.start);
                self.region.traffic.touch(line, part.bytes(), false);
            }
            return look;
        }
        for part in self.pattern.parts() {
            let touch = part.touch(self.start);
            look.line(self.region, &touch, &self.warp.clock, self.floor);
        }
        look
    }

    /// Defers a read. None, without effect, where it can't be deferred or is of uninitialised
    /// bytes.
    #[inline(always)]
    fn put_off(&mut self) -> Option<()> {
        let (parts, start) = (self.pattern.parts(), self.start);
        for part in parts {
            if self.region.unwritten_in(part.line(start), part.bytes()) != 0 {
                return None;
            }
        }
        let lines = parts.iter().map(|part| part.line(start));
        let (offsets, clock) = (self.pattern.short_offsets(start), &self.warp.clock);
        let read = || Read::of(offsets, (ALL, WORD), self.pc, clock);
        self.region.history.put_off(lines, read).then_some(())
    }
}

impl<const SHARED: bool> LoadWord<SHARED> {
    /// Loads from lines without a write since the last barrier of the block.
    #[inline(always)]
    fn quietly(&self, cx: &mut Cx<'_>) -> Option<()> {
        let mut place = find::<true>(self.long.addr(), cx, |_| true)?;
        place.put_off()?;
        self.move_words(&mut place);
        Some(())
    }

    /// Loads a line in the order of the lanes.
    #[inline(always)]
    fn in_order(&self, cx: &mut Cx<'_>) -> Option<()> {
        let in_order = |pattern: &Pattern| pattern.whole_line().is_some();
        let mut place = find::<SHARED>(self.long.addr(), cx, in_order)?;
        place.record_in_order(false)?;
        let (region, start) = (&*place.region, place.start);
        let row = (self.target.row() + place.window) as usize;
        region.words(start, &mut place.warp.regs[row].0);
        Some(())
    }

    /// Loads from memory that others may have written.
    #[inline(always)]
    fn watched(&self, cx: &mut Cx<'_>) -> Option<()> {
        let mut place = find::<SHARED>(self.long.addr(), cx, |_| true)?;
        self.move_words(&mut place);
        let look = place.look(Does::Reads);
        if look.has_found() {
            let group = place.group();
            tell(cx, &group, look, |_, _| u128::MAX);
        }
        Some(())
    }

    #[inline(always)]
    fn move_words(&self, place: &mut RepeatedAccess<'_>) {
        let row = (self.target.row() + place.window) as usize;
        let values = &mut place.warp.regs[row].0;
        place.pattern.load(place.region, place.start, values);
    }

    /// Loads what is not as simple as that.
    #[inline(never)]
    fn slowly(&self, cx: &mut Cx<'_>) -> Flow {
        let quick = cx.mask == ALL
            && wide(
                #[inline(always)]
                || self.watched(cx),
            )
            .is_some();
        if quick {
            return Flow::Next;
        }
        the_long_way(cx, self.long.addr(), &self.long)
    }
}

impl<const SHARED: bool> StoreWord<SHARED> {
    /// Stores a line in the order of the lanes.
    #[inline(always)]
    fn in_order(&self, cx: &mut Cx<'_>) -> Option<()> {
        let in_order = |pattern: &Pattern| pattern.whole_line().is_some();
        let mut place = find::<SHARED>(self.long.addr(), cx, in_order)?;
        place.record_in_order(true)?;
        let regs = &place.warp.regs;
        let values = u32::view(rows(place.code, regs, place.window, self.source, 1));
        place.region.put_run(place.start, values);
        Some(())
    }

    /// Stores where others may look.
    #[inline(always)]
    fn watched(&self, cx: &mut Cx<'_>) -> Option<()> {
        let apart = |pattern: &Pattern| !pattern.is_shared();
        let mut place = find::<SHARED>(self.long.addr(), cx, apart)?;
        let look = place.look(Does::Writes);
        let regs = &place.warp.regs;
        let values = *u32::view(rows(place.code, regs, place.window, self.source, 1));
        if !look.has_found() {
            place.pattern.store(place.region, place.start, &values);
            return Some(());
        }
        // Whether it changes anything is asked before it does.
        let group = place.group();
        let changes = |cx: &mut Cx<'_>, line| self.long.changes(cx, &group, line);
        tell(cx, &group, look, changes);
        if let Some(region) = cx.region(group.home) {
            region.scatter::<u32>(&group.offsets, ALL, 0, &values);
        }
        Some(())
    }

    /// Stores what is not as simple as that.
    #[inline(never)]
    fn slowly(&self, cx: &mut Cx<'_>) -> Flow {
        let quick = cx.mask == ALL
            && wide(
                #[inline(always)]
                || self.watched(cx),
            )
            .is_some();
        if quick {
            return stored(cx);
        }
        the_long_way(cx, self.long.addr(), &self.long)
    }
}
