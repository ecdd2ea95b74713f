//! Bulk and tensor copies and bulk reductions; [`remote`] has `st.async` and `red.async`.
//!
//! A copy into shared memory is fully asynchronous: its data is read when it starts and written
//! when it completes, with its bytes counted at an mbarrier. A copy out of shared memory writes at
//! once and holds its source until its group is waited for ([`crate::state::bulk_group`]); one to a
//! peer holds it until it completes there.

mod place;
pub(crate) mod remote;
mod transfer;

use super::tensor_map::Piece;
use crate::access::context::Cx;
use crate::code::{Flow, Reach, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::each;
use crate::ops::memory::reduction::{op_of, type_of};
use heist_arith::atomic::{Op, Type};
use heist_launch::Wide;
use heist_ptx::{Address, Instruction, Operand, ScalarType, rule};

/// Cycles until the first byte of a copy from global memory is there, and bytes a cycle then.
const LATENCY: u64 = 700;

const RATE: u64 = 64;

/// How the data is described.
#[derive(Clone, Debug)]
enum Shape {
    /// This many bytes in a row.
    Bytes(Slot),
    /// A box of a tensor: its coordinates.
    Box(Vec<Slot>),
}

/// One copy instruction.
#[derive(Clone, Debug)]
struct Bulk {
    shape: Shape,
    /// Which bytes of every sixteen are stored, where not all are.
    bytes: Option<Slot>,
    /// In shared memory, and in global memory or the tensor map's address.
    shared: Addr,
    other: Addr,
    /// The other side is shared memory too: a copy to a peer.
    to_peer: bool,
    reduce: Option<(Op, Option<Type>)>,
    barrier: Option<Addr>,
    multicast: Option<Slot>,
    /// A multicast signals one block of each pair.
    pair: bool,
    /// Four rows of a matrix, each with a coordinate of its own.
    rows: bool,
    /// Columns of pixels.
    columns: Option<Columns>,
}

/// The registers behind a copy of columns.
#[derive(Clone, Debug)]
enum Columns {
    /// The offsets along the axes of space.
    Space(Vec<Slot>),
    /// The halo and the offset along a row.
    Row(Wide, [Slot; 2]),
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("commit_group") {
        let instr = with(|cx| {
            cx.warp.copies.bulk.commit(cx.mask);
            Flow::Next
        });
        d.emit(instr, Cost::ALU);
        return Ok(());
    }
    if mods.has("wait_group") {
        let o = operands(d, i, 1)?;
        let left = d.immediate(&o[0]).unwrap_or(0) as u32;
        let sources_only = mods.has("read");
        let instr = with(move |cx| {
            let now = cx.now() + LATENCY;
            for lane in each(cx.mask) {
                if let Some(known) = cx.warp.copies.bulk.over(lane, left, sources_only) {
                    cx.warp.clock.acquire(&known, 1 << lane, cx.warp.live);
                }
            }
            let done = cx.warp.copies.bulk.wait(cx.mask, left);
            for &id in &done {
                cx.blocks
                    .iter_mut()
                    .for_each(|block| block.flights.land(id));
            }
            if !done.is_empty() {
                cx.warp.advance(now);
            }
            Flow::Next
        });
        d.emit(instr, Cost::CONTROL);
        return Ok(());
    }
    if mods.has("prefetch") {
        // Nothing that a program can see.
        d.emit(with(|_| Flow::Next), Cost::new(2, 0));
        return Ok(());
    }
    copy(d, i, mods)
}

fn copy(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = &i.operands;
    let tensor = mods.has("tensor");
    if o.len() < 2 {
        operands(d, i, 2)?;
    }
    let spaces: Vec<&str> = mods
        .all
        .iter()
        .copied()
        .filter(|text| matches!(*text, "global" | "shared::cta" | "shared::cluster"))
        .collect();
    let [to, from] = spaces[..] else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            "a bulk copy names where it goes and where it comes from",
        ));
    };
    let into_shared = to != "global";
    let to_peer = into_shared && from != "global";
    let (first, second) = (&o[0], &o[1]);
    let coordinates = |operand: &Operand| match operand {
        Operand::Address(Address { rest, .. }) => match rest.first() {
            Some(Operand::Vector(list)) => list.clone(),
            _ => rest.clone(),
        },
        _ => Vec::new(),
    };
    let (shared, other) = if into_shared {
        (first, second)
    } else {
        (second, first)
    };
    let mut next = 2;
    let shape = if tensor {
        let mut list = Vec::new();
        for operand in coordinates(other) {
            list.push(d.src(&operand, ScalarType::S32)?);
        }
        Shape::Box(list)
    } else {
        next = 3;
        let Some(size) = o.get(2) else {
            return Err(d.wrong(rule::OPERAND_COUNT, "a bulk copy has a size"));
        };
        Shape::Bytes(d.src(size, ScalarType::U32)?)
    };
    let (shared, other) = (d.address(shared)?, d.address(other)?);
    let barrier = if into_shared {
        let Some(operand) = o.get(next) else {
            return Err(d.wrong(
                rule::OPERAND_COUNT,
                "a copy into shared memory has an mbarrier",
            ));
        };
        next += 1;
        Some(d.address(operand)?)
    } else {
        None
    };
    let columns = columns(d, i, mods, o.get(next))?;
    if columns.is_some() && into_shared {
        next += 1;
    }
    let multicast = multicast(d, mods, o.get(next))?;
    let bytes = match (mods.has("cp_mask"), o.last()) {
        (true, Some(operand)) => Some(d.src_any(operand, ScalarType::U16)?.0),
        _ => None,
    };
    let reduce = if i.opcode.base() == "cp" && mods.has("reduce") {
        let Some(op) = op_of(mods) else {
            return Err(d.wrong(rule::MISSING_MODIFIER, "a reduction names its operation"));
        };
        Some((op, mods.ty().and_then(type_of)))
    } else {
        None
    };
    let bulk = Bulk {
        shape,
        shared,
        other,
        to_peer,
        reduce,
        barrier,
        multicast,
        bytes,
        pair: mods.has("cta_group::2"),
        rows: mods.has("tile::gather4") || mods.has("tile::scatter4"),
        columns,
    };
    d.emit_reaching(
        with(move |cx| bulk.run(cx)),
        Cost::new(8, 0),
        Reach::Cluster,
    );
    Ok(())
}

/// What a copy of columns says behind its mbarrier.
fn columns(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    operand: Option<&Operand>,
) -> Decoded<Option<Columns>> {
    if mods.has("im2col_no_offs") {
        return Ok(Some(Columns::Space(Vec::new())));
    }
    let Some(form) = mods.all.iter().find(|text| text.starts_with("im2col")) else {
        return Ok(None);
    };
    let mut list = Vec::new();
    if let Some(Operand::Vector(parts)) = operand {
        for part in parts {
            list.push(d.src_any(part, ScalarType::U16)?.0);
        }
    }
    let wide = match *form {
        "im2col" if !list.is_empty() => return Ok(Some(Columns::Space(list))),
        "im2col::w" => Wide::W,
        "im2col::w::128" => Wide::W128,
        "im2col" => {
            return Err(d.wrong(rule::OPERAND_COUNT, "a copy in im2col mode has offsets"));
        }
        form => {
            let why = format!("tensor copies in the form `.{form}` are not simulated");
            return Err(d.unsupported(i, &why));
        }
    };
    let [halo, offset] = list[..] else {
        return Err(d.wrong(
            rule::OPERAND_COUNT,
            "a copy in a wide im2col mode has a halo and an offset",
        ));
    };
    Ok(Some(Columns::Row(wide, [halo, offset])))
}

/// The register that names the blocks of a multicast.
fn multicast(
    d: &mut Decoder<'_>,
    mods: &Mods<'_>,
    operand: Option<&Operand>,
) -> Decoded<Option<Slot>> {
    if !mods.has("multicast::cluster") {
        return Ok(None);
    }
    let Some(operand) = operand else {
        return Err(d.wrong(rule::OPERAND_COUNT, "a multicast names its blocks"));
    };
    Ok(Some(d.src_any(operand, ScalarType::U16)?.0))
}

/// A store of this instruction: from where to where.
struct Stored {
    source: (u32, u32),
    pieces: Vec<Piece>,
}

/// What one thread's copy moves.
struct Move {
    lane: usize,
    pieces: Vec<Piece>,
    /// Bytes of shared memory.
    total: u64,
    /// Bytes that an mbarrier counts.
    counted: u64,
    fill: Option<heist_launch::TensorMap>,
    element: Option<Type>,
}

impl Bulk {
    fn run(&self, cx: &mut Cx<'_>) -> Flow {
        let shared = self.shared.eval(cx);
        let other = self.other.eval(cx);
        let barriers = self.barrier.map(|addr| addr.eval(cx));
        let lead = crate::lanes::first(cx.mask);
        let repeated = each(cx.mask)
            .filter(|&lane| shared[lane] == shared[lead])
            .count();
        // A store of the same bytes to the same place writes the same values as often as it runs.
        if repeated > 1 && self.barrier.is_some() {
            cx.report(rule::BULK_REPEATED, cx.mask, |_, mut told| {
                told.message = format!("{repeated} threads start the same bulk copy");
                told.help("elect one thread: `elect.sync`, or a test of the thread's number")
            });
        }
        let mut stored: Vec<Stored> = Vec::new();
        for lane in each(cx.mask) {
            let Some(target) = cx.shared_place(lane, shared[lane]) else {
                continue;
            };
            let Some(moved) = self.describe(cx, lane, other[lane], target) else {
                continue;
            };
            if let Some(barriers) = &barriers {
                self.load(cx, moved, target, other[lane], barriers[lane]);
                continue;
            }
            let alike = |one: &Stored| one.source == target && one.pieces == moved.pieces;
            let again = self.reduce.is_none() && stored.iter().any(alike);
            if !again && cx.mask.count_ones() > 1 {
                stored.push(Stored {
                    source: target,
                    pieces: moved.pieces.clone(),
                });
            }
            self.store(cx, moved, target, again);
        }
        cx.team.progress += 1;
        Flow::Next
    }
}
