//! Stores.

use crate::access::context::Cx;
use crate::access::doubt;
use crate::access::group::{Does, Group, Home, groups};
use crate::access::late;
use crate::access::look::watch_unless;
use crate::access::order::Order;
use crate::code::{Flow, Slot};
use crate::decode::address::Addr;
use crate::decode::mods::{Mods, only, operands};
use crate::decode::qualifier::{
    KNOWN, cost_of, elements, lanes_of, plain_word, reach_of, read_bits, settle_window, window_of,
};
use crate::decode::trail::{Role, Strong};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, each};
use crate::race::touch::bytes_in;
use crate::state::late::Pass;
use crate::state::memory::region::Word;
use crate::state::memory::window::Window;
use heist_ptx::{Instruction, rule};

/// A store of any kind.
pub(super) struct Store {
    window: Option<Window>,
    addr: Addr,
    order: Order,
    element: u32,
    sources: Vec<(Slot, u32)>,
}

/// How a store that is decoded becomes an operation: [`super::word`] has a quick way for the commonest.
pub(super) type Finish = fn(Store, Option<(Slot, Window)>) -> Box<dyn Instr>;

pub(super) fn decode(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    finish: Finish,
) -> Decoded<()> {
    only(d, i, mods, KNOWN)?;
    let Some(ty) = mods.ty() else {
        return Err(d.wrong(rule::MISSING_MODIFIER, "st names no type"));
    };
    if i.operands.len() < 2 {
        operands(d, i, 2)?;
    }
    let count = lanes_of(mods);
    let mut addr = d.address(&i.operands[0])?;
    let window = settle_window(window_of(d, mods), &mut addr);
    let mut sources = Vec::with_capacity(count);
    for operand in elements(d, &i.operands[1], count)? {
        sources.push(d.src_any(&operand, ty)?);
    }
    let order = Order::of(mods, Order::Weak);
    d.trail.element = ty.bytes();
    d.trail.stored = sources.iter().map(|(slot, _)| slot.as_register()).collect();
    d.trail.strong = (order != Order::Weak).then_some(Strong {
        stores: true,
        window,
        addr,
    });
    if matches!(window, None | Some(Window::Global)) {
        d.trail.role = Role::Stores(addr);
    }
    let word = plain_word(window, order, ty.bytes(), &sources);
    let store = Store {
        window,
        addr,
        order,
        element: ty.bytes(),
        sources,
    };
    let cost = Cost {
        latency: 0,
        ..cost_of(window)
    };
    d.emit_reaching(finish(store, word), cost, reach_of(window, order));
    Ok(())
}

impl Instr for Store {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let addresses = self.addr.eval(cx);
        let size = self.element * self.sources.len() as u32;
        groups(
            cx,
            self.window,
            &addresses,
            size,
            Does::Writes,
            |cx, group| match group.home {
                Home::Local => {
                    note_undefined(cx, group);
                    for (at, &(slot, rows)) in self.sources.iter().enumerate() {
                        let plus = u64::from(self.element) * at as u64;
                        let offsets = group.offsets.map(|offset| offset.wrapping_add(plus));
                        let values = read_bits(cx, slot, rows);
                        cx.warp
                            .local
                            .store(&offsets, group.mask, self.element.min(8), &values);
                    }
                }
                Home::Const | Home::Param => {
                    let name = group.home.name();
                    cx.report(rule::READ_ONLY, group.mask, |_, mut told| {
                        told.message = format!(
                            "writes {name} memory, which is read-only while the kernel runs"
                        );
                        told
                    });
                }
                Home::Global(_) | Home::Shared(_) => self.to_region(cx, group),
            },
        );
        cx.team.progress += 1;
        cx.machine.changes += 1;
        Flow::Next
    }
}

/// Notes where a value goes that is not defined, if this is one.
fn note_undefined(cx: &mut Cx<'_>, group: &Group) {
    let doubts = cx.warp.doubts.as_mut();
    if let Some(stores) = doubts.and_then(|doubts| doubts.stores.as_mut()) {
        let memory = doubt::memory(group.home);
        stores.extend(memory.map(|memory| (memory, group.mask, group.offsets)));
    }
}

impl Store {
    pub(super) fn addr(&self) -> &Addr {
        &self.addr
    }

    #[inline]
    fn to_region(&self, cx: &mut Cx<'_>, group: &Group) {
        note_undefined(cx, group);
        if cx.machine.late.pass != Pass::Finds {
            late::stored(cx, group);
        }
        cx.team.control.sent |= matches!(group.home, Home::Shared(rank) if rank != cx.warp.rank);
        let contiguous = group.touch().is_contiguous();
        if !contiguous {
            self.check_overlap(cx, group);
        }
        watch_unless(
            cx,
            group,
            contiguous,
            Does::Writes,
            self.order.kind(self.element as u8),
            |cx, line| self.changes(cx, group, line),
        );
        if self.order != Order::Weak {
            crate::access::order::write(cx, group, self.order, false);
        }
        if let [(slot, 1)] = self.sources[..]
            && contiguous
            && self.element == 4
        {
            let values = *cx.row(slot);
            if let Some(region) = cx.region(group.home) {
                region.put_run::<u32>(group.offsets[0], &values);
            }
            return;
        }
        for (at, &(slot, rows)) in self.sources.iter().enumerate() {
            let plus = u64::from(self.element) * at as u64;
            if self.element == 16 {
                let values = cx.read::<u128>(slot);
                self.scatter(cx, group, plus, &values);
                continue;
            }
            let values = read_bits(cx, slot, rows);
            match self.element {
                1 => self.scatter(cx, group, plus, &values.map(|value| value as u8)),
                2 => self.scatter(cx, group, plus, &values.map(|value| value as u16)),
                4 => self.scatter(cx, group, plus, &values.map(|value| value as u32)),
                _ => self.scatter(cx, group, plus, &values),
            }
        }
    }

    fn scatter<T: Word>(&self, cx: &mut Cx<'_>, group: &Group, plus: u64, values: &[T; LANES]) {
        if let Some(region) = cx.region(group.home) {
            region.scatter(&group.offsets, group.mask, plus, values);
        }
    }

    /// The bytes of a line where memory does not hold the stored value already: warps that each
    /// write the same value are a race without visible effect.
    #[cold]
    pub(super) fn changes(&self, cx: &mut Cx<'_>, group: &Group, line: u64) -> u128 {
        let size = self.element as usize;
        let mask = match self.element {
            16 => u128::MAX,
            bytes => (1 << (8 * bytes)) - 1,
        };
        let mut changed = 0;
        for (at, &(slot, rows)) in self.sources.iter().enumerate() {
            let values: [u128; LANES] = match rows {
                4 => cx.read(slot),
                rows => read_bits(cx, slot, rows).map(u128::from),
            };
            let plus = u64::from(self.element) * at as u64;
            let Some(region) = cx.region(group.home) else {
                return u128::MAX;
            };
            for lane in each(group.mask) {
                let offset = group.offsets[lane] + plus;
                let here = bytes_in(line, offset, self.element);
                if here != 0 && region.read(offset, size) != values[lane] & mask {
                    changed |= here;
                }
            }
        }
        changed
    }

    /// Lanes of one store that write different values to one place.
    fn check_overlap(&self, cx: &mut Cx<'_>, group: &Group) {
        if self.order != Order::Weak || !cx.machine.options.checks.races {
            return;
        }
        let mut seen: [(u64, usize); LANES] = [(u64::MAX, 0); LANES];
        let mut count = 0;
        for lane in each(group.mask) {
            let offset = group.offsets[lane];
            match seen[..count].iter().find(|(at, _)| *at == offset) {
                None => {
                    seen[count] = (offset, lane);
                    count += 1;
                }
                Some(&(_, other)) => {
                    let differ = self.sources.iter().any(|&(slot, rows)| {
                        let values = read_bits(cx, slot, rows);
                        let mask = if self.element >= 8 {
                            u64::MAX
                        } else {
                            (1 << (self.element * 8)) - 1
                        };
                        (values[lane] ^ values[other]) & mask != 0
                    });
                    if differ || cx.machine.options.checks.same_value {
                        let what = if differ {
                            "different values"
                        } else {
                            "the same value"
                        };
                        cx.report(rule::WARP_RACE, 1 << lane, |cx, mut told| {
                            told.message = format!(
                                "{} and {} write {what} to {} with one instruction",
                                cx.who(other),
                                cx.who(lane),
                                crate::access::conflict::place(cx, group.home, offset)
                            );
                            told.help("which of them stays is not defined: let one lane write, or use an atomic")
                        });
                        return;
                    }
                }
            }
        }
    }
}
