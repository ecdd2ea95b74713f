//! `wgmma`: asynchronous products of a warpgroup.
//!
//! Each of the four warps computes its own sixteen rows, and no product completes before all four
//! have issued it. A product is computed when it is issued, and its result is held back until a
//! `wgmma.wait_group` that covers it: an access to its registers before that ([`pending`]), or a
//! write to its operands in shared memory ([`source`]), is reported, whatever the timing.

pub(crate) mod pending;
pub(crate) mod source;

use super::matrix::operands::{self as matrix, assemble};
use crate::access::context::Cx;
use crate::code::{Flow, PredSrc, Reach, Slot};
use crate::decode::map::with;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{ALL, LANES, first};
use crate::state::products::Product;
use heist_arith::tensor::wgmma::{Major, Numbers, Wgmma};
use heist_arith::tensor::{Accumulator, Element};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    d.tracks_registers = true;
    match mods.all.first().copied() {
        Some("fence") => {
            operands(d, i, 0)?;
            d.emit(with(fence), Cost::new(2, 0));
        }
        Some("commit_group") => {
            operands(d, i, 0)?;
            let instr = with(|cx| match assemble(cx) {
                Ok(()) => {
                    cx.warp.products.commit();
                    Flow::Next
                }
                Err(flow) => flow,
            });
            d.emit(instr, Cost::new(2, 0));
        }
        Some("wait_group") => {
            let o = operands(d, i, 1)?;
            let Some(most) = d.immediate(&o[0]) else {
                return Err(d.wrong(
                    rule::IMMEDIATE_RANGE,
                    "wgmma.wait_group takes a number of groups",
                ));
            };
            let instr = with(move |cx| match assemble(cx) {
                Ok(()) => pending::wait(cx, most),
                Err(flow) => flow,
            });
            d.emit_reaching(instr, Cost::new(2, 0), Reach::Cluster);
        }
        Some("mma_async") => multiply(d, i, mods)?,
        _ => return Err(d.unsupported(i, "wgmma fences, multiplies, commits and waits")),
    }
    Ok(())
}

fn fence(cx: &mut Cx<'_>) -> Flow {
    if let Err(flow) = assemble(cx) {
        return flow;
    }
    cx.warp.products.fence();
    Flow::Next
}

/// The first factor.
enum Left {
    Shared { descriptor: Slot, major: Major },
    Registers(Vec<Slot>),
}

struct Multiply {
    kind: Wgmma,
    a: Left,
    b: Slot,
    b_major: Major,
    d: Vec<Slot>,
    /// Whether to add to what is there.
    accumulate: Result<PredSrc, u32>,
    /// Metadata and selector of a sparse product.
    sparse: Option<(Slot, u32)>,
    /// Cycles that it keeps the tensor cores busy.
    busy: u64,
}

const KNOWN: &[&str] = &[
    "mma_async",
    "sp",
    "sync",
    "aligned",
    "satfinite",
    "and",
    "popc",
    "tf32",
    "e4m3",
    "e5m2",
    "b1",
];

/// What is multiplied: the columns, the type of the left factor, and that of the sum.
fn kind_of(
    d: &Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
) -> Decoded<(Wgmma, usize, Element, Accumulator)> {
    let Some(shape) = matrix::shape(mods) else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no shape", i.opcode),
        ));
    };
    let name = shape.to_string();
    let known: Vec<&str> = KNOWN
        .iter()
        .copied()
        .chain(std::iter::once(name.as_str()))
        .collect();
    only(d, i, mods, &known)?;
    let names = matrix::types(mods);
    let all = match names[..] {
        [d, a, b] => (
            matrix::accumulator(d),
            matrix::element(a),
            matrix::element(b),
        ),
        _ => (None, None, None),
    };
    let (Some(sum), Some(a), Some(b)) = all else {
        return Err(d.unsupported(
            i,
            "the types of its three matrices are not ones that are simulated",
        ));
    };
    let kind = Wgmma::new(usize::from(shape.n), a, b, sum)
        .map_err(|error| d.unsupported(i, &error.to_string()))?
        .satfinite(mods.has("satfinite"));
    let kind = if mods.has("sp") {
        kind.sparse()
            .ok_or_else(|| d.unsupported(i, "single bits have no sparse form"))?
    } else {
        kind
    };
    if shape.m != 64 || usize::from(shape.k) != kind.k() {
        return Err(d.unsupported(i, &format!("a product of these types is m64k{}", kind.k())));
    }
    Ok((kind, usize::from(shape.n), a, sum))
}

fn multiply(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let (kind, columns, a, sum) = kind_of(d, i, mods)?;
    let sparse = mods.has("sp");
    let floats = a.is_float();
    let halves = matches!(a, Element::F16 | Element::Bf16);
    let in_registers = matches!(i.operands.get(1), Some(Operand::Vector(_)));
    let transposable = match (halves, in_registers) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    };
    let meta = if sparse { 2 } else { 0 };
    let o = operands(d, i, 4 + meta + if floats { 2 } else { 0 } + transposable)?;
    let sparse = match sparse {
        false => None,
        true => {
            let metadata = d.src(&o[3], ScalarType::B32)?;
            let Some(selector) = d.immediate(&o[4]).filter(|n| *n < 4) else {
                return Err(d.wrong(
                    rule::IMMEDIATE_RANGE,
                    "the sparsity selector is a number from 0 to 3",
                ));
            };
            Some((metadata, selector as u32))
        }
    };
    let accumulate = super::arithmetic::bits::pred_or_constant(d, &o[3 + meta])?;
    let scale = |d: &Decoder<'_>, at: usize| -> Decoded<bool> {
        match d.immediate(&o[at]).map(|n| n as i64) {
            Some(1) => Ok(false),
            Some(-1) => Ok(true),
            _ => Err(d.wrong(rule::IMMEDIATE_RANGE, "the scale of a factor is 1 or -1")),
        }
    };
    let kind = if floats {
        kind.negate(scale(d, 4 + meta)?, scale(d, 5 + meta)?)
    } else {
        kind
    };
    let major = |d: &Decoder<'_>, operand: &Operand| -> Decoded<Major> {
        match d.immediate(operand) {
            Some(0) => Ok(Major::K),
            Some(1) => Ok(Major::Mn),
            _ => Err(d.wrong(
                rule::IMMEDIATE_RANGE,
                "a factor is transposed, 1, or not, 0",
            )),
        }
    };
    let mut majors = [Major::K; 2];
    for (at, slot) in majors.iter_mut().rev().take(transposable).enumerate() {
        *slot = major(d, &o[o.len() - 1 - at])?;
    }
    let left = if in_registers {
        Left::Registers(matrix::sources(d, &o[1], 4, ScalarType::B32)?)
    } else {
        Left::Shared {
            descriptor: d.src(&o[1], ScalarType::B64)?,
            major: majors[0],
        }
    };
    let multiply = Multiply {
        kind,
        a: left,
        b: d.src(&o[2], ScalarType::B64)?,
        b_major: majors[1],
        d: matrix::targets(d, &o[0], kind.d_registers(), ScalarType::B32)?,
        accumulate,
        sparse,
        busy: busy(columns, sum),
    };
    // Its registers are followed here, not as those of an ordinary instruction.
    d.forget_touched();
    d.emit(Box::new(multiply), Cost::new(4, 0));
    Ok(())
}

/// Cycles for 64 rows, n columns and 32 bytes of depth: the four tensor cores of an
/// SM make 4096 products of halves a cycle.
fn busy(n: usize, _: Accumulator) -> u64 {
    (n as u64 / 4).max(16)
}

impl Instr for Multiply {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        check_group(cx);
        let base = cx.fragment.base;
        let row = |slot: &Slot| slot.row() + base;
        let rows: Vec<u32> = self.d.iter().map(row).collect();
        let mut lines = source::Lines::default();
        let stored = match &self.a {
            Left::Registers(slots) => {
                let a_rows: Vec<u32> = slots.iter().map(row).collect();
                pending::check_sources(cx, &a_rows);
                let registers: Vec<[u32; LANES]> = slots.iter().map(|&s| *cx.row(s)).collect();
                self.kind.read_a(&registers)
            }
            &Left::Shared { descriptor, major } => {
                let bits = source::descriptor(cx, descriptor, "A");
                let operand = self.kind.a_operand(bits, major);
                let part = cx.warp.number as usize % 4;
                let numbers = source::read_rows(cx, &operand, part, &mut lines);
                numbers.rows(16 * part..16 * part + 16, operand.k)
            }
        };
        let a: Numbers = match self.sparse {
            Some((metadata, selector)) => {
                let metadata = *cx.row(metadata);
                self.kind.expand(&stored, &metadata, selector)
            }
            None => stored,
        };
        let bits = source::descriptor(cx, self.b, "B");
        let operand = self.kind.b_operand(bits, self.b_major);
        let b = source::read_columns(cx, &operand, &mut lines);
        source::check(cx, cx.warp.rank, &lines);
        let accumulate = match self.accumulate {
            Ok(pred) => cx.pred(pred) >> first(cx.mask) & 1 != 0,
            Err(constant) => constant != 0,
        };
        let mut values = pending::accumulators(cx, &rows, &self.d);
        self.kind.run_warp(&a, &b, accumulate, &mut values);
        let sources = match &self.a {
            Left::Registers(slots) => slots.iter().map(row).collect(),
            Left::Shared { .. } => Vec::new(),
        };
        let product = Product {
            pc: cx.pc(),
            group: None,
            rows,
            sources,
            values,
            copies: Vec::new(),
            id: 0,
            done: 0,
        };
        pending::start(cx, product, &lines, self.busy);
        Flow::Next
    }
}

/// Reports a warpgroup that is not whole.
fn check_group(cx: &mut Cx<'_>) {
    let threads = cx.machine.launch.block.count();
    let end = u64::from(cx.warp.number / 4 + 1) * 128;
    if end <= threads {
        return;
    }
    cx.report(rule::TENSOR_DIVERGENT, ALL, |_, mut told| {
        told.message = format!(
            "the block has {threads} threads, so that the warpgroup that runs this has fewer than four whole warps"
        );
        told.help("launch blocks of a multiple of 128 threads")
    });
}
