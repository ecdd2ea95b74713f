//! Synchronisation by strong accesses (acquire and release): see [`crate::race::sync`].

use super::context::Cx;
use super::group::{Group, Home};
use crate::lanes::{LANES, Mask, each};
use crate::race::access::{AccessKind, Scope};
use crate::race::clock::SEVERAL;
use crate::race::shadow::Seen;
use crate::state::follow::Written;
use crate::state::machine::Spinners;
use std::sync::Arc;

/// A key of a location that is the same for all blocks that can reach it.
fn key(cx: &Cx<'_>, home: Home, offset: u64) -> Option<u64> {
    match home {
        Home::Global(at) => cx.machine.global.get(at).map(|one| one.base + offset),
        Home::Shared(rank) => {
            Some(1 << 63 | u64::from(cx.blocks[rank as usize].number) << 24 | offset)
        }
        _ => None,
    }
}

fn scope_and_sides(order: Order) -> (Scope, bool, bool) {
    match order {
        Order::Weak => (Scope::Block, false, false),
        Order::Relaxed(scope) => (scope, false, false),
        Order::Acquire(scope) => (scope, true, false),
        Order::Release(scope) => (scope, false, true),
        Order::Both(scope) => (scope, true, true),
    }
}

/// Lanes by location.
fn by_place(group: &Group) -> impl Iterator<Item = (u64, Mask)> {
    let mut rest = group.mask;
    let offsets: [u64; LANES] = group.offsets;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let offset = offsets[crate::lanes::first(rest)];
        let here = each(rest)
            .filter(|&lane| offsets[lane] == offset)
            .fold(0, |mask, lane| mask | 1 << lane);
        rest &= !here;
        Some((offset, here))
    })
}

/// A strong read: it may acquire, by its own order or with a later fence.
pub(crate) fn read(cx: &mut Cx<'_>, group: &Group, order: Order) {
    note_flag(cx, group);
    if !cx.machine.options.checks.races || cx.machine.flags.is_empty() {
        return;
    }
    let (scope, acquires, _) = scope_and_sides(order);
    let block = cx.blocks[cx.warp.rank as usize].number;
    let geography = cx.machine.geography;
    let live = cx.warp.live;
    for (offset, lanes) in by_place(group) {
        let Some(key) = key(cx, group.home, offset) else {
            continue;
        };
        let flags = &cx.machine.flags;
        for missed in flags.out_of_reach(key, scope, block) {
            cx.warp.fences.miss(Arc::clone(missed));
        }
        for offer in flags.offers(key, scope, block, geography) {
            if acquires {
                cx.warp.clock.acquire(&offer.clock, lanes, live);
            } else {
                cx.warp.fences.saw(lanes, key, offer);
            }
        }
        if acquires {
            for (lanes, clock) in cx.warp.fences.take_seen(lanes, scope, Some(key)) {
                cx.warp.clock.acquire(&clock, lanes, live);
            }
        }
    }
}

/// Notes for each lane a strong write of another thread to what it reads, if nothing orders that write
/// before the read. Only where somebody follows the values.
pub(crate) fn note_missed(cx: &mut Cx<'_>, group: &Group) {
    let Some(mut missed) = cx.warp.missed.take() else {
        return;
    };
    for lane in each(group.mask) {
        let offset = group.offsets[lane];
        let bytes = ((1u128 << group.size) - 1) << (offset % 128);
        let mut writes = Vec::new();
        if let Some(region) = cx.region(group.home) {
            let strong = |seen: &Seen| seen.write && seen.kind.scope().is_some();
            let history = &region.history;
            history.each(offset / 128, bytes, |seen| {
                writes.extend(Some(seen).filter(strong))
            });
        }
        let (clock, lane) = (&cx.warp.clock, lane as u8);
        // Lanes of its own warp that wrote together may be this one.
        let foreign =
            |seen: &Seen| seen.agent != clock.agent || seen.lane != lane && seen.lane != SEVERAL;
        let unknown =
            |seen: &&Seen| foreign(seen) && !clock.knows(seen.agent, seen.clock, seen.lane, lane);
        let found = writes.iter().find(unknown).map(|seen| Written {
            agent: seen.agent,
            lane: seen.lane,
            pc: seen.pc,
        });
        missed[usize::from(lane)] = found;
    }
    cx.warp.missed = Some(missed);
}

/// Remembers which other block set the flag that is read.
fn note_flag(cx: &mut Cx<'_>, group: &Group) {
    let (Home::Global(_), true) = (group.home, cx.machine.options.checks.races) else {
        return;
    };
    let own = cx.blocks[cx.warp.rank as usize].number;
    let geography = cx.machine.geography;
    let offset = group.offsets[crate::lanes::first(group.mask)];
    let mut setter = None;
    if let Some(region) = cx.region(group.home) {
        region
            .history
            .each(offset / 128, 1 << (offset % 128), |seen| {
                let wide = seen.kind.scope().is_some_and(|scope| scope >= Scope::Gpu);
                if seen.write && wide && geography.block(seen.agent) != own {
                    setter = Some(geography.block(seen.agent));
                }
            });
    }
    if setter.is_some() {
        cx.warp.flag_setter = setter;
    }
}

/// A strong write: it may release, by its own order or for a fence before it. `reads` marks a
/// read-modify-write, which continues the release sequence of the value before.
pub(crate) fn write(cx: &mut Cx<'_>, group: &Group, order: Order, reads: bool) {
    if !cx.machine.options.checks.races {
        return;
    }
    let (scope, _, releases) = scope_and_sides(order);
    let block = cx.blocks[cx.warp.rank as usize].number;
    for (offset, lanes) in by_place(group) {
        let Some(key) = key(cx, group.home, offset) else {
            continue;
        };
        let geography = cx.machine.geography;
        let flags = &mut cx.machine.flags;
        flags.write(key, (scope, block), geography, reads);
        let fences = &cx.warp.fences;
        let covered: Vec<_> = fences
            .covered(lanes)
            .chain(fences.covered_through(key, lanes))
            .map(|(fence, clock)| (fence, Arc::clone(clock)))
            .collect();
        for (fence, clock) in covered {
            let scopes = (fence, scope);
            cx.machine.flags.release(key, scopes, block, clock);
        }
        if releases {
            let live = cx.warp.live;
            let clock = Arc::new(cx.warp.clock.release(lanes, live));
            let fences = &mut cx.warp.fences;
            fences.released_through(key, lanes, scope, Arc::clone(&clock));
            let scopes = (scope, scope);
            cx.machine.flags.release(key, scopes, block, clock);
        }
    }
}

/// Strong reads of a warp without any write in between, after which it is a livelock whatever the
/// other warps do: tens of milliseconds of modelled time.
const IN_VAIN: u32 = 200_000;

/// Counts a strong read, or an atomic that changes nothing; reports a livelock and returns true when no thread can still change the
/// value.
pub(crate) fn spins(cx: &mut Cx<'_>) -> bool {
    let changes = cx.machine.changes;
    let (seen, count) = &mut cx.warp.spinning;
    if *seen == changes {
        *count += 1;
    } else {
        (*seen, *count) = (changes, 0);
    }
    let count = *count;
    let spinners = &mut cx.machine.spinners;
    spinners.look |= count > 0 && count.is_multiple_of(Spinners::OFTEN);
    let alone = spinners.alone == Some(changes);
    if alone || count > IN_VAIN {
        cx.report(heist_ptx::rule::LIVELOCK, cx.mask, |_, mut told| {
            told.message = match alone {
                true => "a thread reads this over and over, and so does or waits every other thread that runs: nobody is left to write it".to_owned(),
                false => format!("a thread has read this {IN_VAIN} times while nobody on the device wrote anything"),
            };
            told.help("whoever is to change it has exited, waits itself, or is not launched yet: blocks that wait for each other must all be resident")
        });
        return true;
    }
    false
}

/// The memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Weak,
    /// Volatile, relaxed, mmio.
    Relaxed(Scope),
    Acquire(Scope),
    Release(Scope),
    Both(Scope),
}

impl Order {
    /// The kind of a load or store of elements of this size.
    pub(crate) fn kind(self, bytes: u8) -> AccessKind {
        match self {
            Order::Weak => AccessKind::Plain,
            Order::Relaxed(s) | Order::Acquire(s) | Order::Release(s) | Order::Both(s) => {
                AccessKind::Strong(s, bytes)
            }
        }
    }

    /// The kind of an atomic on elements of this size.
    pub(crate) fn atomic_kind(self, bytes: u8) -> AccessKind {
        match self.kind(bytes) {
            AccessKind::Strong(scope, bytes) => AccessKind::Atomic(scope, bytes),
            plain => plain,
        }
    }
}
