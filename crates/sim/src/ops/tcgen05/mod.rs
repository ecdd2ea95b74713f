//! `tcgen05`: tensor cores that work on a memory of their own.
//!
//! An operation on tensor memory is worked out when it is started, and what it has made is
//! looked at by others only when they know that it is over ([`crate::access::tensor_memory`]).

mod allocate;
mod commit;
mod copy;
mod flight;
mod multiply;
mod product;
mod transfer;

use crate::access::context::Cx;
use crate::decode::mods::Mods;
use crate::decode::{Decoded, Decoder};
use crate::lanes::first;
use heist_ptx::{Instruction, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    d.tracks_registers = true;
    match mods.all.first().copied().unwrap_or("") {
        "alloc" | "dealloc" | "relinquish_alloc_permit" => allocate::decode(d, i, mods),
        "ld" | "st" | "wait::ld" | "wait::st" => transfer::decode(d, i, mods),
        "cp" | "shift" => copy::decode(d, i, mods),
        "mma" => multiply::decode(d, i, mods),
        "commit" | "fence::before_thread_sync" | "fence::after_thread_sync" => {
            commit::decode(d, i, mods)
        }
        other => Err(d.unsupported(i, &format!("there is no `tcgen05.{other}` here"))),
    }
}

/// Whether an instruction is for a pair of blocks; it has to say.
fn is_pair(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<bool> {
    match (mods.has("cta_group::1"), mods.has("cta_group::2")) {
        (true, false) => Ok(false),
        (false, true) => Ok(true),
        _ => Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no `.cta_group`", i.opcode),
        )),
    }
}

/// An address of tensor memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    lane: usize,
    column: usize,
}

impl Place {
    fn of(address: u32) -> Place {
        Place {
            lane: (address >> 16) as usize,
            column: (address & 0xffff) as usize,
        }
    }
}

/// Notes that the block works in pairs, or alone, and reports a kernel that does both; false
/// where an instruction is for a pair and the block has no other.
fn check_group(cx: &mut Cx<'_>, pair: bool) -> bool {
    let pc = cx.pc();
    let before = *cx.block().allocator.group.get_or_insert((pair, pc));
    if before.0 != pair {
        cx.report(rule::TENSOR_GROUPS, cx.mask, |cx, mut told| {
            told.message = format!(
                "an instruction of cta_group::{} in a kernel whose others are of cta_group::{}",
                1 + u32::from(pair),
                1 + u32::from(before.0)
            );
            told.other(cx.code.span(before.1), "here is another")
                .help("all tcgen05 instructions of a kernel name the same group")
        });
    }
    let size = cx.blocks.len();
    if !pair || size.is_multiple_of(2) {
        return true;
    }
    cx.report(rule::TENSOR_GROUPS, cx.mask, |_, mut told| {
        told.message = format!(
            "an instruction for a pair of blocks in a cluster of {size}: the last block has no peer"
        );
        told.help(
            "launch clusters of an even number of blocks (`.reqnctapercluster`, or the launch)",
        )
    });
    false
}

/// Reports a peer that may not have started, or is gone; false for one that is gone.
fn check_peer(cx: &mut Cx<'_>, pair: bool) -> bool {
    if !pair {
        return true;
    }
    let peer = cx.warp.rank ^ 1;
    if cx.blocks[peer as usize].has_exited() {
        cx.report(rule::PEER_EXITED, cx.mask, |_, mut told| {
            told.message = format!("works with block rank {peer}, which has exited");
            told.help("let the cluster meet (`barrier.cluster`) before any of its blocks exits")
        });
        return false;
    }
    if !cx.has_heard_of(peer, first(cx.mask)) {
        cx.report(rule::PEER_NOT_STARTED, cx.mask, |_, mut told| {
            told.message = format!("works with block rank {peer}, which may not have started");
            told.help(
                "let the cluster meet once (`barrier.cluster.arrive` and `.wait`) before its blocks work in pairs",
            )
        });
    }
    true
}

/// Reports an instruction that one thread starts and several do.
fn check_issuer(cx: &mut Cx<'_>) {
    let count = cx.mask.count_ones();
    if count < 2 {
        return;
    }
    cx.report(rule::TENSOR_ISSUERS, cx.mask, |_, mut told| {
        told.message = format!("{count} lanes of the warp start this, and each starts a whole one");
        told.help("choose one thread with `elect.sync`, always the same one")
    });
}
