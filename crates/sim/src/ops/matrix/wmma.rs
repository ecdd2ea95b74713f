//! `wmma.load`, `wmma.mma` and `wmma.store`.
//!
//! Every lane reaches the elements that it holds through its own pointer and
//! stride, which are the same in all lanes of a correct program.

use super::fragment::{Words, longs};
use super::operands::{
    Access, accumulator, assemble, element, shape, sources, targets, types, window_of,
};
use crate::access::context::Cx;
use crate::access::group::{Does, Group};
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, Mask, each};
use heist_arith::tensor::mma::{BitOp, Shape};
use heist_arith::tensor::wmma::{self, Wmma};
use heist_arith::tensor::{Accumulator, Element, Layout};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

const KNOWN: &[&str] = &[
    "load",
    "store",
    "mma",
    "a",
    "b",
    "c",
    "d",
    "sync",
    "aligned",
    "row",
    "col",
    "shared",
    "shared::cta",
    "shared::cluster",
    "global",
    "satfinite",
    "rn",
    "rz",
    "rm",
    "rp",
    "xor",
    "and",
    "popc",
    "m16n16k16",
    "m32n8k16",
    "m8n32k16",
    "m16n16k8",
    "m8n8k4",
    "m8n8k32",
    "m8n8k128",
    "tf32",
    "s4",
    "u4",
    "b1",
];

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let Some(shape) = shape(mods) else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no shape", i.opcode),
        ));
    };
    match mods.all.first().copied() {
        Some("load") => load(d, i, mods, shape),
        Some("store") => store(d, i, mods, shape),
        Some("mma") => multiply(d, i, mods, shape),
        _ => Err(d.unsupported(i, "wmma loads, multiplies and stores")),
    }
}

/// A matrix in memory and its fragment.
struct Matrix {
    layout: Layout,
    /// The bits of an element.
    bits: u32,
    /// Rows are contiguous, not columns.
    by_rows: bool,
    /// Elements from one row or column to the next.
    stride: Stride,
    addr: Addr,
    /// What pointer and stride are to be multiples of.
    alignment: (u64, u64),
}

#[derive(Clone, Copy)]
enum Stride {
    Compact(u64),
    Given(Slot),
}

impl Matrix {
    /// Takes apart what load and store share: `[p]`, and the stride if there is one.
    fn of(
        d: &mut Decoder<'_>,
        mods: &Mods<'_>,
        address: &Operand,
        stride: Option<&Operand>,
        layout: Layout,
        bits: u32,
        size: (u16, u16),
    ) -> Decoded<Matrix> {
        let by_rows = !mods.has("col");
        let along = u64::from(if by_rows { size.1 } else { size.0 });
        let stride = match stride {
            None => Stride::Compact(along),
            Some(operand) => Stride::Given(d.src(operand, ScalarType::B32)?),
        };
        // The fragment of a thread, each element counted once.
        let elements = u64::from(size.0) * u64::from(size.1) / LANES as u64;
        let bytes = (elements * u64::from(bits) / 8).max(1).next_power_of_two();
        Ok(Matrix {
            layout,
            bits,
            by_rows,
            stride,
            addr: d.address(address)?,
            alignment: (bytes.min(32), bytes.min(16)),
        })
    }

    fn strides(&self, cx: &Cx<'_>) -> [u64; LANES] {
        match self.stride {
            Stride::Compact(n) => [n; LANES],
            Stride::Given(slot) => cx.row(slot).map(u64::from),
        }
    }

    /// Reports a pointer or a stride that is not aligned.
    fn check(&self, cx: &mut Cx<'_>, pointers: &[u64; LANES], strides: &[u64; LANES]) {
        let (pointer, stride) = self.alignment;
        let bytes = |n: u64| n.wrapping_mul(u64::from(self.bits)) / 8;
        let bad = |lane: &usize| {
            !pointers[*lane].is_multiple_of(pointer)
                || !bytes(strides[*lane]).is_multiple_of(stride)
        };
        let bad = each(cx.mask)
            .filter(bad)
            .fold(0, |mask: Mask, lane| mask | 1 << lane);
        if bad == 0 {
            return;
        }
        let lane = crate::lanes::first(bad);
        let (at, by) = (pointers[lane], strides[lane]);
        cx.report(rule::WMMA_STRIDE, bad, |_, mut told| {
            told.message = if at.is_multiple_of(pointer) {
                format!(
                    "a stride of {by} elements is {} bytes, which is not a multiple of {stride}",
                    bytes(by)
                )
            } else {
                format!("the matrix is at address {at:#x}, which is not a multiple of {pointer}")
            };
            told.help("rows and columns begin at addresses aligned to the fragment: pad the leading dimension to 16 bytes, and align the tile to 32")
        });
    }

    /// The registers that hold other elements than those before them, each with the
    /// first that holds the same.
    fn copies(&self) -> Vec<usize> {
        let of = |r: usize| self.layout.place(0, r, 0);
        (0..self.layout.registers())
            .map(|r| (0..r).find(|&before| of(before) == of(r)).unwrap_or(r))
            .collect()
    }

    /// Whether the elements of a register lie next to each other in memory.
    fn is_contiguous(&self) -> bool {
        if self.layout.per_register() < 2 {
            return true;
        }
        let ((row, column), (next_row, next_column)) =
            (self.layout.place(0, 0, 0), self.layout.place(0, 0, 1));
        if self.by_rows {
            row == next_row && next_column == column + 1
        } else {
            column == next_column && next_row == row + 1
        }
    }

    /// The bytes of one access, and how many make up a register.
    fn pieces(&self) -> (u32, usize) {
        let per = self.layout.per_register();
        if self.is_contiguous() {
            (self.bits * per as u32 / 8, 1)
        } else {
            (self.bits / 8, per)
        }
    }

    /// The addresses of piece `j` of register `r`.
    fn addresses(
        &self,
        pointers: &[u64; LANES],
        strides: &[u64; LANES],
        r: usize,
        j: usize,
    ) -> [u64; LANES] {
        std::array::from_fn(|lane| {
            let (row, column) = self.layout.place(lane, r, j);
            let (outer, inner) = if self.by_rows {
                (row, column)
            } else {
                (column, row)
            };
            let index = (outer as u64)
                .wrapping_mul(strides[lane])
                .wrapping_add(inner as u64);
            let bits = index.wrapping_mul(u64::from(self.bits));
            pointers[lane].wrapping_add(bits / 8)
        })
    }
}

/// The type of the registers of a fragment.
fn register_type(bits: u32) -> ScalarType {
    if bits == 64 {
        ScalarType::B64
    } else {
        ScalarType::B32
    }
}

/// What a load or store names: its layout, the bits of an element and the size.
fn fragment(
    d: &Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    shape: Shape,
) -> Decoded<(Layout, u32, (u16, u16))> {
    let missing = || d.unsupported(i, "wmma has no fragment of this type and shape");
    let &name = types(mods).first().ok_or_else(missing)?;
    let which = mods.all.get(1).copied().unwrap_or("");
    // Whether the shape exists for the type.
    let factor = |name| -> Decoded<Element> {
        let of = element(name).ok_or_else(missing)?;
        let sum = match of {
            Element::F64 => Accumulator::F64,
            of if of.is_float() => Accumulator::F32,
            _ => Accumulator::S32,
        };
        Wmma::new(shape, of, of, sum, sum).map_err(|error| d.unsupported(i, &error.to_string()))?;
        Ok(of)
    };
    match which {
        "a" => {
            let of = factor(name)?;
            Ok((wmma::a_layout(shape, of), of.bits(), (shape.m, shape.k)))
        }
        "b" => {
            let of = factor(name)?;
            Ok((wmma::b_layout(shape, of), of.bits(), (shape.k, shape.n)))
        }
        "c" | "d" => {
            let of = accumulator(name).ok_or_else(missing)?;
            let bits = match of {
                Accumulator::F16 => 16,
                Accumulator::F64 => 64,
                _ => 32,
            };
            let exists = [
                Element::F16,
                Element::Bf16,
                Element::Tf32,
                Element::S8,
                Element::S4,
                Element::B1,
                Element::F64,
            ]
            .iter()
            .any(|&a| Wmma::new(shape, a, a, of, of).is_ok());
            if !exists {
                return Err(missing());
            }
            Ok((
                wmma::accumulator_layout(shape, of),
                bits,
                (shape.m, shape.n),
            ))
        }
        _ => Err(missing()),
    }
}

struct Load {
    matrix: Matrix,
    access: Access,
    copies: Vec<usize>,
    targets: Vec<Slot>,
}

fn load(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>, shape: Shape) -> Decoded<()> {
    let (layout, bits, size) = fragment(d, i, mods, shape)?;
    let stride = i.operands.get(2);
    let o = operands(d, i, 2 + usize::from(stride.is_some()))?;
    let matrix = Matrix::of(d, mods, &o[1], stride, layout, bits, size)?;
    let access = Access {
        window: window_of(d, i, mods)?.or(matrix.addr.window),
        size: matrix.pieces().0,
        does: Does::Reads,
        shared_only: false,
    };
    let targets = targets(d, &o[0], layout.registers(), register_type(bits))?;
    let load = Load {
        copies: matrix.copies(),
        matrix,
        access,
        targets,
    };
    d.emit(Box::new(load), memory_cost(mods));
    Ok(())
}

fn memory_cost(mods: &Mods<'_>) -> Cost {
    if mods.has("global") {
        Cost::new(8, 500)
    } else {
        Cost::new(8, 34)
    }
}

impl Instr for Load {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        let pointers = self.matrix.addr.eval(cx);
        let strides = self.matrix.strides(cx);
        self.matrix.check(cx, &pointers, &strides);
        let (bytes, pieces) = self.matrix.pieces();
        let mut values = Vec::with_capacity(self.targets.len());
        for (r, &target) in self.targets.iter().enumerate() {
            let from = self.copies[r];
            let value: [u64; LANES] = if from < r {
                values[from]
            } else {
                let mut value = [0u64; LANES];
                for j in 0..pieces {
                    let addresses = self.matrix.addresses(&pointers, &strides, r, j);
                    self.access
                        .run(cx, &addresses, cx.mask, |cx: &mut Cx<'_>, group: &Group| {
                            let Some(region) = cx.region(group.home) else {
                                return;
                            };
                            for lane in each(group.mask) {
                                let bits = region.read(group.offsets[lane], bytes as usize) as u64;
                                value[lane] |= bits << (8 * bytes as usize * j);
                            }
                        });
                }
                value
            };
            values.push(value);
            if self.matrix.bits == 64 {
                cx.write(target, &value);
            } else {
                cx.write(target, &value.map(|value| value as u32));
            }
        }
        Flow::Next
    }
}

struct Store {
    matrix: Matrix,
    access: Access,
    sources: Vec<Slot>,
}

fn store(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>, shape: Shape) -> Decoded<()> {
    let (layout, bits, size) = fragment(d, i, mods, shape)?;
    let stride = i.operands.get(2);
    let o = operands(d, i, 2 + usize::from(stride.is_some()))?;
    let matrix = Matrix::of(d, mods, &o[0], stride, layout, bits, size)?;
    let access = Access {
        window: window_of(d, i, mods)?.or(matrix.addr.window),
        size: matrix.pieces().0,
        does: Does::Writes,
        shared_only: false,
    };
    let sources = sources(d, &o[1], layout.registers(), register_type(bits))?;
    let store = Store {
        matrix,
        access,
        sources,
    };
    d.emit(Box::new(store), Cost::new(8, 0));
    Ok(())
}

impl Instr for Store {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        let pointers = self.matrix.addr.eval(cx);
        let strides = self.matrix.strides(cx);
        self.matrix.check(cx, &pointers, &strides);
        let (bytes, pieces) = self.matrix.pieces();
        for (r, &source) in self.sources.iter().enumerate() {
            let value: [u64; LANES] = if self.matrix.bits == 64 {
                cx.read(source)
            } else {
                cx.row(source).map(u64::from)
            };
            for j in 0..pieces {
                let addresses = self.matrix.addresses(&pointers, &strides, r, j);
                self.access.run(cx, &addresses, cx.mask, |cx, group| {
                    let Some(region) = cx.region(group.home) else {
                        return;
                    };
                    for lane in each(group.mask) {
                        let bits = value[lane] >> (8 * bytes as usize * j);
                        region.write(group.offsets[lane], bytes as usize, u128::from(bits));
                    }
                });
            }
        }
        Flow::Next
    }
}

struct Multiply {
    kind: Wmma,
    doubles: bool,
    a: Vec<Slot>,
    b: Vec<Slot>,
    c: Vec<Slot>,
    d: Vec<Slot>,
}

fn multiply(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>, shape: Shape) -> Decoded<()> {
    let names = types(mods);
    let all = match names[..] {
        // Halves leave their type out.
        [d, c] => (
            accumulator(d),
            Some(Element::F16),
            Some(Element::F16),
            accumulator(c),
        ),
        [d, a, b, c] => (accumulator(d), element(a), element(b), accumulator(c)),
        _ => (None, None, None, None),
    };
    let (Some(after), Some(a), Some(b), Some(before)) = all else {
        return Err(d.unsupported(
            i,
            "the types of its four matrices are not ones that are simulated",
        ));
    };
    let kind = Wmma::new(shape, a, b, before, after)
        .map_err(|error| d.unsupported(i, &error.to_string()))?
        .satfinite(mods.has("satfinite"))
        .bit_op(if mods.has("and") {
            BitOp::And
        } else {
            BitOp::Xor
        })
        .rounding(
            mods.rounding()
                .unwrap_or(heist_arith::float::Rounding::Nearest),
        );
    let doubles = a == Element::F64;
    let ty = register_type(if doubles { 64 } else { 32 });
    let o = operands(d, i, 4)?;
    let multiply = Multiply {
        kind,
        doubles,
        a: sources(d, &o[1], kind.a_layout().registers(), ty)?,
        b: sources(d, &o[2], kind.b_layout().registers(), ty)?,
        c: sources(d, &o[3], kind.c_layout().registers(), ty)?,
        d: targets(d, &o[0], kind.d_layout().registers(), ty)?,
    };
    d.emit(Box::new(multiply), super::mma::cost(shape, a));
    Ok(())
}

impl Instr for Multiply {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        if self.doubles {
            let (a, b, c) = (longs(cx, &self.a), longs(cx, &self.b), longs(cx, &self.c));
            let mut d = vec![[0; LANES]; self.d.len()];
            self.kind.run_f64(&a, &b, &c, &mut d);
            for (register, &slot) in d.iter().zip(&self.d) {
                cx.write(slot, register);
            }
            return Flow::Next;
        }
        let (a, b, c) = (
            Words::of(cx, &self.a),
            Words::of(cx, &self.b),
            Words::of(cx, &self.c),
        );
        let mut d = Words::zeros(self.d.len());
        self.kind.run(a.get(), b.get(), c.get(), d.get_mut());
        d.write(cx, &self.d);
        Flow::Next
    }
}
