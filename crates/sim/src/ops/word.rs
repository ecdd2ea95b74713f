//! Plain loads and stores of a 32-bit word, the commonest accesses there are: whole warps,
//! to global memory or the block's own shared memory, in a shape that the instruction has
//! had before ([`pattern`](super::pattern)). All checks are made, once for each line instead
//! of once for each lane. Whatever else there is to it makes the quick way give up before
//! anything has happened, and [`Load`] or [`Store`] does it.

use super::access::{Does, Group, Home, Look, tell};
use super::load::Load;
use super::pattern::{Memory, Pattern, WORD, Ways};
use super::store::Store;
use crate::code::{Code, Flow, Instr, Slot};
use crate::context::{Cx, rows};
use crate::decode::operand::{Addr, Base};
use crate::engine::cluster::Block;
use crate::engine::warp::Warp;
use crate::lanes::{ALL, Lane, Row, wide};
use crate::memory::global::Global;
use crate::memory::region::Region;
use crate::memory::window::{PEER_SHIFT, Window};
use crate::race::shadow::Kind;

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
        Some((target, Window::Shared)) => Box::new(LoadWord::<true> { target, long }),
        Some((target, Window::Global)) => Box::new(LoadWord::<false> { target, long }),
        _ => Box::new(long),
    }
}

/// A store as what does it best.
pub(super) fn store(long: Store, word: Option<(Slot, Window)>) -> Box<dyn Instr> {
    match word {
        Some((source, Window::Shared)) => Box::new(StoreWord::<true> { source, long }),
        Some((source, Window::Global)) => Box::new(StoreWord::<false> { source, long }),
        _ => Box::new(long),
    }
}

impl<const SHARED: bool> Instr for LoadWord<SHARED> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let quick = cx.mask == ALL
            && wide(
                #[inline(always)]
                || match SHARED && is_quiet(cx) {
                    true => self.quietly(cx),
                    false => self.watched(cx),
                },
            )
            .is_some();
        if quick {
            return Flow::Next;
        }
        the_long_way(cx, self.long.addr(), &self.long)
    }
}

impl<const SHARED: bool> Instr for StoreWord<SHARED> {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let quick = cx.mask == ALL
            && wide(
                #[inline(always)]
                || self.watched(cx),
            )
            .is_some();
        if quick {
            cx.machine.changes += 1;
            cx.team.progress += 1;
            return Flow::Next;
        }
        the_long_way(cx, self.long.addr(), &self.long)
    }
}

/// Whether reads of the block's shared memory are only to be remembered.
#[inline(always)]
fn is_quiet(cx: &Cx<'_>) -> bool {
    let block = cx.blocks.get(cx.warp.rank as usize);
    block.is_some_and(|block| block.shared.history.is_quiet())
}

/// Does an access, and remembers its shape.
#[inline(never)]
fn the_long_way(cx: &mut Cx<'_>, addr: &Addr, instr: &dyn Instr) -> Flow {
    let pc = cx.fragment.pc;
    if cx.mask == ALL && cx.machine.patterns.misses(pc) {
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
fn own_shared(blocks: &mut [Block], rank: u32, address: u64) -> Option<&mut Region> {
    let block = blocks.get_mut(rank as usize)?;
    let calm = block.flights.is_empty() && block.mbarriers.is_empty() && block.expected.is_empty();
    (calm && address < 1 << PEER_SHIFT).then_some(&mut block.shared)
}

/// An access in a shape that its instruction has had before, and the memory that all of
/// it lies in.
struct Place<'a> {
    pattern: &'a Pattern,
    home: Home,
    /// Where in the memory lane 0 lies.
    start: u64,
    region: &'a mut Region,
}

impl Place<'_> {
    fn group(&self) -> Group {
        Group {
            home: self.home,
            mask: ALL,
            offsets: self.pattern.offsets(self.start),
            size: WORD,
        }
    }
}

/// Finds the place of an access, without a trace of it.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn find<'a, const SHARED: bool>(
    addr: &Addr,
    memory: &'a mut Memory,
    code: &Code,
    warp: &Warp,
    window: u32,
    blocks: &'a mut [Block],
    shared_len: u32,
    global: &'a mut Global,
) -> Option<Place<'a>> {
    let (pattern, address) = shape(addr, &memory.ways, code, &warp.regs, window)?;
    let (home, start, len, region) = if SHARED {
        let region = own_shared(blocks, warp.rank, address)?;
        (
            Home::Shared(warp.rank),
            address,
            u64::from(shared_len),
            region,
        )
    } else {
        let (at, base, len, region) = allocation(global, memory.recent, address)?;
        memory.recent = at;
        (Home::Global(at), address - base, len, region)
    };
    memory.misses = 0;
    pattern.is_inside(start, len).then_some(Place {
        pattern,
        home,
        start,
        region,
    })
}

impl<const SHARED: bool> LoadWord<SHARED> {
    /// Loads from shared memory that nobody has written since all have met.
    #[inline(always)]
    fn quietly(&self, cx: &mut Cx<'_>) -> Option<()> {
        let pc = cx.fragment.pc;
        let (machine, window) = (&mut *cx.machine, cx.fragment.base);
        let place = find::<true>(
            self.long.addr(),
            machine.patterns.of(pc)?,
            cx.code,
            cx.warp,
            window,
            cx.blocks,
            machine.shared_len,
            &mut machine.global,
        )?;
        let before = place.region.history.waiting();
        for part in place.pattern.parts() {
            let line = part.line(place.start);
            let missing = place.region.unwritten_in(line, part.bytes());
            let history = &mut place.region.history;
            if (missing != 0 && machine.options.checks.unwritten)
                || !history.put_off(line, part.cells(), pc, &cx.warp.clock)
            {
                history.take_back(before);
                return None;
            }
        }
        let row = (self.target.row() + window) as usize;
        let values = &mut cx.warp.regs[row].0;
        place.pattern.load(place.region, place.start, values);
        Some(())
    }

    /// Loads from memory that others may have written.
    #[inline(always)]
    fn watched(&self, cx: &mut Cx<'_>) -> Option<()> {
        let pc = cx.fragment.pc;
        let watches = cx.machine.watches();
        let (machine, window) = (&mut *cx.machine, cx.fragment.base);
        let place = find::<SHARED>(
            self.long.addr(),
            machine.patterns.of(pc)?,
            cx.code,
            cx.warp,
            window,
            cx.blocks,
            machine.shared_len,
            &mut machine.global,
        )?;
        let row = (self.target.row() + window) as usize;
        let values = &mut cx.warp.regs[row].0;
        place.pattern.load(place.region, place.start, values);
        let mut look = Look::at(pc, watches, Does::Reads, Kind::Plain);
        for part in place.pattern.parts() {
            let touch = part.touch(place.start);
            look.line(place.region, &touch, &cx.warp.clock, &cx.team.floor);
        }
        if look.has_found() {
            let group = place.group();
            tell(cx, &group, look, |_| false);
        }
        Some(())
    }
}

impl<const SHARED: bool> StoreWord<SHARED> {
    /// Stores where others may look.
    #[inline(always)]
    fn watched(&self, cx: &mut Cx<'_>) -> Option<()> {
        let pc = cx.fragment.pc;
        let machine = &mut *cx.machine;
        let mut look = Look::at(pc, machine.watches(), Does::Writes, Kind::Plain);
        let window = cx.fragment.base;
        let place = find::<SHARED>(
            self.long.addr(),
            machine.patterns.of(pc)?,
            cx.code,
            cx.warp,
            window,
            cx.blocks,
            machine.shared_len,
            &mut machine.global,
        )?;
        if place.pattern.is_shared() {
            return None;
        }
        for part in place.pattern.parts() {
            let touch = part.touch(place.start);
            look.line(place.region, &touch, &cx.warp.clock, &cx.team.floor);
        }
        let values = u32::view(rows(cx.code, &cx.warp.regs, window, self.source, 1));
        if !look.has_found() {
            place.pattern.store(place.region, place.start, values);
            return Some(());
        }
        // Whether it changes anything is asked before it does.
        let (group, values) = (place.group(), *values);
        tell(cx, &group, look, |cx| self.long.changes_nothing(cx, &group));
        if let Some(region) = cx.region(group.home) {
            region.scatter::<u32>(&group.offsets, ALL, 0, &values);
        }
        Some(())
    }
}
