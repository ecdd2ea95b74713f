//! Loads and stores.

use super::access::{Does, Group, Home, groups, watch, watch_unless};
use super::{Mods, only, operands, pattern};
use crate::code::{Flow, Instr, Reach, Slot};
use crate::context::Cx;
use crate::decode::operand::{Addr, Base};
use crate::decode::{Cost, Decoded, Decoder};
use crate::lanes::{ALL, LANES, each};
use crate::memory::region::Word;
use crate::memory::window::Window;
use crate::race::shadow::{Kind, Scope};
use crate::watch::Role;
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// What an access says about order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Weak,
    /// Volatile, relaxed, mmio.
    Relaxed(Scope),
    Acquire(Scope),
    Release(Scope),
    Both(Scope),
}

impl Order {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Order::Weak => Kind::Plain,
            Order::Relaxed(s) | Order::Acquire(s) | Order::Release(s) | Order::Both(s) => {
                Kind::Strong(s)
            }
        }
    }

    /// The kind of an atomic on elements of this size.
    pub(crate) fn atomic_kind(self, bytes: u8) -> Kind {
        match self.kind().scope() {
            Some(scope) => Kind::Atomic(scope, bytes),
            None => self.kind(),
        }
    }

    /// The order that the modifiers ask for; `weak` is what no modifier means.
    pub(crate) fn of(mods: &Mods<'_>, weak: Order) -> Order {
        let scope = scope_of(mods).unwrap_or(Scope::Gpu);
        if mods.has("volatile") {
            return Order::Relaxed(Scope::System);
        }
        if mods.has("acquire") {
            Order::Acquire(scope)
        } else if mods.has("release") {
            Order::Release(scope)
        } else if mods.has("acq_rel") {
            Order::Both(scope)
        } else if mods.has("relaxed") || mods.has("mmio") {
            Order::Relaxed(scope)
        } else {
            match weak {
                Order::Relaxed(_) => Order::Relaxed(scope),
                other => other,
            }
        }
    }
}

/// The scope that the modifiers name.
pub(crate) fn scope_of(mods: &Mods<'_>) -> Option<Scope> {
    mods.all.iter().find_map(|&text| {
        Some(match text {
            "cta" => Scope::Block,
            "cluster" => Scope::Cluster,
            "gpu" => Scope::Gpu,
            "sys" => Scope::System,
            _ => return None,
        })
    })
}

/// The state space that the modifiers name; none for generic addresses.
pub(crate) fn window_of(d: &Decoder<'_>, mods: &Mods<'_>) -> Option<Window> {
    // The parameters of device functions live in their frames.
    let param = if d.function == 0 {
        Window::Param
    } else {
        Window::Local
    };
    mods.all.iter().find_map(|&text| {
        Some(match text {
            "global" => Window::Global,
            "shared" | "shared::cta" | "shared::cluster" => Window::Shared,
            "local" => Window::Local,
            "const" => Window::Const,
            "param::entry" => Window::Param,
            "param" | "param::func" => param,
            _ => return None,
        })
    })
}

/// Whose memory order an access to a window takes part in.
pub(crate) fn reach_of(window: Option<Window>, order: Order) -> Reach {
    match (order, window) {
        (Order::Weak, _) => Reach::Own,
        (_, Some(Window::Shared)) => Reach::Cluster,
        (_, Some(Window::Local | Window::Param | Window::Const)) => Reach::Own,
        _ => Reach::Device,
    }
}

const KNOWN: &[&str] = &[
    "global",
    "shared",
    "shared::cta",
    "shared::cluster",
    "local",
    "const",
    "param",
    "param::entry",
    "param::func",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "weak",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "v2",
    "v4",
    "v8",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::cache_hint",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::evict_first",
    "L2::evict_last",
    "L2::evict_normal",
    "unified",
];

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "ld" | "ldu" => load(d, i, mods),
        "st" if mods.has("async") => super::bulk::decode_remote(d, i, mods),
        "st" => store(d, i, mods),
        // Hints: nothing that a program can see.
        _ => {
            d.emit(super::map::with(|_| Flow::Next), Cost::ALU);
            Ok(())
        }
    }
}

fn lanes_of(mods: &Mods<'_>) -> usize {
    if mods.has("v8") {
        8
    } else if mods.has("v4") {
        4
    } else if mods.has("v2") {
        2
    } else {
        1
    }
}

/// Takes `{a, b}` apart, or a vector register, or a single operand.
fn elements(d: &mut Decoder<'_>, operand: &Operand, count: usize) -> Decoded<Vec<Operand>> {
    let list = match operand {
        Operand::Vector(list) => list.clone(),
        Operand::Name(name) if count > 1 => {
            let register = d.register(name)?;
            if register.lanes as usize != count {
                return Err(d.wrong(
                    rule::VECTOR_LENGTH,
                    format!("`{name}` has {} parts", register.lanes),
                ));
            }
            use heist_ptx::Part;
            [Part::X, Part::Y, Part::Z, Part::W]
                .into_iter()
                .take(count)
                .map(|part| Operand::Part {
                    name: name.clone(),
                    part,
                })
                .collect()
        }
        one => vec![one.clone()],
    };
    if list.len() == count {
        Ok(list)
    } else {
        Err(d.wrong(
            rule::VECTOR_LENGTH,
            format!(
                "{count} registers are wanted here, and there are {}",
                list.len()
            ),
        ))
    }
}

fn cost_of(window: Option<Window>) -> Cost {
    match window {
        Some(Window::Shared) => Cost::SHARED,
        Some(Window::Param | Window::Const) => Cost::CONSTANT,
        Some(Window::Local) => Cost::new(2, 30),
        Some(Window::Global) | None => Cost::GLOBAL,
    }
}

/// The window to use for an address operand: a frame's variables are in local memory.
fn settle_window(window: Option<Window>, addr: &mut Addr) -> Option<Window> {
    if let Base::Frame(_) = addr.base {
        return Some(Window::Local);
    }
    match (window, addr.window) {
        // A generic access that names a variable: its address as a generic one.
        (None, Some(named)) => Some(named),
        (window, _) => window,
    }
}

struct Load {
    window: Option<Window>,
    addr: Addr,
    order: Order,
    element: u32,
    signed: bool,
    /// Through the path that does not see what the kernel writes.
    non_coherent: bool,
    /// Registers with their rows.
    targets: Vec<(Slot, u32)>,
    /// The register and the memory of the commonest kind: [`pattern`]'s.
    word: Option<(Slot, Window)>,
}

/// The register and the memory, where it is a plain access to one word.
fn plain_word(
    window: Option<Window>,
    order: Order,
    element: u32,
    registers: &[(Slot, u32)],
) -> Option<(Slot, Window)> {
    match (registers, window) {
        (&[(slot, 1)], Some(window @ (Window::Global | Window::Shared)))
            if element == 4 && order == Order::Weak =>
        {
            Some((slot, window))
        }
        _ => None,
    }
}

fn load(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
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
    let word = plain_word(window, order, ty.bytes(), &targets).filter(|_| !mods.has("nc"));
    let load = Load {
        word,
        window,
        addr,
        order,
        element: ty.bytes(),
        signed: matches!(ty, ScalarType::S8 | ScalarType::S16 | ScalarType::S32),
        non_coherent: mods.has("nc"),
        targets,
    };
    d.emit_reaching(Box::new(load), cost_of(window), reach_of(window, order));
    Ok(())
}

impl Instr for Load {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let usual = self.word.filter(|_| cx.mask == ALL);
        if let Some((slot, window)) = usual {
            if pattern::load(cx, window, &self.addr, slot) {
                return Flow::Next;
            }
        } else if self.same_for_all(cx) {
            return Flow::Next;
        }
        let addresses = self.addr.eval(cx);
        if usual.is_some() {
            cx.machine.patterns.learn(cx.fragment.pc, &addresses);
        }
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
                    self.read_region(cx, group);
                    if self.order != Order::Weak {
                        super::order::read(cx, group, self.order);
                        spun |= super::order::spins(cx);
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
    /// A parameter or constant at an address that the code names: one value for
    /// all lanes. False if it is anything else, and nothing has happened.
    #[inline]
    fn same_for_all(&self, cx: &mut Cx<'_>) -> bool {
        let (region, len) = match self.window {
            Some(Window::Param) => (&cx.machine.params, cx.machine.param_len),
            Some(Window::Const) => (&cx.machine.constants, cx.machine.constant_len),
            _ => return false,
        };
        let base = match self.addr.base {
            Base::Long(slot) if slot.is_constant() => cx.view::<u64>(slot)[0],
            Base::Word(slot) if slot.is_constant() => u64::from(cx.row(slot)[0]),
            _ => return false,
        };
        let [(slot, rows)] = self.targets[..] else {
            return false;
        };
        let (address, size) = (
            base.wrapping_add(self.addr.offset as u64),
            u64::from(self.element),
        );
        if size > 8
            || !address.is_multiple_of(size)
            || address > len.saturating_sub(size)
            || len < size
        {
            return false;
        }
        let value = region.read(address, size as usize) as u64;
        let shift = 64 - 8 * size;
        let value = if self.signed {
            ((value << shift) as i64 >> shift) as u64
        } else {
            value
        };
        crate::lanes::wide(
            #[inline(always)]
            || match rows {
                1 => cx.write(slot, &[value as u32; LANES]),
                2 => cx.write(slot, &[value; LANES]),
                _ => cx.write(slot, &[u128::from(value); LANES]),
            },
        );
        true
    }

    #[inline]
    fn read_region(&self, cx: &mut Cx<'_>, group: &Group) {
        let contiguous = group.touch().is_contiguous();
        watch(cx, group, contiguous, Does::Reads, self.order.kind());
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
            if unwritten != 0 && cx.machine.options.checks.unwritten {
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
fn check_read_only(cx: &mut Cx<'_>, group: &Group, contiguous: bool) {
    if !cx.machine.options.checks.races {
        return;
    }
    let mut writer = None;
    let Some(region) = cx.region(group.home) else {
        return;
    };
    group.touch().lines(contiguous, |touch| {
        if writer.is_none()
            && let Some(line) = region.shadow(touch.line)
        {
            line.each(touch.bytes, |seen| {
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

/// Writes the low bits of each value into a register of one, two or four rows.
pub(crate) fn write_bits(cx: &mut Cx<'_>, slot: Slot, rows: u32, values: &[u64; LANES]) {
    match rows {
        1 => cx.write(slot, &values.map(|value| value as u32)),
        2 => cx.write(slot, values),
        _ => cx.write(slot, &values.map(u128::from)),
    }
}

/// Reads a register of one or two rows; the low half of four.
pub(crate) fn read_bits(cx: &Cx<'_>, slot: Slot, rows: u32) -> [u64; LANES] {
    match rows {
        1 => cx.row(slot).map(u64::from),
        2 => cx.read(slot),
        _ => cx.read::<u128>(slot).map(|value| value as u64),
    }
}

struct Store {
    window: Option<Window>,
    addr: Addr,
    order: Order,
    element: u32,
    sources: Vec<(Slot, u32)>,
    /// See [`Load::word`].
    word: Option<(Slot, Window)>,
}

fn store(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
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
    if matches!(window, None | Some(Window::Global)) {
        d.trail.role = Role::Stores(addr);
    }
    let store = Store {
        word: plain_word(window, order, ty.bytes(), &sources),
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
    d.emit_reaching(Box::new(store), cost, reach_of(window, order));
    Ok(())
}

impl Instr for Store {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let usual = self.word.filter(|_| cx.mask == ALL);
        if let Some((slot, window)) = usual
            && pattern::store(cx, window, &self.addr, slot, |cx, group| {
                self.changes_nothing(cx, group)
            })
        {
            cx.machine.changes += 1;
            cx.team.progress += 1;
            return Flow::Next;
        }
        let addresses = self.addr.eval(cx);
        if usual.is_some() {
            cx.machine.patterns.learn(cx.fragment.pc, &addresses);
        }
        let size = self.element * self.sources.len() as u32;
        groups(
            cx,
            self.window,
            &addresses,
            size,
            Does::Writes,
            |cx, group| match group.home {
                Home::Local => {
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

impl Store {
    #[inline]
    fn to_region(&self, cx: &mut Cx<'_>, group: &Group) {
        let contiguous = group.touch().is_contiguous();
        if !contiguous {
            self.check_overlap(cx, group);
        }
        watch_unless(
            cx,
            group,
            contiguous,
            Does::Writes,
            self.order.kind(),
            |cx| self.changes_nothing(cx, group),
        );
        if self.order != Order::Weak {
            super::order::write(cx, group, self.order);
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

    /// Whether memory holds already what is stored: warps that each write the same
    /// result are a race that no program can see.
    #[cold]
    fn changes_nothing(&self, cx: &mut Cx<'_>, group: &Group) -> bool {
        let size = self.element as usize;
        let mask = match self.element {
            16 => u128::MAX,
            bytes => (1 << (8 * bytes)) - 1,
        };
        self.sources.iter().enumerate().all(|(at, &(slot, rows))| {
            let values: [u128; LANES] = match rows {
                4 => cx.read(slot),
                rows => read_bits(cx, slot, rows).map(u128::from),
            };
            let plus = u64::from(self.element) * at as u64;
            let Some(region) = cx.region(group.home) else {
                return false;
            };
            each(group.mask)
                .all(|lane| region.read(group.offsets[lane] + plus, size) == values[lane] & mask)
        })
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
                    if differ {
                        cx.report(rule::WARP_RACE, 1 << lane, |cx, mut told| {
                            told.message = format!(
                                "{} and {} write different values to {} with one instruction",
                                cx.who(other),
                                cx.who(lane),
                                super::conflict::place(cx, group.home, offset)
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
