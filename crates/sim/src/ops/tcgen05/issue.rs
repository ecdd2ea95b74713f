//! What all `tcgen05` instructions have in common: for one block or a pair, who starts them, and
//! where in tensor memory.

use crate::access::context::Cx;
use crate::decode::mods::Mods;
use crate::decode::{Decoded, Decoder};
use crate::lanes::first;
use heist_ptx::{Instruction, rule};

/// Whether an instruction is for a pair of blocks; it has to say.
pub(super) fn is_pair(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<bool> {
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
pub(super) struct TensorAddress {
    pub(super) lane: usize,
    pub(super) column: usize,
}

impl TensorAddress {
    pub(super) fn of(address: u32) -> TensorAddress {
        TensorAddress {
            lane: (address >> 16) as usize,
            column: (address & 0xffff) as usize,
        }
    }
}

/// Notes that the block works in pairs, or alone, and reports a kernel that does both; false
/// where an instruction is for a pair and the block has no other.
pub(super) fn check_group(cx: &mut Cx<'_>, pair: bool) -> bool {
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
pub(super) fn check_peer(cx: &mut Cx<'_>, pair: bool) -> bool {
    if !pair {
        return true;
    }
    let peer = cx.warp.rank ^ 1;
    if !check_there(cx) {
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

/// Reports a peer that is gone, and returns whether it is not. What both blocks of a pair do together
/// waits for one that has not started.
pub(super) fn check_there(cx: &mut Cx<'_>) -> bool {
    let peer = cx.warp.rank ^ 1;
    if cx.blocks[peer as usize].has_exited() {
        cx.report(rule::PEER_EXITED, cx.mask, |_, mut told| {
            told.message = format!("works with block rank {peer}, which has exited");
            told.help("let the cluster meet (`barrier.cluster`) before any of its blocks exits")
        });
        return false;
    }
    true
}

/// Reports an instruction that one thread starts and several do.
pub(super) fn check_issuer(cx: &mut Cx<'_>) {
    let count = cx.mask.count_ones();
    if count < 2 {
        return;
    }
    cx.report(rule::TENSOR_ISSUERS, cx.mask, |_, mut told| {
        told.message = format!("{count} lanes of the warp start this, and each starts a whole one");
        told.help("choose one thread with `elect.sync`, always the same one")
    });
}
