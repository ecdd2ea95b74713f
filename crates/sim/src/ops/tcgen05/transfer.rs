//! `tcgen05.ld`, `tcgen05.st` and their waits: between tensor memory and registers.

use super::issue::TensorAddress;
use crate::access::context::Cx;
use crate::access::doubt;
use crate::access::tensor_memory::{Doing, POISON, check};
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, first};
use crate::ops::matrix::operands::{assemble, sources, targets};
use crate::race::clock::{Clock, Known};
use crate::state::follow::Lacks;
use crate::state::tensor_memory::{Span, Use, What};
use heist_arith::tensor::tcgen05::place::Shape;
use heist_ptx::{Instruction, ScalarType, rule};
use std::ops::Range;

/// Cycles from the last word of a load or store to its end.
///
/// A warp moves 32 words a cycle, a register's width, so the four quarters of a B200 together move
/// 149 TB/s. NVIDIA publishes no figure. Measured on a B300 (ademeure/QuickRunCUDA on GitHub, 2026): loads
/// of 16 registers that are waited for, 53 to 57 bytes a cycle and warp, which are the 16 cycles of
/// their words and these; stores 85 to 115 bytes a cycle and warp, so close to 128. What a running product takes
/// from the loads beside it is not modelled.
const LATENCY: u64 = 20;

pub(super) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    if mods.has("wait::ld") || mods.has("wait::st") {
        operands(d, i, 0)?;
        let which = usize::from(mods.has("wait::st"));
        let instr = with(move |cx| match assemble(cx) {
            Ok(()) => wait(cx, which),
            Err(flow) => flow,
        });
        d.emit(instr, Cost::new(2, 0));
        return Ok(());
    }
    let stores = mods.has("st");
    if mods.has("red") {
        return Err(d.unsupported(i, "a load with a reduction (`.red`) is not simulated"));
    }
    let name = mods
        .all
        .iter()
        .copied()
        .find(|text| text.starts_with("16x") || text.starts_with("32x"));
    let split = name == Some("16x32bx2");
    // `[taddr], split, {registers}` and the other way around.
    let o = operands(d, i, 2 + usize::from(split))?;
    let (registers, address, distance) = match (stores, split) {
        (false, false) => (&o[0], &o[1], None),
        (false, true) => (&o[0], &o[1], Some(&o[2])),
        (true, false) => (&o[1], &o[0], None),
        (true, true) => (&o[2], &o[0], Some(&o[1])),
    };
    let shape = match (name, distance.and_then(|operand| d.immediate(operand))) {
        (Some("32x32b"), _) => Shape::L32x32,
        (Some("16x64b"), _) => Shape::L16x64,
        (Some("16x128b"), _) => Shape::L16x128,
        (Some("16x256b"), _) => Shape::L16x256,
        (Some("16x32bx2"), Some(columns)) => Shape::L16x32x2(columns as u32),
        (Some("16x32bx2"), None) => {
            return Err(d.wrong(
                rule::IMMEDIATE_RANGE,
                "the distance of the two halves is a number",
            ));
        }
        _ => {
            return Err(d.wrong(
                rule::MISSING_MODIFIER,
                format!("`{}` names no shape", i.opcode),
            ));
        }
    };
    let count = mods
        .all
        .iter()
        .find_map(|text| text.strip_prefix('x')?.parse::<usize>().ok())
        .filter(|count| count.is_power_of_two() && *count <= shape.most());
    let Some(count) = count else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!(
                "`{}` names no count from `.x1` to `.x{}`",
                i.opcode,
                shape.most()
            ),
        ));
    };
    let addr = d.address(address)?;
    let wanted = count * shape.registers();
    let slots = if stores {
        sources(d, registers, wanted, ScalarType::B32)?
    } else {
        targets(d, registers, wanted, ScalarType::B32)?
    };
    let transfer = Transfer {
        shape,
        addr,
        slots,
        stores,
        packs: mods.has("pack::16b") || mods.has("unpack::16b"),
    };
    d.emit(
        Box::new(transfer),
        Cost::new(wanted.max(2) as u16, LATENCY as u16),
    );
    Ok(())
}

struct Transfer {
    shape: Shape,
    addr: Addr,
    slots: Vec<Slot>,
    stores: bool,
    packs: bool,
}

impl Instr for Transfer {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        if let Err(flow) = assemble(cx) {
            return flow;
        }
        let base = self.base(cx);
        let what = if self.stores { What::Store } else { What::Load };
        let spans = self.spans(base);
        let doing = Doing {
            what,
            writes: self.stores,
            lanes: cx.mask,
        };
        let rank = cx.warp.rank;
        let mut good = true;
        for &span in &spans {
            good &= check(cx, rank, span, doing);
        }
        if self.stores {
            self.store(cx, base);
        } else {
            self.load(cx, base, good);
            if good {
                self.follow(cx, base, &spans);
            }
        }
        // Its words have passed.
        let time = cx.now() + LATENCY;
        let by = (cx.warp.clock.agent, cx.warp.clock.now, first(cx.mask) as u8);
        let mover = cx.mover(usize::from(self.stores));
        mover.2 = mover.2.max(time);
        let one = Use {
            what,
            over: (mover.0, mover.1),
            by,
            pc: cx.pc(),
            time,
        };
        let (reads, writes): (&[Span], &[Span]) = if self.stores {
            (&[], &spans)
        } else {
            (&spans, &[])
        };
        cx.tensor(rank).note(one, reads, writes);
        Flow::Next
    }
}

impl Transfer {
    /// Where it begins: in the quarter of the lanes that the warp has, whatever the address
    /// says.
    fn base(&self, cx: &mut Cx<'_>) -> TensorAddress {
        let addresses = self.addr.eval(cx);
        let address = addresses[first(cx.mask)] as u32;
        let quarter = cx.warp.number as usize % 4;
        let given = TensorAddress::of(address);
        let uniform = addresses.iter().all(|&one| one as u32 == address);
        let within = given.lane % 32;
        let aligned = within == 0 || within == 16 && self.shape.lanes() == 16;
        let wrong = if !uniform {
            Some("the address of tensor memory is not the same in all lanes".to_owned())
        } else if given.lane / 32 != quarter {
            Some(format!(
                "warp {} reaches lanes {} to {} of tensor memory, and the address {address:#x} is of lane {}",
                cx.warp.number,
                32 * quarter,
                32 * quarter + 31,
                given.lane
            ))
        } else if !aligned {
            Some(format!(
                "a shape of {} lanes at lane {within} of a quarter",
                self.shape.lanes()
            ))
        } else {
            None
        };
        if let Some(message) = wrong {
            cx.report(rule::TENSOR_LANES, cx.mask, |_, mut told| {
                told.message = message;
                told.help("add the warp's quarter to the address, (warp % 4) << 21; only shapes of 16 lanes may begin at lane 16 of it")
            });
        }
        TensorAddress {
            lane: 32 * quarter + if aligned { within } else { 0 },
            column: given.column,
        }
    }

    /// What it reaches: two parts where the shape has a distance between its halves.
    fn spans(&self, base: TensorAddress) -> Vec<Span> {
        let first = base.lane / 16;
        let halves = if self.shape.lanes() == 32 { 0b11 } else { 1 };
        let packed = if self.packs { 2 } else { 1 };
        let part = |threads: Range<usize>| {
            let column = |thread, register| self.shape.place(thread, register).1;
            let start = threads.clone().map(|thread| column(thread, 0)).min();
            let last = threads.map(|thread| column(thread, self.slots.len() - 1));
            let (start, end) = (start.unwrap_or(0), last.max().unwrap_or(0) + 1);
            Span {
                halves: halves << first,
                start: base.column + packed * start,
                width: packed * (end - start),
            }
        };
        match self.shape {
            Shape::L16x32x2(_) => vec![part(0..LANES / 2), part(LANES / 2..LANES)],
            _ => vec![part(0..LANES)],
        }
    }

    fn load(&self, cx: &mut Cx<'_>, base: TensorAddress, good: bool) {
        let rank = cx.warp.rank;
        let row = |slot: &Slot| slot.row() + cx.fragment.base;
        let rows: Vec<u32> = self.slots.iter().map(row).collect();
        for (register, &slot) in self.slots.iter().enumerate() {
            let tensor = cx.tensor(rank);
            let values: [u32; LANES] = std::array::from_fn(|thread| {
                let (lane, column) = self.shape.place(thread, register);
                let lane = base.lane + lane;
                match (good, self.packs) {
                    (false, _) => POISON,
                    (true, false) => tensor.word(lane, base.column + column),
                    (true, true) => {
                        let at = base.column + 2 * column;
                        tensor.word(lane, at) & 0xffff | tensor.word(lane, at + 1) << 16
                    }
                }
            });
            cx.write(slot, &values);
        }
        let pc = cx.pc();
        cx.warp.products.load(&rows, pc);
    }

    /// Follows the values that it takes of what nothing has written.
    fn follow(&self, cx: &mut Cx<'_>, base: TensorAddress, spans: &[Span]) {
        let rank = cx.warp.rank;
        let tensor = cx.tensor(rank);
        let firsts = spans.iter().filter_map(|&span| tensor.unwritten(span));
        let Some(first) = firsts.min() else {
            return;
        };
        if !cx.machine.options.checks.unwritten || !cx.follows_values() {
            return;
        }
        let lacks = Lacks::Column(first as u32);
        let packed = if self.packs { 2 } else { 1 };
        for (register, slot) in self.slots.iter().enumerate() {
            let tensor = cx.tensor(rank);
            let unwritten = |thread: &usize| {
                let (lane, column) = self.shape.place(*thread, register);
                let span = Span {
                    halves: 1 << ((base.lane + lane) / 16),
                    start: base.column + packed * column,
                    width: packed,
                };
                tensor.unwritten(span).is_some()
            };
            let lanes = (0..LANES)
                .filter(unwritten)
                .fold(0, |lanes, at| lanes | 1 << at);
            doubt::begin(cx, slot.row(), lanes, Some(lacks));
        }
    }

    fn store(&self, cx: &mut Cx<'_>, base: TensorAddress) {
        let rank = cx.warp.rank;
        for (register, &slot) in self.slots.iter().enumerate() {
            let values = *cx.row(slot);
            let tensor = cx.tensor(rank);
            for (thread, value) in values.into_iter().enumerate() {
                let (lane, column) = self.shape.place(thread, register);
                let lane = base.lane + lane;
                if self.packs {
                    let at = base.column + 2 * column;
                    *tensor.word_mut(lane, at) = value & 0xffff;
                    *tensor.word_mut(lane, at + 1) = value >> 16;
                } else {
                    *tensor.word_mut(lane, base.column + column) = value;
                }
            }
        }
    }
}

/// Waits for the warp's loads, or its stores.
fn wait(cx: &mut Cx<'_>, which: usize) -> Flow {
    let mover = cx.mover(which);
    let (agent, number, time) = *mover;
    mover.1 += 1;
    cx.warp.advance(time);
    if which == 0 {
        cx.warp.products.loaded();
    }
    let mut over = Clock::default();
    over.learn(agent, Known::all(number + 1));
    cx.warp.clock.acquire(&over, cx.mask, cx.warp.live);
    Flow::Next
}
