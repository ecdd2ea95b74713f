//! `tcgen05.alloc`, `tcgen05.dealloc` and `tcgen05.relinquish_alloc_permit`.

use super::issue::{TensorAddress, check_group, check_there, is_pair};
use crate::access::context::Cx;
use crate::access::group::{Does, groups};
use crate::access::look::watch;
use crate::access::tensor_memory::{Doing, check};
use crate::code::{Flow, Reach, Slot, Wait};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::qualifier::window_of;
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, first};
use crate::ops::matrix::operands::assemble;
use crate::race::access::AccessKind;
use crate::state::memory::window::Window;
use crate::state::tensor_memory::{Allocation, GRAIN, Request, Span, Step, What};
use heist_ptx::{Instruction, ScalarType, rule};

/// Failed attempts after which columns count as never free: at first one every few cycles, then
/// with exponential backoff.
const PATIENCE: u32 = 256 + 16;

const KNOWN: &[&str] = &[
    "alloc",
    "dealloc",
    "relinquish_alloc_permit",
    "cta_group::1",
    "cta_group::2",
    "sync",
    "aligned",
    "shared::cta",
];

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("exclusive") {
        return Err(d.unsupported(i, "an exclusive allocation is not simulated"));
    }
    only(d, i, mods, KNOWN)?;
    let pair = is_pair(d, i, mods)?;
    let cost = Cost::new(4, 100);
    if mods.has("relinquish_alloc_permit") {
        operands(d, i, 0)?;
        let instr = with(move |cx| run(cx, pair, |_| Step::Relinquish, |_, _| {}));
        d.emit_reaching(instr, cost, Reach::Device);
        return Ok(());
    }
    let o = operands(d, i, 2)?;
    let columns = d.src(&o[1], ScalarType::U32)?;
    if mods.has("dealloc") {
        let address = d.src(&o[0], ScalarType::B32)?;
        let instr = with(move |cx| {
            let step = move |cx: &mut Cx<'_>| {
                let start = uniform(cx, address, "address");
                Step::Free(start, uniform(cx, columns, "number of columns"))
            };
            run(cx, pair, step, |_, _| {})
        });
        d.emit_reaching(instr, cost, Reach::Device);
        return Ok(());
    }
    let window = window_of(d, mods);
    let slot = d.address(&o[0])?;
    let instr = with(move |cx| {
        let step = move |cx: &mut Cx<'_>| Step::Allocate(uniform(cx, columns, "number of columns"));
        run(cx, pair, step, move |cx, start| {
            tell(cx, window, slot, start)
        })
    });
    d.emit_reaching(instr, cost, Reach::Device);
    Ok(())
}

/// A value that all lanes of the warp have.
fn uniform(cx: &mut Cx<'_>, slot: Slot, what: &str) -> u32 {
    let all = *cx.row(slot);
    let value = all[first(cx.mask)];
    if cx.mask == u32::MAX && all.iter().any(|&other| other != value) {
        cx.report(rule::TENSOR_ALLOCATION, cx.mask, |_, mut told| {
            told.message = format!("the {what} is not the same in all lanes");
            told
        });
    }
    value
}

/// Takes a step alone, or with the other block of the pair, and goes on with what
/// came of it.
fn run(
    cx: &mut Cx<'_>,
    pair: bool,
    step: impl Fn(&mut Cx<'_>) -> Step,
    then: impl Fn(&mut Cx<'_>, u32),
) -> Flow {
    if let Err(flow) = assemble(cx) {
        return flow;
    }
    if !check_group(cx, pair) {
        cx.machine.stopped = true;
        return Flow::Stop;
    }
    // The other block of the pair has done it for both.
    if let Some(Request {
        answer: Some(start),
        ..
    }) = cx.block().allocator.request
    {
        let allocator = &mut cx.block().allocator;
        (allocator.request, allocator.looks) = (None, 0);
        let peer = cx.warp.rank ^ 1;
        cx.hear_of(peer..peer + 1);
        then(cx, start);
        return Flow::Next;
    }
    let step = step(cx);
    if cx.block().allocator.looks == 0 && !check_step(cx, step) {
        return Flow::Next;
    }
    if pair {
        if !check_there(cx) {
            return Flow::Next;
        }
        let peer = (cx.warp.rank ^ 1) as usize;
        let theirs = cx.blocks[peer].allocator.request;
        if theirs.map(|request| request.step) != Some(step) {
            cx.block().allocator.request = Some(Request { step, answer: None });
            return look_again(cx, step);
        }
    }
    let Some(start) = take_step(cx, step, pair) else {
        return look_again(cx, step);
    };
    let allocator = &mut cx.block().allocator;
    (allocator.request, allocator.looks) = (None, 0);
    if pair {
        let peer = cx.warp.rank ^ 1;
        cx.hear_of(peer..peer + 1);
        if let Some(request) = &mut cx.blocks[peer as usize].allocator.request {
            request.answer = Some(start);
        }
    }
    then(cx, start);
    Flow::Next
}

/// Does it for the block, or for both of a pair; none if there is no room yet.
fn take_step(cx: &mut Cx<'_>, step: Step, pair: bool) -> Option<u32> {
    let own = cx.warp.rank;
    let ranks: Vec<u32> = if pair { vec![own, own ^ 1] } else { vec![own] };
    let pc = cx.pc();
    match step {
        Step::Allocate(columns) => {
            let blocks: Vec<(u32, u32)> = ranks
                .iter()
                .map(|&rank| {
                    let block = &cx.blocks[rank as usize];
                    (block.sm, block.number)
                })
                .collect();
            let start = cx.machine.columns.take(&blocks, columns)?;
            for rank in ranks {
                cx.blocks[rank as usize].allocator.last = Some(columns);
                let tensor = cx.tensor(rank);
                tensor.forget(start, columns);
                tensor.allocations.push(Allocation { start, columns, pc });
            }
            Some(start)
        }
        Step::Free(address, columns) => {
            for rank in ranks {
                let sm = cx.blocks[rank as usize].sm;
                let tensor = cx.tensor(rank);
                let found = tensor
                    .allocations
                    .iter()
                    .position(|one| (one.start, one.columns) == (address, columns));
                if let Some(at) = found {
                    let one = tensor.allocations.remove(at);
                    tensor.freed.push((one, pc));
                    cx.machine.columns.give(sm, one.start, one.columns);
                }
            }
            Some(0)
        }
        Step::Relinquish => {
            for rank in ranks {
                cx.blocks[rank as usize].allocator.relinquished = Some(pc);
            }
            Some(0)
        }
    }
}

/// Waits for columns, or for the other block.
fn look_again(cx: &mut Cx<'_>, step: Step) -> Flow {
    let looks = cx.block().allocator.looks;
    cx.block().allocator.looks += 1;
    if looks < PATIENCE {
        let time = cx.now() + (32 << looks.saturating_sub(256));
        return cx.retry(Wait::Until { time });
    }
    let (sm, number) = (cx.block().sm, cx.block().number);
    let others = cx.machine.columns.others(sm, number);
    let waits_for_peer = cx.block().allocator.request.is_some() && others == 0;
    cx.report(rule::TENSOR_STARVED, cx.mask, |_, mut told| {
        told.message = match step {
            _ if waits_for_peer => {
                "waits for the other block of the pair, which does not take the same step".to_owned()
            }
            Step::Allocate(columns) => format!(
                "waits for {columns} columns of tensor memory, and nobody frees any ({others} other blocks of the SM have some)"
            ),
            _ => "waits for the other block of the pair".to_owned(),
        };
        told.help("allocate less, or let fewer blocks share an SM; one warp of each block of a pair runs the same instruction, in the same order")
    });
    cx.machine.stopped = true;
    Flow::Stop
}

/// Reports what is wrong with a step; false where it can't be taken.
fn check_step(cx: &mut Cx<'_>, step: Step) -> bool {
    match step {
        Step::Allocate(columns) => check_allocation(cx, columns),
        Step::Free(address, columns) => check_free(cx, address, columns),
        Step::Relinquish => true,
    }
}

fn check_allocation(cx: &mut Cx<'_>, columns: u32) -> bool {
    let (warp, pc) = (cx.warp.number, cx.pc());
    if !columns.is_power_of_two() || !(GRAIN..=512).contains(&columns) {
        cx.report(rule::TENSOR_ALLOCATION, cx.mask, |_, mut told| {
            told.message = format!(
                "allocates {columns} columns of tensor memory; it has to be a power of two from 32 to 512"
            );
            told.help("round up to the next power of two")
        });
        return false;
    }
    let allocator = &cx.block().allocator;
    let (relinquished, last, before) = (allocator.relinquished, allocator.last, allocator.warp);
    if let Some(there) = relinquished {
        cx.report(rule::TENSOR_PERMIT, cx.mask, |cx, mut told| {
            told.message =
                "allocates tensor memory, and the block has given up its right to".to_owned();
            told.other(cx.code.span(there), "it was given up here")
                .help("`tcgen05.relinquish_alloc_permit` comes after the block's last allocation")
        });
    }
    if let Some((other, there)) = before.filter(|&(other, _)| other != warp) {
        cx.report(rule::TENSOR_ALLOCATORS, cx.mask, |cx, mut told| {
            told.message =
                format!("warp {warp} allocates tensor memory, and warp {other} has before");
            told.other(cx.code.span(there), format!("warp {other} allocates here"))
                .help("let one warp of the block do all allocations")
        });
    }
    if let Some(last) = last.filter(|&last| columns > last) {
        cx.report(rule::TENSOR_ALLOCATION, cx.mask, |_, mut told| {
            told.message = format!(
                "allocates {columns} columns after {last}: allocations of a block may not grow"
            );
            told.help("allocate the largest first")
        });
    }
    cx.block().allocator.warp.get_or_insert((warp, pc));
    true
}

fn check_free(cx: &mut Cx<'_>, address: u32, columns: u32) -> bool {
    let rank = cx.warp.rank;
    let start = TensorAddress::of(address);
    let tensor = cx.tensor(rank);
    let found = tensor
        .allocations
        .iter()
        .find(|one| one.start == address)
        .copied();
    let freed = tensor
        .freed
        .iter()
        .rev()
        .find(|(one, _)| one.start == address)
        .copied();
    let wrong = match (found, freed) {
        (Some(one), _) if one.columns == columns => None,
        (Some(one), _) => Some((
            format!(
                "frees {columns} columns at {address:#x}, of which {} were allocated",
                one.columns
            ),
            Some((one.pc, "they were allocated here")),
        )),
        (None, Some((_, pc))) => Some((
            format!("frees the tensor memory at {address:#x} again"),
            Some((pc, "it was freed here")),
        )),
        (None, None) => Some((
            format!("frees tensor memory at {address:#x}, which no allocation has returned"),
            None,
        )),
    };
    if let Some((message, other)) = wrong {
        cx.report(rule::TENSOR_FREE, cx.mask, |cx, mut told| {
            told.message = message;
            if let Some((pc, what)) = other {
                told = told.other(cx.code.span(pc), what);
            }
            told.help("`tcgen05.dealloc` takes the address that `tcgen05.alloc` has stored and the same number of columns, once")
        });
        return false;
    }
    // Nobody may be using it.
    let span = Span {
        halves: 0xff,
        start: start.column,
        width: columns as usize,
    };
    let doing = Doing {
        what: What::Free,
        writes: true,
        lanes: cx.mask,
    };
    check(cx, rank, span, doing);
    true
}

/// Stores the address where the kernel wants it.
fn tell(cx: &mut Cx<'_>, window: Option<Window>, slot: Addr, start: u32) {
    let addresses = slot.eval(cx);
    let all = cx.mask;
    cx.mask = 1 << first(all);
    let window = window.or(slot.window);
    groups(cx, window, &addresses, 4, Does::Writes, |cx, group| {
        watch(cx, group, false, Does::Writes, AccessKind::Plain);
        if let Some(region) = cx.region(group.home) {
            region.scatter::<u32>(&group.offsets, group.mask, 0, &[start; LANES]);
        }
    });
    cx.mask = all;
}
