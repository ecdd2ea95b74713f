//! `tcgen05.cp`, from shared to tensor memory, and `tcgen05.shift` within it.

use super::flight::{lines_of, start};
use super::issue::{TensorAddress, check_group, check_issuer, check_peer, is_pair};
use crate::access::context::Cx;
use crate::access::tensor_memory::{Doing, check};
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::each;
use crate::ops::wgmma::source;
use crate::state::tensor_memory::{Span, What};
use heist_arith::tensor::tcgen05::{Format, Operand, operand};
use heist_arith::tensor::wgmma::Major;
use heist_ptx::{Instruction, ScalarType, rule};

/// Bytes that a copy moves in a cycle: what shared memory delivers.
const RATE: u64 = 128;

/// Which rows of shared memory go to which lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spread {
    /// Each row to its lane.
    All,
    /// 64 rows, to lanes 0 and up and 64 and up.
    Halves,
    /// 32 rows to the first two quarters, and 32 to the other two.
    Pairs,
    /// 32 rows to each quarter.
    Quarters,
    /// Four rows, each to the first lane of a quarter.
    Firsts,
}

impl Spread {
    fn rows(self) -> usize {
        match self {
            Spread::All => 128,
            Spread::Halves | Spread::Pairs => 64,
            Spread::Quarters => 32,
            Spread::Firsts => 4,
        }
    }

    /// The row that a lane gets.
    fn row(self, lane: usize) -> Option<usize> {
        match self {
            Spread::All => Some(lane),
            Spread::Halves => Some(lane % 64),
            Spread::Pairs => Some(lane % 32 + 32 * (lane / 64)),
            Spread::Quarters => Some(lane % 32),
            Spread::Firsts => lane.is_multiple_of(32).then_some(lane / 32),
        }
    }
}

/// How elements are widened on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Widen {
    No,
    /// 16 elements of so many bits, and padding, to 16 bytes.
    From(usize),
}

impl Widen {
    fn chunk(self, bytes: [u8; 16]) -> [u8; 16] {
        let Widen::From(bits) = self else {
            return bytes;
        };
        let all = u128::from_le_bytes(bytes);
        // As `mma.sync` has them in a register: four bits in the middle of a byte.
        let shift = if bits == 4 { 2 } else { 0 };
        std::array::from_fn(|at| ((all >> (at * bits)) as u8 & ((1 << bits) - 1)) << shift)
    }
}

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let pair = is_pair(d, i, mods)?;
    if mods.has("shift") {
        let o = operands(d, i, 1)?;
        let addr = d.address(&o[0])?;
        d.emit(with(move |cx| shift_down(cx, addr, pair)), Cost::new(2, 0));
        return Ok(());
    }
    let has = |text: &str| mods.has(text);
    let spread = match () {
        () if has("128x256b") || has("128x128b") => Spread::All,
        () if has("64x128b") && has("warpx2::02_13") => Spread::Halves,
        () if has("64x128b") && has("warpx2::01_23") => Spread::Pairs,
        () if has("32x128b") && has("warpx4") => Spread::Quarters,
        () if has("4x256b") => Spread::Firsts,
        () => {
            return Err(d.wrong(
                rule::MISSING_MODIFIER,
                format!("`{}` names no shape with its multicast", i.opcode),
            ));
        }
    };
    let columns = if has("128x256b") || has("4x256b") {
        8
    } else {
        4
    };
    let widen = match () {
        () if has("b4x16_p64") => Widen::From(4),
        () if has("b6x16_p32") => Widen::From(6),
        () => Widen::No,
    };
    let o = operands(d, i, 2)?;
    let addr = d.address(&o[0])?;
    let source = d.src(&o[1], ScalarType::B64)?;
    let copy = Copy {
        spread,
        columns,
        widen,
        addr,
        source,
        pair,
    };
    d.emit(with(move |cx| copy.run(cx)), Cost::new(2, 0));
    Ok(())
}

struct Copy {
    spread: Spread,
    columns: usize,
    widen: Widen,
    addr: Addr,
    source: Slot,
    pair: bool,
}

impl Copy {
    fn run(&self, cx: &mut Cx<'_>) -> Flow {
        check_group(cx, self.pair);
        if !check_peer(cx, self.pair) {
            return Flow::Next;
        }
        check_issuer(cx);
        let addresses = self.addr.eval(cx);
        let descriptors: [u64; 32] = cx.read(self.source);
        let all = cx.mask;
        for lane in each(all) {
            cx.mask = 1 << lane;
            self.one(cx, lane, addresses[lane] as u32, descriptors[lane]);
        }
        cx.mask = all;
        Flow::Next
    }

    fn one(&self, cx: &mut Cx<'_>, lane: usize, address: u32, bits: u64) {
        let descriptor = match operand::decode(bits) {
            Ok(descriptor) => descriptor,
            Err(why) => {
                super::flight::report_descriptor(cx, "the source", &why);
                return;
            }
        };
        let matrix = Operand {
            descriptor,
            major: Major::K,
            format: Format::E4m3,
            mn: self.spread.rows(),
            k: 4 * self.columns,
        };
        let base = TensorAddress::of(address);
        let span = Span {
            halves: 0xff,
            start: base.column,
            width: self.columns,
        };
        let doing = Doing {
            what: What::Copy,
            writes: true,
            lanes: 1 << lane,
        };
        let own = cx.warp.rank;
        let mut spans = Vec::new();
        for rank in super::flight::ranks(own, self.pair) {
            let lines = lines_of(cx, &matrix, "the source");
            source::check(cx, rank, &lines);
            if !check(cx, rank, span, doing) && cx.tensor(rank).outside(span).is_some() {
                return;
            }
            for to in 0..128 {
                let Some(row) = self.spread.row(to) else {
                    continue;
                };
                for chunk in 0..self.columns / 4 {
                    let at = matrix.chunk_address(row, chunk);
                    let bytes = super::flight::chunk(cx, rank, at);
                    let words: [u32; 4] = bytemuck::cast(self.widen.chunk(bytes));
                    for (word, value) in words.into_iter().enumerate() {
                        let column = base.column + 4 * chunk + word;
                        *cx.tensor(rank).word_mut(base.lane + to, column) = value;
                    }
                }
            }
            spans.push((rank, lines, Vec::new(), vec![span]));
        }
        let bytes = 16 * self.columns as u64 * self.spread.rows() as u64 / 4;
        start(cx, lane, What::Copy, spans, bytes / RATE);
    }
}

/// Each lane of a quarter gets what the next one has; the last keeps its own.
fn shift_down(cx: &mut Cx<'_>, addr: Addr, pair: bool) -> Flow {
    check_group(cx, pair);
    if !check_peer(cx, pair) {
        return Flow::Next;
    }
    check_issuer(cx);
    let addresses = addr.eval(cx);
    let all = cx.mask;
    for lane in each(all) {
        cx.mask = 1 << lane;
        let base = TensorAddress::of(addresses[lane] as u32);
        if !base.lane.is_multiple_of(32) {
            cx.report(rule::TENSOR_LANES, cx.mask, |_, mut told| {
                told.message = format!("shifts from lane {} of tensor memory", base.lane);
                told.help("a shift begins at the first lane of a quarter")
            });
        }
        let first = base.lane / 32 * 32;
        let span = Span {
            halves: 0b11 << (first / 16),
            start: base.column,
            width: 8,
        };
        let doing = Doing {
            what: What::Shift,
            writes: true,
            lanes: 1 << lane,
        };
        let mut spans = Vec::new();
        for rank in super::flight::ranks(cx.warp.rank, pair) {
            if !check(cx, rank, span, doing) && cx.tensor(rank).outside(span).is_some() {
                continue;
            }
            let tensor = cx.tensor(rank);
            for column in span.columns() {
                for at in first..first + 31 {
                    *tensor.word_mut(at, column) = tensor.word(at + 1, column);
                }
            }
            spans.push((rank, source::Lines::default(), Vec::new(), vec![span]));
        }
        start(cx, lane, What::Shift, spans, 8);
    }
    cx.mask = all;
    Flow::Next
}
