//! What the modifiers and operands of a load, store or atomic say: its order, its
//! scope, its state space, and the registers that it moves.

use super::address::{Addr, Base};
use super::mods::Mods;
use super::{Cost, Decoded, Decoder};
use crate::access::context::Cx;
use crate::access::order::Order;
use crate::code::{Reach, Slot};
use crate::lanes::LANES;
use crate::race::access::Scope;
use crate::state::memory::window::Window;
use heist_ptx::{Operand, rule};

impl Order {
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
            "shared" | "shared::cta" => Window::OwnShared,
            "shared::cluster" => Window::Shared,
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
        (_, Some(Window::Shared | Window::OwnShared)) => Reach::Cluster,
        (_, Some(Window::Local | Window::Param | Window::Const)) => Reach::Own,
        _ => Reach::Device,
    }
}

/// The modifiers that a load or store may have.
pub(crate) const KNOWN: &[&str] = &[
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

/// How many elements a thread moves.
pub(crate) fn lanes_of(mods: &Mods<'_>) -> usize {
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
pub(crate) fn elements(
    d: &mut Decoder<'_>,
    operand: &Operand,
    count: usize,
) -> Decoded<Vec<Operand>> {
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

/// What an access to a window costs.
pub(crate) fn cost_of(window: Option<Window>) -> Cost {
    match window {
        Some(Window::Shared | Window::OwnShared) => Cost::SHARED,
        Some(Window::Param | Window::Const) => Cost::CONSTANT,
        Some(Window::Local) => Cost::new(2, 30),
        Some(Window::Global) | None => Cost::GLOBAL,
    }
}

/// The window to use for an address operand: a frame's variables are in local memory.
pub(crate) fn settle_window(window: Option<Window>, addr: &mut Addr) -> Option<Window> {
    if let Base::Frame(_) = addr.base {
        return Some(Window::Local);
    }
    match (window, addr.window) {
        // A generic access that names a variable: its address as a generic one.
        (None, Some(named)) => Some(named),
        (window, _) => window,
    }
}

/// The register and the memory, where it is a plain access to one word.
pub(crate) fn plain_word(
    window: Option<Window>,
    order: Order,
    element: u32,
    registers: &[(Slot, u32)],
) -> Option<(Slot, Window)> {
    match (registers, window) {
        (&[(slot, 1)], Some(window @ (Window::Global | Window::Shared | Window::OwnShared)))
            if element == 4 && order == Order::Weak =>
        {
            Some((slot, window))
        }
        _ => None,
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
