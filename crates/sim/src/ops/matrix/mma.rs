//! `mma.sync` and `mma.sp.sync`.

use super::fragment::{Words, longs, views};
use super::operands::{accumulator, assemble, element, shape, sources, targets, types};
use crate::access::context::Cx;
use crate::code::{Flow, Slot};
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::LANES;
use heist_arith::tensor::mma::{BitOp, Mma, Shape};
use heist_arith::tensor::quad_pair::{Major, QuadPair};
use heist_arith::tensor::sparse::SparseMma;
use heist_arith::tensor::{Accumulator, Element};
use heist_ptx::{Instruction, ScalarType, rule};

const KNOWN: &[&str] = &[
    "sync",
    "aligned",
    "row",
    "col",
    "satfinite",
    "xor",
    "and",
    "popc",
    "sp",
    "sp::ordered_metadata",
    "rn",
    "rz",
    "rm",
    "rp",
    "kind::f8f6f4",
    "e4m3",
    "e5m2",
    "tf32",
    "s4",
    "u4",
    "b1",
];

/// What is multiplied.
#[derive(Clone, Copy, Debug)]
enum Product {
    Dense(Mma),
    Doubles(Mma),
    QuadPair(QuadPair),
    Sparse(SparseMma),
}

struct Multiply {
    product: Product,
    a: Vec<Slot>,
    b: Vec<Slot>,
    c: Vec<Slot>,
    d: Vec<Slot>,
    /// Metadata and selector of a sparse product.
    sparse: Option<(Slot, u32)>,
}

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if let Some(other) = mods
        .all
        .iter()
        .find(|text| text.contains("scale") || text.contains("mxf"))
    {
        return Err(d.unsupported(i, &format!("products with `.{other}` are not simulated")));
    }
    let named = shape(mods);
    let known: Vec<&str> = KNOWN
        .iter()
        .copied()
        .chain(mods.all.iter().copied().filter(|text| is_shape(text)))
        .collect();
    only(d, i, mods, &known)?;
    let Some(shape) = named else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no shape", i.opcode),
        ));
    };
    let names = types(mods);
    let all = match names[..] {
        [d, a, b, c] => (accumulator(d), element(a), element(b), accumulator(c)),
        _ => (None, None, None, None),
    };
    let (Some(after), Some(a), Some(b), Some(before)) = all else {
        return Err(d.unsupported(
            i,
            "the types of its four matrices are not ones that are simulated",
        ));
    };
    let sparse = mods.has("sp") || mods.has("sp::ordered_metadata");
    let made = product(mods, sparse, shape, [a, b], [before, after]);
    let (product, counts) = made.map_err(|why| d.unsupported(i, &why))?;
    let o = operands(d, i, if sparse { 6 } else { 4 })?;
    let ty = match product {
        Product::Doubles(_) => ScalarType::B64,
        _ => ScalarType::B32,
    };
    let metadata = match product {
        Product::Sparse(kind) => {
            let metadata = d.src(&o[4], ScalarType::B32)?;
            let selector = d
                .immediate(&o[5])
                .filter(|&n| n <= u64::from(kind.max_selector()));
            let Some(selector) = selector else {
                return Err(d.wrong(
                    rule::IMMEDIATE_RANGE,
                    format!(
                        "the sparsity selector is a number from 0 to {}",
                        kind.max_selector()
                    ),
                ));
            };
            Some((metadata, selector as u32))
        }
        _ => None,
    };
    let multiply = Multiply {
        product,
        a: sources(d, &o[1], counts[0], ty)?,
        b: sources(d, &o[2], counts[1], ty)?,
        c: sources(d, &o[3], counts[2], ty)?,
        d: targets(d, &o[0], counts[3], ty)?,
        sparse: metadata,
    };
    d.emit(Box::new(multiply), cost(shape, a));
    Ok(())
}

/// What is multiplied, and the registers of its four matrices, or why it can't be.
fn product(
    mods: &Mods<'_>,
    sparse: bool,
    shape: Shape,
    [a, b]: [Element; 2],
    [before, after]: [Accumulator; 2],
) -> Result<(Product, [usize; 4]), String> {
    if sparse {
        let kind = match SparseMma::new(shape, a, b, before, after) {
            Ok(kind) => kind.satfinite(mods.has("satfinite")),
            Err(error) => return Err(error.to_string()),
        };
        let counts = [
            kind.a_layout(),
            kind.b_layout(),
            kind.c_layout(),
            kind.d_layout(),
        ]
        .map(|layout| layout.registers());
        Ok((Product::Sparse(kind), counts))
    } else if shape == Shape::new(8, 8, 4) && a == Element::F16 && b == Element::F16 {
        let of = |acc| if acc == Accumulator::F16 { 4 } else { 8 };
        let mut majors = mods.all.iter().filter_map(|text| match *text {
            "row" => Some(Major::Row),
            "col" => Some(Major::Column),
            _ => None,
        });
        let kind = QuadPair {
            a: majors.next().unwrap_or(Major::Row),
            b: majors.next().unwrap_or(Major::Column),
            c: before,
            d: after,
        };
        Ok((Product::QuadPair(kind), [2, 2, of(before), of(after)]))
    } else {
        let kind = match Mma::new(shape, a, b, before, after) {
            Ok(kind) => kind,
            Err(error) => return Err(error.to_string()),
        };
        let kind = kind
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
        let counts = [
            kind.a_layout(),
            kind.b_layout(),
            kind.c_layout(),
            kind.d_layout(),
        ]
        .map(|layout| layout.registers());
        if a == Element::F64 {
            Ok((Product::Doubles(kind), counts))
        } else {
            Ok((Product::Dense(kind), counts))
        }
    }
}

fn is_shape(text: &str) -> bool {
    text.strip_prefix('m')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A warp's share of an SM's tensor cores: 512 products of halves a cycle, and as
/// much more or less as elements are smaller or larger.
pub(super) fn cost(shape: Shape, of: Element) -> Cost {
    let products = u32::from(shape.m) * u32::from(shape.n) * u32::from(shape.k);
    let rate = match of {
        Element::F64 => 64,
        _ => 16 * 512 / of.bits().max(4),
    };
    let issue = (products / rate).clamp(2, 128) as u16;
    Cost::new(issue, issue + 16)
}

impl Instr for Multiply {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        if let Product::Doubles(mma) = self.product {
            let (a, b, c) = (longs(cx, &self.a), longs(cx, &self.b), longs(cx, &self.c));
            let mut d = vec![[0; LANES]; self.d.len()];
            mma.run_f64(&a, &b, &c, &mut d);
            for (register, &slot) in d.iter().zip(&self.d) {
                cx.write(slot, register);
            }
            return Flow::Next;
        }
        if let Product::Dense(mma) = &self.product {
            let (a, b, c) = (views(cx, &self.a), views(cx, &self.b), views(cx, &self.c));
            let mut d = [[0; LANES]; 4];
            mma.run(&a, &b, &c, &mut d);
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
        match self.product {
            Product::Dense(_) | Product::Doubles(_) => {}
            Product::QuadPair(pair) => pair.run(a.get(), b.get(), c.get(), d.get_mut()),
            Product::Sparse(mma) => {
                if let Some((metadata, selector)) = self.sparse {
                    let metadata = *cx.row(metadata);
                    mma.run(a.get(), b.get(), c.get(), &metadata, selector, d.get_mut());
                }
            }
        }
        d.write(cx, &self.d);
        Flow::Next
    }
}
