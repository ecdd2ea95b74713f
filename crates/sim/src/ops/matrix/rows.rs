//! `ldmatrix`, `stmatrix` and `movmatrix`: matrices whose rows are 16 bytes each, at
//! addresses that lanes give.

use super::operands::{Access, assemble, shape, sources, targets, window_of};
use crate::access::context::Cx;
use crate::access::group::{Does, Group};
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, Mask, each};
use crate::race::touch::bytes_in;
use crate::state::memory::region::Region;
use heist_arith::tensor::matrix;
use heist_ptx::{Instruction, ScalarType, rule};

/// How a matrix is spread over the warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `m8n8` of 16 bits, perhaps transposed.
    Halves { trans: bool },
    /// `m16n16.trans` of bytes, or of what widens to bytes.
    Square(Packing),
    /// `m8n16`, of what widens to bytes.
    Wide(Packing),
    /// `m16n8.trans` of bytes, which is only stored.
    Tall,
}

/// What a row's elements take in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Bytes,
    Six,
    Four,
}

impl Packing {
    fn widen(self, row: &[u8; 16]) -> [u8; 16] {
        match self {
            Packing::Bytes => *row,
            Packing::Six => matrix::widen_b6(row),
            Packing::Four => matrix::widen_b4(row),
        }
    }
}

impl Form {
    /// Rows of one matrix, and so lanes that give its addresses.
    fn rows(self) -> usize {
        match self {
            Form::Square(_) => 16,
            _ => 8,
        }
    }

    /// Registers that hold one matrix.
    fn registers(self) -> usize {
        match self {
            Form::Square(_) => 2,
            _ => 1,
        }
    }
}

const KNOWN: &[&str] = &[
    "sync",
    "aligned",
    "m8n8",
    "m16n16",
    "m8n16",
    "m16n8",
    "x1",
    "x2",
    "x4",
    "trans",
    "shared",
    "shared::cta",
    "b8x16",
    "b6x16_p32",
    "b4x16_p64",
    "b8",
];

fn form(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>, stores: bool) -> Decoded<Form> {
    let packing = if mods.has("b6x16_p32") {
        Packing::Six
    } else if mods.has("b4x16_p64") {
        Packing::Four
    } else {
        Packing::Bytes
    };
    let trans = mods.has("trans");
    let size = shape(mods).map(|shape| (shape.m, shape.n));
    match (size, stores) {
        (Some((8, 8)), _) if packing == Packing::Bytes && !mods.has("b8") => {
            Ok(Form::Halves { trans })
        }
        (Some((16, 16)), false) if trans => Ok(Form::Square(packing)),
        (Some((8, 16)), false) if packing != Packing::Bytes && !trans => Ok(Form::Wide(packing)),
        (Some((16, 8)), true) if trans && mods.has("b8") => Ok(Form::Tall),
        _ => Err(d.unsupported(i, "there is no such shape of rows")),
    }
}

/// How many matrices.
fn count(d: &Decoder<'_>, i: &Instruction, mods: &Mods<'_>, form: Form) -> Decoded<usize> {
    let count = if mods.has("x4") {
        4
    } else if mods.has("x2") {
        2
    } else {
        1
    };
    if count * form.rows() > LANES {
        return Err(d.wrong(
            rule::BAD_MODIFIER,
            format!(
                "`{}` needs the addresses of {} rows, and a warp has 32 lanes",
                i.opcode,
                count * form.rows()
            ),
        ));
    }
    Ok(count)
}

/// The lanes that give addresses.
fn givers(form: Form, count: usize) -> Mask {
    match form.rows() * count {
        LANES.. => u32::MAX,
        rows => (1 << rows) - 1,
    }
}

struct Load {
    access: Access,
    addr: Addr,
    form: Form,
    targets: Vec<Slot>,
    lanes: Mask,
}

pub(super) fn load(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let form = form(d, i, mods, false)?;
    let count = count(d, i, mods, form)?;
    let o = operands(d, i, 2)?;
    let addr = d.address(&o[1])?;
    let window = window_of(d, i, mods)?.or(addr.window);
    let targets = targets(d, &o[0], count * form.registers(), ScalarType::B32)?;
    let load = Load {
        access: Access {
            window,
            size: 16,
            does: Does::Reads,
            shared_only: true,
        },
        addr,
        form,
        targets,
        lanes: givers(form, count),
    };
    d.emit(Box::new(load), Cost::new(2 * count as u16, 30));
    Ok(())
}

impl Instr for Load {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        let addresses = self.addr.eval(cx);
        let mut rows = [[0u8; 16]; LANES];
        self.access.run(cx, &addresses, self.lanes, |cx, group| {
            let Some(region) = cx.region(group.home) else {
                return;
            };
            for lane in each(group.mask) {
                rows[lane] = region.read(group.offsets[lane], 16).to_le_bytes();
            }
        });
        for (at, &target) in self.targets.iter().enumerate() {
            let register = self.register(&rows, at);
            cx.write(target, &register);
        }
        Flow::Next
    }
}

impl Load {
    /// Register `at` of the result.
    fn register(&self, rows: &[[u8; 16]; LANES], at: usize) -> [u32; LANES] {
        let row = |lane: usize| rows[lane % LANES];
        match self.form {
            // The words of the rows, one after the other.
            Form::Halves { trans: false } => {
                let mut register = [0; LANES];
                let (words, _) = register.as_chunks_mut::<4>();
                for (r, words) in words.iter_mut().enumerate() {
                    *words =
                        bytemuck::cast::<[u8; 16], [u32; 4]>(row(8 * at + r)).map(u32::from_le);
                }
                register
            }
            Form::Halves { trans: true } => {
                let rows = std::array::from_fn(|r| matrix::row_from_bytes(row(8 * at + r)));
                matrix::load::<true>(&rows)
            }
            Form::Square(packing) => {
                let first = 16 * (at / 2);
                let rows = std::array::from_fn(|r| packing.widen(&row(first + r)));
                matrix::load_m16n16_b8(&rows)[at % 2]
            }
            Form::Wide(packing) => {
                let rows = std::array::from_fn(|r| packing.widen(&row(8 * at + r)));
                matrix::load_m8n16_b8(&rows)
            }
            // Only stored.
            Form::Tall => [0; LANES],
        }
    }
}

struct Store {
    access: Access,
    addr: Addr,
    form: Form,
    sources: Vec<Slot>,
    lanes: Mask,
}

pub(super) fn store(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let form = form(d, i, mods, true)?;
    let count = count(d, i, mods, form)?;
    let o = operands(d, i, 2)?;
    let addr = d.address(&o[0])?;
    let window = window_of(d, i, mods)?.or(addr.window);
    let sources = sources(d, &o[1], count, ScalarType::B32)?;
    let store = Store {
        access: Access {
            window,
            size: 16,
            does: Does::Writes,
            shared_only: true,
        },
        addr,
        form,
        sources,
        lanes: givers(form, count),
    };
    d.emit(Box::new(store), Cost::new(2 * count as u16, 24));
    Ok(())
}

impl Instr for Store {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        let mut rows = [[0u8; 16]; LANES];
        for (&source, rows) in self.sources.iter().zip(rows.chunks_exact_mut(8)) {
            let register = cx.row(source);
            let stored = match self.form {
                Form::Halves { trans: true } => {
                    matrix::store::<true>(register).map(matrix::row_to_bytes)
                }
                Form::Halves { trans: false } => {
                    matrix::store::<false>(register).map(matrix::row_to_bytes)
                }
                _ => matrix::store_m16n8_b8(register),
            };
            rows.copy_from_slice(&stored);
        }
        let addresses = self.addr.eval(cx);
        // Warps that each write the same value are a race without visible effect.
        let changes = |cx: &mut Cx<'_>, group: &Group, line: u64| {
            let differs = |region: &mut Region, lane: usize| {
                region.bytes(group.offsets[lane], 16) != &rows[lane][..]
            };
            cx.region(group.home).map_or(u128::MAX, |region| {
                let lanes = each(group.mask).filter(|&lane| differs(region, lane));
                let bytes = lanes.map(|lane| bytes_in(line, group.offsets[lane], 16));
                bytes.fold(0, |all, bytes| all | bytes)
            })
        };
        self.access
            .run_unless(cx, &addresses, self.lanes, changes, |cx, group| {
                let Some(region) = cx.region(group.home) else {
                    return;
                };
                for lane in each(group.mask) {
                    region.write_bytes(group.offsets[lane], &rows[lane]);
                }
            });
        Flow::Next
    }
}

/// `movmatrix.sync.aligned.m8n8.trans.b16`.
pub(super) fn transpose(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, &["sync", "aligned", "m8n8", "trans"])?;
    let o = operands(d, i, 2)?;
    let source = d.src(&o[1], ScalarType::B32)?;
    let target = d.dst(&o[0], ScalarType::B32)?;
    let instr = crate::decode::map::with(move |cx| {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        let register = matrix::transpose(cx.row(source));
        cx.write(target, &register);
        Flow::Next
    });
    d.emit(instr, Cost::new(4, 16));
    Ok(())
}
