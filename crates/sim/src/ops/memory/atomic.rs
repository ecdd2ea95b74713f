//! Atomic operations and reductions on memory.

use super::reduction::{op_of, type_of};
use crate::access::context::Cx;
use crate::access::group::{Does, Group, Home, groups};
use crate::access::look::watch;
use crate::access::order::Order;
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::map::with;
use crate::decode::mods::{Mods, only};
use crate::decode::qualifier::{reach_of, read_bits, window_of, write_bits};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{LANES, each};
use crate::race::access::Scope;
use crate::state::memory::window::Window;
use heist_arith::atomic::{Op, Subnormals, Type, apply};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

const KNOWN: &[&str] = &[
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "add",
    "min",
    "max",
    "inc",
    "dec",
    "and",
    "or",
    "xor",
    "exch",
    "cas",
    "noftz",
    "v2",
    "v4",
    "v8",
    "L2::cache_hint",
];

/// One atomic access.
struct Atomic {
    window: Option<Window>,
    addr: Addr,
    order: Order,
    op: Op,
    ty: Type,
    /// Where the old values go, and what is applied, element by element.
    targets: Vec<Option<(Slot, u32)>>,
    operands: Vec<(Slot, u32)>,
    swap: Option<(Slot, u32)>,
}

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let returns = i.opcode.base() == "atom";
    let (Some(op), Some(scalar)) = (op_of(mods), mods.ty()) else {
        return Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no operation or no type", i.opcode),
        ));
    };
    let mut operands = i.operands.iter();
    let target = if returns { operands.next() } else { None };
    let Some(address) = operands.next() else {
        return Err(d.wrong(rule::OPERAND_COUNT, "an atomic has an address"));
    };
    let addr = d.address(address)?;
    let Some(b) = operands.next() else {
        return Err(d.wrong(rule::OPERAND_COUNT, "an atomic has an operand"));
    };
    if scalar == ScalarType::B128 {
        let swap = if op == Op::Cas { operands.next() } else { None };
        return wide(d, mods, op, target, addr, b, swap);
    }
    let Some(ty) = type_of(scalar) else {
        return Err(d.unsupported(i, "there are no atomics of this type"));
    };
    if apply(op, ty, Subnormals::Kept, 0, 0, 0).is_none() {
        return Err(d.unsupported(i, "there is no such operation on this type"));
    }
    let list = |operand: &Operand| match operand {
        Operand::Vector(list) => list.clone(),
        one => vec![one.clone()],
    };
    let mut sources = Vec::new();
    for operand in list(b) {
        sources.push(d.src_any(&operand, scalar)?);
    }
    let mut targets = vec![None; sources.len()];
    if let Some(target) = target {
        for (slot, operand) in targets.iter_mut().zip(list(target)) {
            *slot = match operand {
                Operand::Sink => None,
                operand => Some(d.dst_any(&operand, scalar)?),
            };
        }
    }
    let swap = match (op, operands.next()) {
        (Op::Cas, Some(operand)) => Some(d.src_any(operand, scalar)?),
        _ => None,
    };
    let window = addr.window.or(window_of(d, mods));
    let order = Order::of(mods, Order::Relaxed(Scope::Gpu));
    let atomic = Atomic {
        window,
        addr,
        order,
        op,
        ty,
        targets,
        operands: sources,
        swap,
    };
    let cost = if window.is_some_and(Window::is_shared) {
        Cost::new(4, 40)
    } else {
        Cost::ATOMIC
    };
    d.emit_reaching(
        with(move |cx| atomic.run(cx)),
        cost,
        reach_of(window, order),
    );
    Ok(())
}

impl Atomic {
    fn run(&self, cx: &mut Cx<'_>) -> Flow {
        let addresses = self.addr.eval(cx);
        let size = self.ty.bytes() * self.operands.len() as u32;
        let all = cx.mask;
        let mut asked = true;
        groups(
            cx,
            self.window,
            &addresses,
            size,
            Does::Writes,
            |cx, group| {
                cx.mask = group.mask;
                if matches!(group.home, Home::Global(_) | Home::Shared(_)) {
                    asked &= self.on(cx, group);
                } else {
                    let name = group.home.name();
                    cx.report(rule::WRONG_WINDOW, group.mask, |_, mut told| {
                        told.message = format!("an atomic on {name} memory, which has none");
                        told
                    });
                }
                cx.mask = all;
            },
        );
        done(cx, asked)
    }

    /// Whether all lanes only asked.
    fn on(&self, cx: &mut Cx<'_>, group: &Group) -> bool {
        check_written(cx, group);
        wait_for_turn(cx, group, self.targets.iter().any(Option::is_some));
        // A packed pair is two atomics.
        let size = match self.ty {
            Type::F16x2 | Type::Bf16x2 => 2,
            ty => ty.bytes() as u8,
        };
        // What it acquires comes before its own access.
        crate::access::order::read(cx, group, self.order);
        watch(cx, group, false, Does::Writes, self.order.atomic_kind(size));
        crate::access::order::write(cx, group, self.order, true);
        let subnormals = match group.home {
            Home::Shared(_) => Subnormals::Kept,
            _ => Subnormals::Flushed,
        };
        let bytes = self.ty.bytes() as usize;
        let mut asked = true;
        for (at, &(slot, rows)) in self.operands.iter().enumerate() {
            let values = read_bits(cx, slot, rows);
            let swaps = self
                .swap
                .map(|(slot, rows)| read_bits(cx, slot, rows))
                .unwrap_or([0; LANES]);
            let mut old = [0; LANES];
            let Some(region) = cx.region(group.home) else {
                return false;
            };
            for lane in each(group.mask) {
                let offset = group.offsets[lane] + (at * bytes) as u64;
                let before = region.read(offset, bytes) as u64;
                old[lane] = before;
                let after = apply(
                    self.op,
                    self.ty,
                    subnormals,
                    before,
                    values[lane],
                    swaps[lane],
                );
                let after = after.unwrap_or(before);
                asked &= asks(self.op, before == after, values[lane] == 0);
                region.write(offset, bytes, u128::from(after));
            }
            if let Some((slot, rows)) = self.targets[at] {
                write_bits(cx, slot, rows, &old);
            }
        }
        asked
    }
}

/// Whether an atomic only asks what is in memory: it fails to take a lock, or reads by adding nothing. A bit that is set already, or a
/// maximum that stays, is work that is done.
fn asks(op: Op, unchanged: bool, with_zero: bool) -> bool {
    unchanged
        && match op {
            Op::Cas | Op::Exch => true,
            Op::Add | Op::Or | Op::Xor => with_zero,
            Op::Min | Op::Max | Op::Inc | Op::Dec | Op::And => false,
        }
}

/// Goes on behind an atomic. One that changes memory may end somebody's wait; one that only asks may be a wait itself. Either is
/// progress to a loop that also polls an mbarrier: it may end by what it asks.
fn done(cx: &mut Cx<'_>, asked: bool) -> Flow {
    cx.team.progress += 1;
    if !asked {
        cx.machine.changes += 1;
    } else if crate::access::order::spins(cx) {
        return Flow::Stop;
    }
    Flow::Next
}

/// Waits for the atomics before it on the same addresses. A warp that does not want the old value
/// goes on as soon as its atomic is on the way, which it can be for as long as one takes.
fn wait_for_turn(cx: &mut Cx<'_>, group: &Group, fetches: bool) {
    let Home::Global(allocation) = group.home else {
        return;
    };
    let (now, offset) = (cx.now(), cx.team.offset);
    let offsets = each(group.mask).map(|lane| group.offsets[lane]);
    let contention = &mut cx.machine.contention;
    let mut wait = contention.wait(allocation, offsets, now + offset);
    if !fetches {
        wait = wait.saturating_sub(u64::from(Cost::ATOMIC.latency));
    }
    if wait > 0 {
        cx.warp.advance(now + wait);
    }
}

/// An atomic also reads: what nobody wrote is as wrong here as in a load.
fn check_written(cx: &mut Cx<'_>, group: &Group) {
    if !cx.machine.options.checks.unwritten {
        return;
    }
    let Some(region) = cx.region(group.home) else {
        return;
    };
    let missing = each(group.mask).find_map(|lane| {
        region
            .first_unwritten(group.offsets[lane], group.size as usize)
            .map(|offset| (lane, offset))
    });
    if let Some((lane, offset)) = missing {
        let code = match group.home {
            Home::Shared(_) => rule::SHARED_UNWRITTEN,
            _ => rule::GLOBAL_UNWRITTEN,
        };
        cx.report(code, 1 << lane, |cx, mut told| {
            told.message = format!(
                "an atomic on {}, which nothing has written",
                crate::access::conflict::place(cx, group.home, offset)
            );
            told.help("give it a value first")
        });
    }
}

/// `atom.exch.b128` and `atom.cas.b128`.
fn wide(
    d: &mut Decoder<'_>,
    mods: &Mods<'_>,
    op: Op,
    target: Option<&Operand>,
    addr: Addr,
    b: &Operand,
    swap: Option<&Operand>,
) -> Decoded<()> {
    let ty = ScalarType::B128;
    let b = d.src(b, ty)?;
    let swap = swap.map(|operand| d.src(operand, ty)).transpose()?;
    let target = target.map(|operand| d.dst(operand, ty)).transpose()?;
    let window = addr.window.or(window_of(d, mods));
    let order = Order::of(mods, Order::Relaxed(Scope::Gpu));
    let instr = with(move |cx| {
        let addresses = addr.eval(cx);
        let all = cx.mask;
        let mut asked = true;
        groups(cx, window, &addresses, 16, Does::Writes, |cx, group| {
            cx.mask = group.mask;
            check_written(cx, group);
            wait_for_turn(cx, group, target.is_some());
            crate::access::order::read(cx, group, order);
            watch(cx, group, false, Does::Writes, order.atomic_kind(16));
            crate::access::order::write(cx, group, order, true);
            let values = cx.read::<u128>(b);
            let swaps = swap.map(|slot| cx.read::<u128>(slot));
            let mut old = [0u128; LANES];
            if let Some(region) = cx.region(group.home) {
                for lane in each(group.mask) {
                    old[lane] = region.read(group.offsets[lane], 16);
                    let after = match (op, &swaps) {
                        (Op::Cas, Some(swaps)) if old[lane] == values[lane] => swaps[lane],
                        (Op::Cas, _) => old[lane],
                        _ => values[lane],
                    };
                    asked &= asks(op, old[lane] == after, false);
                    region.write(group.offsets[lane], 16, after);
                }
            }
            if let Some(target) = target {
                cx.write(target, &old);
            }
            cx.mask = all;
        });
        done(cx, asked)
    });
    d.emit_reaching(instr, Cost::ATOMIC, reach_of(window, order));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_nothing_asks_where_a_waiting_thread_writes_it_so() {
        for op in [Op::Cas, Op::Exch] {
            assert!(asks(op, true, true) && asks(op, true, false), "{op:?}");
        }
        for op in [Op::Add, Op::Or, Op::Xor] {
            assert!(asks(op, true, true) && !asks(op, true, false), "{op:?}");
        }
        for op in [Op::Min, Op::Max, Op::Inc, Op::Dec, Op::And] {
            assert!(!asks(op, true, true), "{op:?}");
        }
        assert!(
            ![Op::Cas, Op::Exch, Op::Add]
                .map(|op| asks(op, false, true))
                .contains(&true)
        );
    }
}
