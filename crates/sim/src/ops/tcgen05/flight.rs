//! What products and copies share: matrices in shared memory, and an operation put into
//! flight.

use crate::access::context::Cx;
use crate::ops::wgmma::source::{self, Lines};
use crate::state::tensor_memory::{Span, Use, What};
use heist_arith::tensor::tcgen05::operand;
use heist_arith::tensor::tcgen05::{Format, Operand as Matrix};
use heist_arith::tensor::wgmma::Major;
use heist_ptx::rule;

/// Cycles from the end of an operation's turn on the tensor cores to its end.
const LATENCY: u64 = 64;

/// The blocks of an operation.
pub(super) fn ranks(own: u32, pair: bool) -> Vec<u32> {
    if pair {
        vec![own & !1, own | 1]
    } else {
        vec![own]
    }
}

/// The matrix of a descriptor, but for its type and size.
pub(super) fn shared(cx: &mut Cx<'_>, bits: u64, which: &str, transposed: bool) -> Option<Matrix> {
    let major = if transposed { Major::Mn } else { Major::K };
    match operand::decode(bits) {
        Ok(descriptor) => Some(Matrix {
            descriptor,
            major,
            format: Format::F16,
            mn: 0,
            k: 0,
        }),
        Err(why) => {
            report_descriptor(cx, which, &why);
            None
        }
    }
}

pub(super) fn report_descriptor(cx: &mut Cx<'_>, which: &str, why: &str) {
    cx.report(rule::WGMMA_DESCRIPTOR, cx.mask, |_, mut told| {
        told.message = format!("the matrix descriptor of {which}: {why}");
        told.help("bits 0-13 are the address / 16, 16-29 and 32-45 the leading and stride offsets / 16, 46-48 are 1, and 61-63 the swizzle: 0 none, 2 of 128 bytes, 4 of 64, 6 of 32")
    });
}

/// The shared memory that a matrix lies in; what is outside is reported.
pub(super) fn lines_of(cx: &mut Cx<'_>, matrix: &Matrix, which: &str) -> Lines {
    let (start, len) = (cx.machine.shared_start, cx.machine.shared_len);
    let mut lines = Lines::default();
    let mut outside = None;
    for address in matrix.chunks() {
        let offset = address.wrapping_sub(start);
        if offset.saturating_add(16) > len {
            outside.get_or_insert(address);
        } else {
            lines.add(offset);
        }
    }
    if let Some(address) = outside {
        let read = matrix.descriptor;
        let why = format!(
            "it leads to {address:#x} of shared memory, of which the block has {len} bytes from {start:#x} on (start {:#x}, leading offset {}, stride offset {}, swizzle {:?})",
            read.start, read.leading, read.stride, read.swizzle
        );
        report_descriptor(cx, which, &why);
    }
    lines
}

/// A chunk of a block's shared memory; zeros outside.
pub(super) fn chunk(cx: &Cx<'_>, rank: u32, address: u32) -> [u8; 16] {
    let offset = address.wrapping_sub(cx.machine.shared_start);
    cx.blocks[rank as usize]
        .shared
        .read(u64::from(offset), 16)
        .to_le_bytes()
}

/// What an operation uses of a block: of shared memory, and of tensor memory what it reads
/// and writes.
pub(super) type Used = (u32, Lines, Vec<Span>, Vec<Span>);

/// Puts an operation of a thread into flight.
pub(super) fn start(cx: &mut Cx<'_>, lane: usize, what: What, uses: Vec<Used>, busy: u64) {
    let (agent, number) = cx.pipe(lane);
    let (warp, own, pc, now) = (cx.warp.number, cx.warp.rank, cx.pc(), cx.now());
    let from = uses
        .iter()
        .map(|used| cx.blocks[used.0 as usize].tensor.as_ref());
    let from = from.flatten().map(|tensor| tensor.busy_until).max();
    let until = from.unwrap_or(0).max(now) + busy;
    let time = until + LATENCY;
    let one = Use {
        what,
        over: (agent, number),
        by: (cx.warp.clock.agent, cx.warp.clock.now, lane as u8),
        pc,
        time,
    };
    for (rank, lines, reads, writes) in uses {
        source::fly(cx, rank, pc, &lines, (agent, number));
        let tensor = cx.tensor(rank);
        tensor.busy_until = until;
        tensor.note(one, &reads, &writes);
    }
    let pipe = cx.tensor(own).pipe(warp, lane as u8, || agent);
    pipe.done = pipe.done.max(time);
    pipe.open = Some(pc);
}
