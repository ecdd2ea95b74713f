//! `tcgen05.mma`: products into tensor memory.

use super::flight::{Used, ranks, shared, start};
use super::issue::{TensorAddress, check_group, check_issuer, check_peer, is_pair};
use super::product::Product;
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
use crate::state::tensor_memory::What;
use heist_arith::tensor::tcgen05::place::Layout;
use heist_arith::tensor::tcgen05::{Form, MmaKind, Operand as Matrix, Usage};
use heist_arith::tensor::wgmma::Numbers;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// Bytes of shared memory that a product reads in a cycle, as any other reader does.
///
/// So a product with both factors there is bound by them below 128 columns, as was measured on a B200
/// (SemiAnalysis, Dissecting Nvidia Blackwell, 2026), and a sparse one of 256 columns has 1.6 times the rate of a
/// dense one, as on a B300 (ademeure/QuickRunCUDA on GitHub, 2026).
const SHARED_RATE: u64 = 128;

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
    kind: MmaKind,
    usage: Usage,
    d: Addr,
    a: Left,
    b: Slot,
    /// Which elements of A are stored, of a sparse product.
    metadata: Option<Addr>,
    form: Slot,
    scales: Option<Scales>,
    /// Lanes that are left as they are.
    disabled: Option<Vec<Slot>>,
    accumulate: Result<PredSrc, u32>,
    /// The accumulator is divided by this power of two first.
    shift: u32,
}

const KNOWN: &[&str] = &[
    "mma",
    "sp",
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

fn kind_of(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<MmaKind> {
    let sixteen = mods.has("block16") || mods.has("scale_vec::4X");
    let name = mods.all.iter().find_map(|text| text.strip_prefix("kind::"));
    Ok(match name {
        Some("f16") => MmaKind::F16,
        Some("tf32") => MmaKind::Tf32,
        Some("f8f6f4") => MmaKind::F8f6f4,
        Some("i8") => MmaKind::I8,
        Some("mxf8f6f4") => MmaKind::Mxf8f6f4,
        Some("mxf4") => MmaKind::Mxf4,
        Some("mxf4nvf4") => MmaKind::Mxf4nvf4 { sixteen },
        _ => {
            return Err(d.wrong(
                rule::MISSING_MODIFIER,
                format!("`{}` names no kind that there is", i.opcode),
            ));
        }
    })
}

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("ashift") {
        let why = "a product with its rows shifted (`.ashift`) is not simulated";
        return Err(d.unsupported(i, why));
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
        sparse: mods.has("sp"),
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
    let [to, left, right, rest @ ..] = o.as_slice() else {
        return Err(few());
    };
    let (metadata, rest) = match (usage.sparse, rest) {
        (true, [metadata, rest @ ..]) => (Some(metadata), rest),
        (_, rest) => (None, rest),
    };
    let [form, rest @ ..] = rest else {
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
        metadata: metadata.map(|operand| d.address(operand)).transpose()?,
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
        let base = TensorAddress::of(address);
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
        let Some(factors) = self.factors(cx, lane, &mut product) else {
            return;
        };
        for (at, &rank) in product.ranks.iter().enumerate() {
            source::check(cx, rank, &product.lines[at]);
        }
        let disabled = self.disabled(cx, lane);
        self.finish(cx, lane, product, factors, accumulate, &disabled);
    }

    /// The key of products that are ordered with this one without a wait.
    fn key(&self, form: &Form, address: u32) -> u64 {
        let kind = match form.kind {
            MmaKind::F16 => 0,
            MmaKind::Tf32 => 1,
            MmaKind::F8f6f4 => 2,
            MmaKind::I8 => 3,
            MmaKind::Mxf8f6f4 => 4,
            MmaKind::Mxf4 => 5,
            MmaKind::Mxf4nvf4 { .. } => 6,
        };
        u64::from(address)
            | (form.m as u64 / 16) << 32
            | (form.n as u64 / 8) << 40
            | kind << 48
            | u64::from(self.usage.pair) << 56
            | u64::from(self.usage.ws) << 57
            | u64::from(self.usage.sparse) << 58
    }

    /// A with m rows and B with k, scaled, and B as the second block of a pair scales it, where that
    /// differs; none where they can't be read.
    fn factors(
        &self,
        cx: &mut Cx<'_>,
        lane: usize,
        product: &mut Product,
    ) -> Option<(Numbers, Numbers, Option<Numbers>)> {
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
                        k: form.stored(),
                        ..matrix
                    },
                )
            }
            Left::Tensor(addr) => {
                let base = TensorAddress::of(addr.eval(cx)[lane] as u32);
                product.read_tensor(cx, base)?
            }
        };
        if let Some(metadata) = &self.metadata {
            let at = TensorAddress::of(metadata.eval(cx)[lane] as u32);
            a = product.expand(cx, at, &a)?;
        }
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
        let mut second = None;
        if let Some(scales) = &self.scales {
            let (sa, sb) = (
                scales.a.eval(cx)[lane] as u32,
                scales.b.eval(cx)[lane] as u32,
            );
            second = product.scale(
                cx,
                TensorAddress::of(sa),
                TensorAddress::of(sb),
                &mut a,
                &mut b,
            )?;
        }
        Some((a, b, second))
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
        (mut a, mut b, second): (Numbers, Numbers, Option<Numbers>),
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
        let shift = accumulate.then_some(self.shift);
        if let Some(mut second) = second {
            // The rows of the second block follow those of the first.
            let (mut whole, first) = (d.clone(), d.len() / 2);
            form.multiply(&mut a.clone(), &mut second, shift, &mut whole);
            form.multiply(&mut a, &mut b, shift, &mut d);
            d[first..].copy_from_slice(&whole[first..]);
        } else {
            form.multiply(&mut a, &mut b, shift, &mut d);
        }
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
        // 128 rows, two columns and 32 bytes of depth a cycle: 4096 products of halves, which
        // with 148 SMs at 1.85 GHz are 2.25 PFLOP/s: an eighth of the 18 of an HGX B200 board (NVIDIA's
        // data sheet has 36 with sparsity, which doubles the depth here). Fewer rows take as long.
        let computing = match layout {
            Layout::B => form.n as u64 / 4,
            _ => form.n as u64 / 2,
        };
        let reading = product.lines.iter().map(Lines::bytes).max().unwrap_or(0) / SHARED_RATE;
        let busy = computing.max(reading);
        let uses = product
            .ranks
            .iter()
            .zip(product.lines)
            .map(|(&rank, lines)| (rank, lines, product.reads.clone(), vec![span]));
        let uses: Vec<Used> = uses.collect();
        start(cx, lane, product.doing.what, uses, busy.max(8));
    }
}
