//! `cp.async`: copies of a thread, in groups or tied to an mbarrier.
//!
//! The data is read when the copy starts and written when it is waited for; in between the words at
//! its destination are marked as in flight. It may be written at any time until then, so every earlier
//! access to those words must be known when it starts. After the wait it is an ordinary store of the
//! copying lane. Its source may be read at any time until then, too: the race detector records it as read by
//! somebody whom only a wait makes known.

use crate::access::context::Cx;
use crate::access::group::{Does, Group, Home, groups};
use crate::access::look::{foresee, record_foreseen, watch};
use crate::code::{Flow, PredSrc, Reach, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each, first};
use crate::ops::mbarrier::check_use;
use crate::race::access::AccessKind;
use crate::race::clock::{Clock, Known};
use crate::state::copies::Copy;
use crate::state::mbarrier::arrive_later;
use crate::state::memory::region::Region;
use crate::state::memory::window::Window;
use crate::state::users::Part;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// Cycles from a copy's start until its data is there.
const LATENCY: u64 = 600;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("commit_group") {
        let instr = with(|cx| {
            cx.warp.copies.commit();
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    if mods.has("wait_all") {
        let instr = with(|cx| {
            cx.warp.copies.commit();
            wait(cx, 0);
            Flow::Next
        });
        d.emit(instr, Cost::CONTROL);
        return Ok(());
    }
    if mods.has("wait_group") {
        let o = operands(d, i, 1)?;
        let Some(left) = d.immediate(&o[0]) else {
            return Err(d.wrong(rule::OPERAND_KIND, "cp.async.wait_group takes a constant"));
        };
        let instr = with(move |cx| {
            wait(cx, left as usize);
            Flow::Next
        });
        d.emit(instr, Cost::CONTROL);
        return Ok(());
    }
    if mods.has("mbarrier") {
        let o = operands(d, i, 1)?;
        let addr = d.address(&o[0])?;
        let counts = !mods.has("noinc");
        d.emit_reaching(
            with(move |cx| arrive(cx, addr, counts)),
            Cost::new(2, 0),
            Reach::Cluster,
        );
        return Ok(());
    }
    start(d, i, mods)
}

/// `cp.async.cg.shared.global [to], [from], size, source size or predicate`.
fn start(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = &i.operands;
    if o.len() < 3 {
        operands(d, i, 3)?;
    }
    let (to, from) = (d.address(&o[0])?, d.address(&o[1])?);
    let size = d.immediate(&o[2]).unwrap_or(0) as u32;
    if !matches!(size, 4 | 8 | 16) {
        return Err(d.wrong(rule::IMMEDIATE_RANGE, "cp.async copies 4, 8 or 16 bytes"));
    }
    let hint = usize::from(mods.has("L2::cache_hint"));
    let mut ignore: Option<PredSrc> = None;
    let mut taken: Option<Slot> = None;
    if o.len() - hint > 3 {
        match &o[3] {
            Operand::Name(name)
                if d.register(name)
                    .is_ok_and(|register| register.ty == ScalarType::Pred) =>
            {
                ignore = Some(d.pred_src(&o[3])?);
            }
            Operand::Not(_) => ignore = Some(d.pred_src(&o[3])?),
            other => taken = Some(d.src(other, ScalarType::U32)?),
        }
    }
    d.trail.copies = true;
    let instr = with(move |cx| copy(cx, to, from, size, ignore, taken));
    d.emit(instr, Cost::new(4, 0));
    Ok(())
}

/// Reads `size` bytes of global memory in each lane of [`Cx::mask`], and puts them behind the
/// first `done`.
fn read_piece(
    cx: &mut Cx<'_>,
    from: &[u64; LANES],
    size: u32,
    done: u32,
    (data, holes): (&mut [u128; LANES], &mut [u16; LANES]),
) {
    let window = Some(Window::Global);
    groups(cx, window, from, size, Does::Reads, |cx, group| {
        let contiguous = group.touch().is_contiguous();
        watch(cx, group, contiguous, Does::Reads, AccessKind::Plain);
        reads_until_waited_for(cx, group, contiguous);
        if let Some(region) = cx.region(group.home) {
            for lane in each(group.mask) {
                let offset = group.offsets[lane];
                data[lane] |= region.read(offset, size as usize) << (8 * done);
                if !region.written().is_empty() {
                    holes[lane] |= region.unwritten_of(offset, size as usize) << done;
                }
            }
        }
    });
}

/// Records that a source may be read until the copy is waited for.
fn reads_until_waited_for(cx: &mut Cx<'_>, group: &Group, contiguous: bool) {
    let races = cx.machine.options.checks.races;
    let moves = |region: &mut Region| !region.history.is_still();
    if !races || !cx.region(group.home).is_some_and(moves) {
        return;
    }
    let block = &mut cx.blocks[cx.warp.rank as usize];
    let copies = &mut cx.warp.copies;
    let reader = copies
        .reader
        .get_or_insert_with(|| block.mbarriers.new_agent(block.number));
    let (by, pc) = ((*reader, copies.before + 1), cx.fragment.pc);
    if let Some(region) = cx.region(group.home) {
        group.touch().lines(contiguous, |touch| {
            let history = &mut region.history;
            history.read_by_proxy(touch.line, touch.bytes, AccessKind::Copy, by, pc);
        });
    }
}

/// What whoever waits for the groups up to a number knows: their sources are read.
fn read_up_to(cx: &Cx<'_>, number: u32) -> Clock {
    let mut known = Clock::default();
    if let Some(reader) = cx.warp.copies.reader {
        known.learn(reader, Known::all(number + 1));
    }
    known
}

fn copy(
    cx: &mut Cx<'_>,
    to: Addr,
    from: Addr,
    size: u32,
    ignore: Option<PredSrc>,
    taken: Option<Slot>,
) -> Flow {
    let sources = from.eval(cx);
    let lengths = taken.map_or([size; LANES], |slot| *cx.row(slot));
    let ignored = ignore.map_or(0, |source| cx.pred(source));
    let all = cx.mask;
    let (mut data, mut holes) = ([0; LANES], [0; LANES]);
    // The lanes that read anything, and each only what it takes: in pieces that are
    // powers of two, largest first.
    let mut rest = all & !ignored;
    while rest != 0 {
        let len = lengths[first(rest)].min(size);
        cx.mask = each(rest)
            .filter(|&lane| lengths[lane].min(size) == len)
            .fold(0, |m, lane| m | 1 << lane);
        rest &= !cx.mask;
        let mut done = 0;
        while done < len {
            let piece = 1 << (len - done).ilog2();
            let from = crate::lanes::map1(sources, |one| one.wrapping_add(u64::from(done)));
            read_piece(cx, &from, piece, done, (&mut data, &mut holes));
            done += piece;
        }
    }
    cx.mask = all;
    let targets = to.eval(cx);
    let (pc, ready) = (cx.pc(), cx.now() + LATENCY);
    let mut made = None;
    let same_value = cx.machine.options.checks.same_value;
    groups(
        cx,
        Some(Window::OwnShared),
        &targets,
        size,
        Does::Writes,
        |cx, group| {
            crate::access::flight::check(cx, group, Does::Writes);
            foresee(cx, group);
            let rank = cx.warp.rank;
            let mut twice = None;
            let expected = &mut cx.blocks[rank as usize].expected;
            for lane in each(group.mask) {
                // Lanes that bring the same bytes to one place leave no doubt about them.
                let again = |other: usize| {
                    group.offsets[other] == group.offsets[lane] && data[other] == data[lane]
                };
                if !same_value
                    && each(group.mask)
                        .take_while(|&other| other < lane)
                        .any(again)
                {
                    continue;
                }
                if let Some(other) = expected.expect(group.offsets[lane], size, pc) {
                    twice = Some((lane, other));
                }
            }
            if let Some((lane, other)) = twice {
                cx.report(rule::ASYNC_OVERLAP, 1 << lane, |cx, mut told| {
                    told.message =
                        "copies to words that another cp.async is still on its way to".to_owned();
                    told.other(cx.code.span(other), "that one starts here")
                        .help("wait for the first copy before the next one to the same place")
                });
            }
            made = Some((group.mask, group.offsets));
        },
    );
    if let Some((mask, offsets)) = made {
        cx.warp.copies.open.push(Copy {
            pc,
            mask,
            offsets,
            size,
            data,
            holes,
            number: cx.warp.copies.before + 1,
            ready,
        });
    }
    Flow::Next
}

/// Waits until at most `left` groups are on their way.
fn wait(cx: &mut Cx<'_>, left: usize) {
    while cx.warp.copies.groups.len() > left {
        let mut group = cx.warp.copies.groups.pop_front().unwrap_or_default();
        for copy in &group {
            cx.warp.advance(copy.ready);
            put_down(cx, copy);
        }
        group.clear();
        cx.warp.copies.spare.push(group);
    }
    if cx.warp.copies.reader.is_some() {
        // Other lanes may have waited before these, for the copies of the whole warp.
        let over = cx.warp.copies.before - cx.warp.copies.groups.len() as u32;
        let known = read_up_to(cx, over);
        cx.warp.clock.acquire(&known, cx.mask, cx.warp.live);
    }
    cx.team.progress += 1;
}

/// The data of a copy arrives: a store of the lanes that copied.
fn put_down(cx: &mut Cx<'_>, copy: &Copy) {
    let rank = cx.warp.rank;
    let (mask, pc) = (cx.mask, cx.fragment.pc);
    cx.mask = copy.mask;
    let expected = &mut cx.blocks[rank as usize].expected;
    for lane in each(copy.mask) {
        expected.land(copy.offsets[lane], copy.size);
    }
    // The trace names the copy, not the wait.
    cx.fragment.pc = copy.pc;
    let group = Group {
        home: Home::Shared(rank),
        mask: copy.mask,
        offsets: copy.offsets,
        size: copy.size,
    };
    record_foreseen(cx, &group, AccessKind::Copy);
    let shared = &mut cx.blocks[rank as usize].shared;
    for lane in each(copy.mask) {
        write(shared, copy, lane);
    }
    (cx.mask, cx.fragment.pc) = (mask, pc);
}

/// Writes what a lane has copied; bytes that nothing has written stay so.
fn write(shared: &mut Region, copy: &Copy, lane: usize) {
    shared.write(copy.offsets[lane], copy.size as usize, copy.data[lane]);
    for hole in each(copy.holes[lane].into()) {
        shared.unmark(copy.offsets[lane] + hole as u64, 1);
    }
}

/// `cp.async.mbarrier.arrive`: an arrival when all copies so far have completed.
fn arrive(cx: &mut Cx<'_>, addr: Addr, counts: bool) -> Flow {
    let addresses = addr.eval(cx);
    let rank = cx.warp.rank;
    let mut copies = std::mem::take(&mut cx.warp.copies.open);
    copies.extend(
        std::mem::take(&mut cx.warp.copies.groups)
            .into_iter()
            .flatten(),
    );
    let ready = copies
        .iter()
        .map(|copy| copy.ready)
        .max()
        .unwrap_or(0)
        .max(cx.now() + 20);
    let mut places: Vec<(u32, u32)> = Vec::new();
    groups(
        cx,
        Some(Window::OwnShared),
        &addresses,
        8,
        Does::Writes,
        |cx, group| {
            for lane in each(group.mask) {
                let offset = group.offsets[lane] as u32;
                if check_use(cx, lane, (rank, offset), Part::Counts) {
                    match places.iter_mut().find(|(at, _)| *at == offset) {
                        Some((_, count)) => *count += 1,
                        None => places.push((offset, 1)),
                    }
                }
            }
        },
    );
    let live = cx.warp.live;
    let mut clock = cx.warp.clock.release(cx.mask, live);
    // Copies from here on are not told by this arrival.
    cx.warp.copies.before += 1;
    if let Some(last) = copies.iter().map(|copy| copy.number).max() {
        clock.join(&read_up_to(cx, last));
    }
    if counts {
        for &(offset, count) in &places {
            if let Some(barrier) = cx.blocks[rank as usize].mbarriers.get_mut(offset) {
                barrier.pending += count;
            }
        }
    }
    let pc = cx.pc();
    cx.team.after(ready, move |happening| {
        let block = &mut happening.blocks[rank as usize];
        let Some(&(first, _)) = places.first() else {
            return;
        };
        let stamp = block
            .mbarriers
            .get(first)
            .map(crate::state::mbarrier::Mbarrier::stamp);
        for copy in &copies {
            for lane in each(copy.mask) {
                block.expected.land(copy.offsets[lane], copy.size);
                write(&mut block.shared, copy, lane);
                if let Some(stamp) = stamp {
                    let start = copy.offsets[lane];
                    crate::access::flight::written(
                        &mut block.shared,
                        start..start + u64::from(copy.size),
                        AccessKind::Delivered,
                        stamp,
                        copy.pc,
                    );
                }
            }
        }
        happening.team.progress += 1;
        for &(offset, count) in &places {
            let short = arrive_later(
                &mut block.mbarriers,
                &mut happening.team.phases,
                (rank, offset),
                count,
                &clock,
                happening.time,
                pc,
            );
            if let Some(short) = short {
                short.tell(happening.code, happening.machine);
            }
        }
    });
    Flow::Next
}
