//! `tcgen05.mma`: products into tensor memory.

use super::{Place, check_group, check_issuer, check_peer, is_pair};
use crate::access::context::Cx;
use crate::access::tensor_memory::{Doing, POISON, check};
use crate::code::{Flow, PredSrc, Slot};
use crate::decode::address::Addr;
use crate::decode::mods::{Mods, only};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::each;
use crate::ops::arithmetic::bits::pred_or_constant;
use crate::ops::matrix::operands::sources;
use crate::ops::wgmma::source::{self, Lines};
use crate::state::tensor_memory::{Span, Use, What};
use heist_arith::tensor::tcgen05::operand::{self, Fill};
use heist_arith::tensor::tcgen05::place::Layout;
use heist_arith::tensor::tcgen05::{
    Form, Kind, Operand as Matrix, Usage, scale_columns, scale_rows,
};
use heist_arith::tensor::wgmma::{Major, Numbers};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// Cycles from the end of a product's turn on the tensor cores to its end.
const LATENCY: u64 = 64;

/// The first factor.
enum Left {
    Shared(Slot),
    Tensor(Addr),
}

/// The scale factors of A and B.
struct Scales {
    a: Addr,
    b: Addr,
}

struct Multiply {
    kind: Kind,
    usage: Usage,
    d: Addr,
    a: Left,
    b: Slot,
    form: Slot,
    scales: Option<Scales>,
    /// Lanes that are left as they are.
    disabled: Option<Vec<Slot>>,
    accumulate: Result<PredSrc, u32>,
    /// What is there is divided by this power of two first.
    shift: u32,
}

const KNOWN: &[&str] = &[
    "mma",
    "ws",
    "cta_group::1",
    "cta_group::2",
    "kind::f16",
    "kind::tf32",
    "kind::f8f6f4",
    "kind::i8",
    "kind::mxf8f6f4",
    "kind::mxf4",
    "kind::mxf4nvf4",
    "block_scale",
    "scale_vec::1X",
    "scale_vec::2X",
    "scale_vec::4X",
    "block16",
    "block32",
];

fn kind_of(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<Kind> {
    let sixteen = mods.has("block16") || mods.has("scale_vec::4X");
    let name = mods.all.iter().find_map(|text| text.strip_prefix("kind::"));
    Ok(match name {
        Some("f16") => Kind::F16,
        Some("tf32") => Kind::Tf32,
        Some("f8f6f4") => Kind::F8f6f4,
        Some("i8") => Kind::I8,
        Some("mxf8f6f4") => Kind::Mxf8f6f4,
        Some("mxf4") => Kind::Mxf4,
        Some("mxf4nvf4") => Kind::Mxf4nvf4 { sixteen },
        _ => {
            return Err(d.wrong(
                rule::MISSING_MODIFIER,
                format!("`{}` names no kind that there is", i.opcode),
            ));
        }
    })
}

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    for (modifier, why) in [
        ("sp", "sparse products (`.sp`) are not simulated"),
        (
            "ashift",
            "a product with its rows shifted (`.ashift`) is not simulated",
        ),
    ] {
        if mods.has(modifier) {
            return Err(d.unsupported(i, why));
        }
    }
    // Which factor is kept is a hint.
    let rest = Mods {
        all: mods
            .all
            .iter()
            .copied()
            .filter(|text| !text.starts_with("collector::"))
            .collect(),
    };
    only(d, i, &rest, KNOWN)?;
    let kind = kind_of(d, i, mods)?;
    let usage = Usage {
        pair: is_pair(d, i, mods)?,
        ws: mods.has("ws"),
        ..Usage::default()
    };
    let scaled = kind.is_scaled();
    let o = &i.operands;
    let few = || {
        d.wrong(
            rule::OPERAND_COUNT,
            format!("`{}` lacks operands", i.opcode),
        )
    };
    let [to, left, right, form, rest @ ..] = o.as_slice() else {
        return Err(few());
    };
    let (scales, rest) = match (scaled, rest) {
        (true, [a, b, rest @ ..]) => (Some((a, b)), rest),
        (true, _) => return Err(few()),
        (false, rest) => (None, rest),
    };
    let (disabled, rest) = match rest {
        [vector @ Operand::Vector(_), rest @ ..] => (Some(vector), rest),
        rest => (None, rest),
    };
    let (enable, shift) = match rest {
        [enable] => (enable, 0),
        [_, _] if usage.ws => {
            return Err(d.unsupported(i, "a mask of zero columns is not simulated"));
        }
        [enable, shift] => match d.immediate(shift).filter(|shift| *shift < 16) {
            Some(shift) => (enable, shift as u32),
            None => {
                return Err(d.wrong(
                    rule::IMMEDIATE_RANGE,
                    "the scale of D is a number from 0 to 15",
                ));
            }
        },
        _ => {
            return Err(d.wrong(
                rule::OPERAND_COUNT,
                format!("`{}` has operands too many or too few", i.opcode),
            ));
        }
    };
    let a = match left {
        Operand::Address(_) => Left::Tensor(d.address(left)?),
        left => Left::Shared(d.src(left, ScalarType::B64)?),
    };
    let lanes = if usage.pair { 8 } else { 4 };
    let multiply = Multiply {
        kind,
        usage,
        d: d.address(to)?,
        a,
        b: d.src(right, ScalarType::B64)?,
        form: d.src(form, ScalarType::B32)?,
        scales: match scales {
            Some((a, b)) => Some(Scales {
                a: d.address(a)?,
                b: d.address(b)?,
            }),
            None => None,
        },
        disabled: match disabled {
            Some(vector) => Some(sources(d, vector, lanes, ScalarType::B32)?),
            None => None,
        },
        accumulate: pred_or_constant(d, enable)?,
        shift,
    };
    d.emit(Box::new(multiply), Cost::new(4, 0));
    Ok(())
}

impl Instr for Multiply {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if !check_group(cx, self.usage.pair) || !check_peer(cx, self.usage.pair) {
            return Flow::Next;
        }
        check_issuer(cx);
        let all = cx.mask;
        for lane in each(all) {
            cx.mask = 1 << lane;
            self.one(cx, lane);
        }
        cx.mask = all;
        Flow::Next
    }
}

/// A product while it is worked out.
struct Product {
    form: Form,
    layout: Layout,
    /// The blocks that take part, the even one first.
    ranks: Vec<u32>,
    base: Place,
    /// What it reads of each block's shared memory, and of its tensor memory.
    lines: Vec<Lines>,
    reads: Vec<Span>,
    doing: Doing,
}

/// The blocks of an operation.
pub(super) fn ranks(own: u32, pair: bool) -> Vec<u32> {
    if pair {
        vec![own & !1, own | 1]
    } else {
        vec![own]
    }
}

impl Multiply {
    fn one(&self, cx: &mut Cx<'_>, lane: usize) {
        let bits = cx.row(self.form)[lane];
        let form = match Form::decode(self.kind, bits, self.usage) {
            Ok(form) => form,
            Err(wrong) => {
                cx.report(rule::TENSOR_DESCRIPTOR, cx.mask, |_, mut told| {
                    told.message = format!("the instruction descriptor {bits:#010x}: {wrong}");
                    told.help("bits 4-5 are the type of D, 7-9 and 10-12 those of A and B, 15 and 16 transpose them, 17-22 are N / 8 and 24-28 M / 16")
                });
                return;
            }
        };
        let layout = Layout::of(form.m, self.usage);
        let address = self.d.eval(cx)[lane] as u32;
        let base = Place::of(address);
        let doing = Doing {
            what: What::Product(self.key(&form, address)),
            writes: false,
            lanes: 1 << lane,
        };
        let ranks = ranks(cx.warp.rank, self.usage.pair);
        let mut product = Product {
            form,
            layout,
            lines: ranks.iter().map(|_| Lines::default()).collect(),
            ranks,
            base,
            reads: Vec::new(),
            doing,
        };
        if !product.check_lanes(cx, base, "D") {
            return;
        }
        let accumulate = match self.accumulate {
            Ok(pred) => cx.pred(pred) >> lane & 1 != 0,
            Err(constant) => constant != 0,
        };
        let Some((a, b)) = self.factors(cx, lane, &mut product) else {
            return;
        };
        for (at, &rank) in product.ranks.iter().enumerate() {
            source::check(cx, rank, &product.lines[at]);
        }
        let disabled = self.disabled(cx, lane);
        self.finish(cx, lane, product, (a, b), accumulate, &disabled);
    }

    /// What is in order with this product without being waited for.
    fn key(&self, form: &Form, address: u32) -> u64 {
        let kind = match form.kind {
            Kind::F16 => 0,
            Kind::Tf32 => 1,
            Kind::F8f6f4 => 2,
            Kind::I8 => 3,
            Kind::Mxf8f6f4 => 4,
            Kind::Mxf4 => 5,
            Kind::Mxf4nvf4 { .. } => 6,
        };
        u64::from(address)
            | (form.m as u64 / 16) << 32
            | (form.n as u64 / 8) << 40
            | kind << 48
            | u64::from(self.usage.pair) << 56
            | u64::from(self.usage.ws) << 57
    }

    /// A with m rows and B with k, scaled; none where they can't be read.
    fn factors(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        product: &mut Product,
    ) -> Option<(Numbers, Numbers)> {
        let form = product.form;
        let mut a = match &self.a {
            Left::Shared(slot) => {
                let bits = cx.read::<u64>(*slot)[lane];
                let matrix = shared(cx, bits, "A", form.transpose_a)?;
                product.read_rows(
                    cx,
                    Matrix {
                        format: form.a,
                        mn: form.m,
                        k: form.k,
                        ..matrix
                    },
                )
            }
            Left::Tensor(addr) => {
                let base = Place::of(addr.eval(cx)[lane] as u32);
                product.read_tensor(cx, base)?
            }
        };
        let bits = cx.read::<u64>(self.b)[lane];
        let matrix = shared(cx, bits, "B", form.transpose_b)?;
        let mut b = product.read_columns(
            cx,
            Matrix {
                format: form.b,
                mn: form.n,
                k: form.k,
                ..matrix
            },
        );
        if let Some(scales) = &self.scales {
            let (sa, sb) = (
                scales.a.eval(cx)[lane] as u32,
                scales.b.eval(cx)[lane] as u32,
            );
            product.scale(cx, Place::of(sa), Place::of(sb), &mut a, &mut b)?;
        }
        Some((a, b))
    }

    /// For each block, the lanes that are left as they are.
    fn disabled(&self, cx: &Cx<'_>, lane: usize) -> Vec<u128> {
        let Some(slots) = &self.disabled else {
            return vec![0; 2];
        };
        slots
            .chunks(4)
            .map(|words| {
                words.iter().rev().fold(0u128, |mask, &slot| {
                    mask << 32 | u128::from(cx.row(slot)[lane])
                })
            })
            .collect()
    }

    /// Multiplies, and puts the result into tensor memory.
    fn finish(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        product: Product,
        (mut a, mut b): (Numbers, Numbers),
        accumulate: bool,
        disabled: &[u128],
    ) {
        let Product {
            form, layout, base, ..
        } = product;
        let span = product.span(base, layout.width(form.n));
        let mut good = true;
        for &rank in &product.ranks {
            if accumulate {
                good &= check(cx, rank, span, product.doing);
            }
            let writing = Doing {
                writes: true,
                ..product.doing
            };
            check(cx, rank, span, writing);
            if cx.tensor(rank).outside(span).is_some() {
                return;
            }
        }
        let mut d = vec![POISON; form.m * form.n];
        if accumulate && good {
            product.rows(|at, block, lane, column, len| {
                let tensor = cx.tensor(product.ranks[block]);
                d[at..at + len].copy_from_slice(tensor.row(lane, column, len));
            });
        }
        form.multiply(&mut a, &mut b, accumulate.then_some(self.shift), &mut d);
        product.rows(|at, block, lane, column, len| {
            let off = disabled
                .get(block)
                .is_some_and(|mask| mask >> lane & 1 != 0);
            if !off {
                let tensor = cx.tensor(product.ranks[block]);
                tensor
                    .row_mut(lane, column, len)
                    .copy_from_slice(&d[at..at + len]);
            }
        });
        // A row of 128 lanes of a result is 32 bytes deep in each cycle of two columns.
        let busy = match layout {
            Layout::B => form.n as u64 / 4,
            _ => form.n as u64 / 2,
        };
        let uses = product
            .ranks
            .iter()
            .zip(product.lines)
            .map(|(&rank, lines)| (rank, lines, product.reads.clone(), vec![span]));
        let uses: Vec<Used> = uses.collect();
        start(cx, lane, product.doing.what, uses, busy.max(8));
    }
}

impl Product {
    /// Some columns from a place on, in the lanes of the result.
    fn span(&self, base: Place, width: usize) -> Span {
        let halves = match (self.layout.has_halves(), base.lane) {
            (false, _) => 0xff,
            (true, 0) => 0x55,
            (true, _) => 0xaa,
        };
        Span {
            halves,
            start: base.column,
            width,
        }
    }

    /// Reports a place that a result, or A, can't begin at.
    fn check_lanes(&self, cx: &mut Cx<'_>, at: Place, which: &str) -> bool {
        let fits = at.lane == 0 || at.lane == 16 && self.layout.has_halves();
        if fits && at.lane == self.base.lane {
            return true;
        }
        let with = self.base.lane;
        cx.report(rule::TENSOR_LANES, cx.mask, |_, mut told| {
            told.message = if fits {
                format!("{which} begins at lane {} of tensor memory, and D at lane {with}", at.lane)
            } else {
                format!("{which} begins at lane {} of tensor memory", at.lane)
            };
            told.help("matrices of a product begin at lane 0, or all at lane 16 where M is 64; a warp's quarter is not added")
        });
        false
    }

    /// Calls `f` for the stretches of D: its first element, the block, lane and column,
    /// and how many elements.
    fn rows(&self, mut f: impl FnMut(usize, usize, usize, usize, usize)) {
        let n = self.form.n;
        let len = self.layout.width(n).max(1);
        for m in 0..self.form.m {
            for first in (0..n).step_by(len) {
                let (block, lane, column) = self.layout.place(m, first, n);
                f(
                    m * n + first,
                    block,
                    self.base.lane + lane,
                    self.base.column + column,
                    len,
                );
            }
        }
    }

    /// One block's part of a matrix in shared memory, of which it has `mn` rows or columns.
    fn part(
        &mut self,
        cx: &mut Cx<'_>,
        at: usize,
        matrix: &Matrix,
        which: &str,
        columns: bool,
    ) -> Numbers {
        let lines = lines_of(cx, matrix, which);
        self.lines[at].join(lines);
        let rank = self.ranks[at];
        matrix.read(columns, |address| chunk(cx, rank, address))
    }

    /// A, whose rows the blocks of a pair share out.
    fn read_rows(&mut self, cx: &mut Cx<'_>, matrix: Matrix) -> Numbers {
        let blocks = self.ranks.len();
        let matrix = Matrix {
            mn: matrix.mn / blocks,
            ..matrix
        };
        let parts = (0..blocks).map(|at| self.part(cx, at, &matrix, "A", false));
        let parts: Vec<Numbers> = parts.collect();
        parts
            .into_iter()
            .reduce(Numbers::chain)
            .unwrap_or(Numbers::Floats(Vec::new()))
    }

    /// B, whose columns the blocks of a pair share out.
    fn read_columns(&mut self, cx: &mut Cx<'_>, matrix: Matrix) -> Numbers {
        let blocks = self.ranks.len();
        let matrix = Matrix {
            mn: matrix.mn / blocks,
            ..matrix
        };
        let parts = (0..blocks).map(|at| self.part(cx, at, &matrix, "B", true));
        let parts: Vec<Numbers> = parts.collect();
        let width = matrix.mn;
        parts
            .into_iter()
            .reduce(|left, right| left.beside(&right, width))
            .unwrap_or(Numbers::Floats(Vec::new()))
    }

    /// A from tensor memory: a row a lane, as D has them.
    fn read_tensor(&mut self, cx: &mut Cx<'_>, base: Place) -> Option<Numbers> {
        if !self.check_lanes(cx, base, "A") {
            return None;
        }
        let Form { m, n, k, a, .. } = self.form;
        let bits = a.bits_in_tensor_memory();
        let span = self.span(base, k * bits / 32);
        let mut good = true;
        for &rank in &self.ranks {
            good &= check(cx, rank, span, self.doing);
        }
        self.reads.push(span);
        let mut fill = Fill::new(a, m * k);
        for row in 0..m {
            let (block, lane, _) = self.layout.place(row, 0, n);
            let tensor = cx.tensor(self.ranks[block]);
            for at in 0..k {
                let column = base.column + at * bits / 32;
                let word = if good {
                    tensor.word(base.lane + lane, column)
                } else {
                    POISON
                };
                let value = word >> (at * bits % 32) & (u32::MAX >> (32 - bits));
                fill.put(row * k + at, a.of_tensor_memory(value));
            }
        }
        Some(fill.numbers())
    }

    /// Multiplies the factors by what scales them.
    fn scale(
        &mut self,
        cx: &mut Cx<'_>,
        sa: Place,
        sb: Place,
        a: &mut Numbers,
        b: &mut Numbers,
    ) -> Option<()> {
        let Form {
            m,
            n,
            k,
            kind,
            scale,
            scale_ids,
            ..
        } = self.form;
        let blocks = self.ranks.len();
        let block = kind.block();
        let count = k / block;
        let of_pair = self.layout == Layout::B;
        let (rows, columns) = (m / blocks, if of_pair { n / 2 } else { n });
        let mut factors = [Vec::new(), Vec::new()];
        for (which, (at, number)) in [(sa, rows), (sb, columns)].into_iter().enumerate() {
            let span = Span {
                halves: 0xff,
                start: at.column,
                width: number.div_ceil(32),
            };
            for &rank in &self.ranks {
                if !check(cx, rank, span, self.doing) {
                    return None;
                }
            }
            self.reads.push(span);
            let id = scale_ids[which] as usize;
            let whole = if which == 0 { m } else { n };
            for one in 0..whole {
                let (rank, within, upper) = match which {
                    0 => (self.ranks[one / rows], one % rows, 0),
                    _ => (self.ranks[0], one % columns, 64 * (one / columns)),
                };
                let word = cx
                    .tensor(rank)
                    .word(within % 32 + upper, at.column + within / 32);
                let bytes = word.to_le_bytes();
                factors[which].extend((0..count).map(|at| scale.value(bytes[(id + at) % 4])));
            }
        }
        let [fa, fb] = factors;
        scale_rows(a, k, block, |row, at| fa[row * count + at]);
        scale_columns(b, n, block, |column, at| fb[column * count + at]);
        Some(())
    }
}

/// The matrix of a descriptor, but for its type and size.
fn shared(cx: &mut Cx<'_>, bits: u64, which: &str, transposed: bool) -> Option<Matrix> {
    let major = if transposed { Major::Mn } else { Major::K };
    match operand::decode(bits) {
        Ok(descriptor) => Some(Matrix {
            descriptor,
            major,
            format: heist_arith::tensor::tcgen05::Format::F16,
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
