//! Loads.

use crate::access::context::Cx;
use crate::access::doubt;
use crate::access::group::{Does, Group, Home, groups};
use crate::access::late;
use crate::access::look::watch;
use crate::access::order::Order;
use crate::code::{Flow, Slot};
use crate::decode::address::{Addr, Base};
use crate::decode::mods::{Mods, only, operands};
use crate::decode::qualifier::{
    KNOWN, cost_of, elements, lanes_of, plain_word, reach_of, settle_window, window_of, write_bits,
};
use crate::decode::trail::Strong;
use crate::decode::{Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{ALL, LANES, wide};
use crate::state::late::Pass;
use crate::state::memory::region::Word;
use crate::state::memory::window::Window;
use heist_ptx::{Instruction, ScalarType, rule};

/// A load of any kind.
pub(super) struct Load {
    window: Option<Window>,
    addr: Addr,
    order: Order,
    element: u32,
    signed: bool,
    /// Through the non-coherent path, which does not see the kernel's writes.
    non_coherent: bool,
    /// Registers with their rows.
    targets: Vec<(Slot, u32)>,
}

/// How a load that is decoded becomes an operation: [`super::word`] has a quick way for the commonest.
pub(super) type Finish = fn(Load, Option<(Slot, Window)>) -> Box<dyn Instr>;

pub(super) fn decode(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    finish: Finish,
) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let Some(ty) = mods.ty() else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "ld names no type"));
    };
    if i.operands.len() < 2 {
        operands(d, i, 2)?;
    }
    let count = lanes_of(mods);
    let mut addr = d.address(&i.operands[1])?;
    let window = settle_window(window_of(d, mods), &mut addr);
    let mut targets = Vec::with_capacity(count);
    for operand in elements(d, &i.operands[0], count)? {
        let (slot, rows) = d.dst_any(&operand, ty)?;
        if rows * 32 < ty.bits().min(128) {
            return Err(d.wrong(
                rule::OPERAND_TYPE,
                format!("the destination is narrower than `.{ty}`"),
            ));
        }
        targets.push((slot, rows));
    }
    let order = Order::of(mods, Order::Weak);
    d.trail.element = ty.bytes();
    d.trail.strong = (order != Order::Weak).then_some(Strong {
        stores: false,
        window,
        addr,
    });
    let word = plain_word(window, order, ty.bytes(), &targets).filter(|_| !mods.has("nc"));
    let load = Load {
        window,
        addr,
        order,
        element: ty.bytes(),
        signed: matches!(ty, ScalarType::S8 | ScalarType::S16 | ScalarType::S32),
        non_coherent: mods.has("nc"),
        targets,
    };
    let instr = match SameForAll::of(load, d) {
        Ok(same) => Box::new(same) as Box<dyn Instr>,
        Err(load) => finish(load, word),
    };
    d.emit_reaching(instr, cost_of(window), reach_of(window, order));
    Ok(())
}

/// A load of a parameter or constant at an address that the code names: one value for
/// all lanes.
struct SameForAll {
    address: u64,
    constant: bool,
    target: (Slot, u32),
    long: Load,
}

impl SameForAll {
    /// A load as such a one, or as it was.
    fn of(load: Load, d: &Decoder<'_>) -> Result<SameForAll, Load> {
        let constant = match load.window {
            Some(Window::Param) => false,
            Some(Window::Const) => true,
            _ => return Err(load),
        };
        let base = match load.addr.base {
            Base::Long(slot) => d.long_at(slot),
            _ => None,
        };
        match (base, &load.targets[..]) {
            (Some(base), &[target]) if load.element <= 8 => Ok(SameForAll {
                address: base.wrapping_add(load.addr.offset as u64),
                constant,
                target,
                long: load,
            }),
            _ => Err(load),
        }
    }

    /// The value; none where there is something to tell.
    #[inline(always)]
    fn value(&self, cx: &Cx<'_>) -> Option<u64> {
        let (region, len) = if self.constant {
            (&cx.machine.constants, cx.machine.constant_len)
        } else {
            (&cx.machine.params, cx.machine.param_len)
        };
        let (address, size) = (self.address, u64::from(self.long.element));
        if address & (size - 1) != 0 || len < size || address > len - size {
            return None;
        }
        let bytes = region.bytes(address, size as usize);
        Some(match (size, self.long.signed) {
            (4, false) => u64::from(u32::take(bytes)),
            (8, _) => u64::take(bytes),
            (4, true) => i64::from(u32::take(bytes) as i32) as u64,
            (2, false) => u64::from(u16::take(bytes)),
            (2, true) => i64::from(u16::take(bytes) as i16) as u64,
            (_, false) => u64::from(u8::take(bytes)),
            (_, true) => i64::from(u8::take(bytes) as i8) as u64,
        })
    }

    /// Delivers a value to some lanes, or to a wide register.
    #[inline(never)]
    fn deliver(&self, cx: &mut Cx<'_>, value: u64) {
        let (slot, rows) = self.target;
        write_bits(cx, slot, rows, &[value; LANES]);
    }
}

impl Instr for SameForAll {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let Some(value) = self.value(cx) else {
            return self.long.step(cx);
        };
        match self.target {
            (slot, 1) if cx.mask == ALL => cx.write(slot, &[value as u32; LANES]),
            (slot, 2) if cx.mask == ALL => wide(
                #[inline(always)]
                || cx.write(slot, &[value; LANES]),
            ),
            _ => self.deliver(cx, value),
        }
        Flow::Next
    }
}

impl Instr for Load {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let addresses = self.addr.eval(cx);
        let size = self.element * self.targets.len() as u32;
        let all = cx.mask;
        let (mut good, mut spun) = (0, false);
        groups(
            cx,
            self.window,
            &addresses,
            size,
            Does::Reads,
            |cx, group| {
                good |= group.mask;
                cx.mask = group.mask;
                if group.home == Home::Local {
                    self.read_local(cx, group);
                } else {
                    // The acquire comes before the read itself.
                    if self.order != Order::Weak {
                        crate::access::order::read(cx, group, self.order);
                        crate::access::order::note_missed(cx, group);
                        spun |= crate::access::order::spins(cx);
                    }
                    self.read_region(cx, group);
                    if cx.machine.late.pass != Pass::Finds {
                        late::loaded(cx, group);
                    }
                }
                cx.mask = all;
            },
        );
        if good != all {
            // Lanes with a bad address read zero.
            cx.mask = all & !good;
            for &(slot, rows) in &self.targets {
                write_bits(cx, slot, rows, &[0; LANES]);
            }
            cx.mask = all;
        }
        if spun {
            return Flow::Stop;
        }
        Flow::Next
    }
}

impl Load {
    pub(super) fn addr(&self) -> &Addr {
        &self.addr
    }

    #[inline]
    fn read_region(&self, cx: &mut Cx<'_>, group: &Group) {
        let contiguous = group.touch().is_contiguous();
        let kind = self.order.kind(self.element as u8);
        watch(cx, group, contiguous, Does::Reads, kind);
        if self.non_coherent {
            check_read_only(cx, group, contiguous);
        }
        if let [(slot, rows)] = self.targets[..]
            && contiguous
        {
            // The two shapes that matter most.
            if self.element == 4 && rows == 1 {
                let Some(region) = cx.region(group.home) else {
                    return;
                };
                let values = region.run_of::<u32>(group.offsets[0]);
                cx.write(slot, &values);
                return;
            }
            if self.element == 8 && rows == 2 {
                let Some(region) = cx.region(group.home) else {
                    return;
                };
                let values = region.run_of::<u64>(group.offsets[0]);
                cx.write(slot, &values);
                return;
            }
        }
        if let [(slot, 1)] = self.targets[..]
            && self.element == 4
            && let Some(line) = group.touch().only_line()
        {
            let Some(region) = cx.region(group.home) else {
                return;
            };
            let words = region.run_of::<u32>(line * 128);
            let values =
                crate::lanes::map1(group.offsets, |offset| words[offset as usize / 4 % 32]);
            cx.write(slot, &values);
            return;
        }
        for (at, &(slot, rows)) in self.targets.iter().enumerate() {
            let plus = u64::from(self.element) * at as u64;
            let Some(region) = cx.region(group.home) else {
                return;
            };
            match self.element {
                1 => {
                    let values = region.gather::<u8>(&group.offsets, group.mask, plus);
                    self.deliver(cx, slot, rows, values.map(u64::from), 8);
                }
                2 => {
                    let values = region.gather::<u16>(&group.offsets, group.mask, plus);
                    self.deliver(cx, slot, rows, values.map(u64::from), 16);
                }
                4 => {
                    let values = region.gather::<u32>(&group.offsets, group.mask, plus);
                    if rows == 1 {
                        cx.write(slot, &values);
                    } else {
                        self.deliver(cx, slot, rows, values.map(u64::from), 32);
                    }
                }
                8 => {
                    let values = region.gather::<u64>(&group.offsets, group.mask, plus);
                    cx.write(slot, &values);
                }
                _ => {
                    let values = region.gather::<u128>(&group.offsets, group.mask, plus);
                    cx.write(slot, &values);
                }
            }
        }
    }

    fn read_local(&self, cx: &mut Cx<'_>, group: &Group) {
        for (at, &(slot, rows)) in self.targets.iter().enumerate() {
            let plus = u64::from(self.element) * at as u64;
            let offsets = group.offsets.map(|offset| offset.wrapping_add(plus));
            let (values, unwritten) = cx
                .warp
                .local
                .load(&offsets, group.mask, self.element.min(8));
            if unwritten != 0 && cx.machine.options.checks.unwritten && !doubt::loaded(cx, group) {
                let offset = offsets[crate::lanes::first(unwritten)];
                cx.report(rule::LOCAL_UNWRITTEN, unwritten, |_, mut told| {
                    told.message = format!(
                        "reads {offset:#x} of local memory, which this thread has not written"
                    );
                    told
                });
            }
            self.deliver(cx, slot, rows, values, self.element * 8);
        }
    }

    /// Writes loaded bits into a register that may be wider.
    fn deliver(&self, cx: &mut Cx<'_>, slot: Slot, rows: u32, values: [u64; LANES], bits: u32) {
        let values = if self.signed && bits < 64 {
            let shift = 64 - bits;
            values.map(|value| ((value << shift) as i64 >> shift) as u64)
        } else {
            values
        };
        write_bits(cx, slot, rows, &values);
    }
}

/// Reports a load through the non-coherent path of what the kernel has written.
pub(crate) fn check_read_only(cx: &mut Cx<'_>, group: &Group, contiguous: bool) {
    if !cx.machine.options.checks.races {
        return;
    }
    let mut writer = None;
    let Some(region) = cx.region(group.home) else {
        return;
    };
    group.touch().lines(contiguous, |touch| {
        if writer.is_none() {
            region.history.each(touch.line, touch.bytes, |seen| {
                if seen.write {
                    writer = Some(seen);
                }
            });
        }
    });
    if let Some(seen) = writer {
        let them = cx.whom(seen.agent, seen.lane);
        cx.report(rule::NON_COHERENT_WRITTEN, group.mask, |cx, mut told| {
            told.message = format!("reads through the non-coherent path what {them} wrote in the same kernel: it may see the old value");
            told.other(cx.code.span(seen.pc), format!("{them} wrote it here"))
                .help("use an ordinary load: `.nc` (`__ldg`, `const __restrict__`) is for memory that the whole kernel only reads")
        });
    }
}
