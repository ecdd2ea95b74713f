//! What the matrix instructions share: the warp together, shapes and types, registers, memory.

use crate::access::context::Cx;
use crate::access::group::{Does, Group, Home, groups};
use crate::access::look::watch_unless;
use crate::code::{Flow, Slot, Wait};
use crate::decode::mods::Mods;
use crate::decode::{Decoded, Decoder, qualifier};
use crate::lanes::{ALL, LANES, Mask};
use crate::race::access::AccessKind;
use crate::state::memory::window::Window;
use heist_arith::tensor::mma::Shape;
use heist_arith::tensor::{Accumulator, Element};
use heist_ptx::{Instruction, Operand, ScalarType, rule};

/// Waits until the whole warp is here. An error is what to do instead.
pub(crate) fn assemble(cx: &mut Cx<'_>) -> Result<(), Flow> {
    if cx.mask == ALL {
        return Ok(());
    }
    let live = cx.warp.live;
    if cx.mask != live && !cx.fragment.forced {
        return Err(cx.retry(Wait::Gather { members: live }));
    }
    cx.fragment.forced = false;
    let (here, missing) = (cx.mask, !cx.mask);
    cx.report(rule::TENSOR_DIVERGENT, here, |_, mut told| {
        told.message = if missing & live != 0 {
            format!(
                "only lanes {here:#010x} of the warp run this, and its elements are spread over all 32"
            )
        } else {
            format!("lanes {missing:#010x} of the warp have exited or never were, and hold elements of its matrices")
        };
        told.help("all 32 lanes run a tensor-core instruction together: branch only on what is the same in the whole warp, and keep lanes with nothing to do alive")
    });
    Ok(())
}

/// The shape among the modifiers: `m16n8k16`, or `m8n8` with a depth of zero.
pub(crate) fn shape(mods: &Mods<'_>) -> Option<Shape> {
    mods.all.iter().find_map(|text| {
        let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k').unwrap_or((rest, "0"));
        Some(Shape::new(
            m.parse().ok()?,
            n.parse().ok()?,
            k.parse().ok()?,
        ))
    })
}

/// The type of the elements of a factor.
pub(crate) fn element(text: &str) -> Option<Element> {
    Some(match text {
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "tf32" => Element::Tf32,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "s8" => Element::S8,
        "u8" => Element::U8,
        "s4" => Element::S4,
        "u4" => Element::U4,
        "b1" => Element::B1,
        "f64" => Element::F64,
        _ => return None,
    })
}

/// The type of the elements of an accumulator.
pub(crate) fn accumulator(text: &str) -> Option<Accumulator> {
    Some(match text {
        "f16" => Accumulator::F16,
        "f32" => Accumulator::F32,
        "s32" => Accumulator::S32,
        "f64" => Accumulator::F64,
        _ => return None,
    })
}

/// The modifiers that name types of elements, in order.
pub(crate) fn types<'i>(mods: &Mods<'i>) -> Vec<&'i str> {
    mods.all
        .iter()
        .copied()
        .filter(|text| element(text).is_some() || accumulator(text).is_some())
        .collect()
}

/// What an operand lists in braces; a single operand is a list of one.
pub(crate) fn list<'i>(
    d: &Decoder<'_>,
    operand: &'i Operand,
    count: usize,
) -> Decoded<&'i [Operand]> {
    let list = match operand {
        Operand::Vector(list) => list,
        one => std::slice::from_ref(one),
    };
    if list.len() == count {
        return Ok(list);
    }
    Err(d.wrong(
        rule::VECTOR_LENGTH,
        format!(
            "this matrix takes {count} registers a thread, and here are {}",
            list.len()
        ),
    ))
}

/// Registers that a matrix is read from.
pub(crate) fn sources(
    d: &mut Decoder<'_>,
    operand: &Operand,
    count: usize,
    ty: ScalarType,
) -> Decoded<Vec<Slot>> {
    let list = list(d, operand, count)?;
    list.iter().map(|operand| d.src(operand, ty)).collect()
}

/// Registers that a matrix is written to.
pub(crate) fn targets(
    d: &mut Decoder<'_>,
    operand: &Operand,
    count: usize,
    ty: ScalarType,
) -> Decoded<Vec<Slot>> {
    let list = list(d, operand, count)?;
    list.iter().map(|operand| d.dst(operand, ty)).collect()
}

/// The state space of a matrix in memory; none for generic addresses.
pub(crate) fn window_of(
    d: &Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
) -> Decoded<Option<Window>> {
    let window = qualifier::window_of(d, mods);
    match window {
        None | Some(Window::Shared | Window::OwnShared | Window::Global) => Ok(window),
        Some(_) => Err(d.wrong(
            rule::TENSOR_LOCAL,
            format!("`{}` works on shared or global memory alone", i.opcode),
        )),
    }
}

/// An access of some lanes to a matrix in memory, `size` bytes each.
pub(crate) struct Access {
    pub(crate) window: Option<Window>,
    pub(crate) size: u32,
    pub(crate) does: Does,
    /// `ldmatrix` and `stmatrix` work on shared memory alone.
    pub(crate) shared_only: bool,
}

impl Access {
    /// Calls `act` for the lanes of `lanes` with good addresses, memory by memory,
    /// after the checks.
    pub(crate) fn run(
        &self,
        cx: &mut Cx<'_>,
        addresses: &[u64; LANES],
        lanes: Mask,
        act: impl FnMut(&mut Cx<'_>, &Group),
    ) {
        self.run_unless(cx, addresses, lanes, |_, _, _| u128::MAX, act);
    }

    /// The same, where two writes that nothing orders may be harmless: see [`watch_unless`].
    pub(crate) fn run_unless(
        &self,
        cx: &mut Cx<'_>,
        addresses: &[u64; LANES],
        lanes: Mask,
        changes: impl Fn(&mut Cx<'_>, &Group, u64) -> u128,
        mut act: impl FnMut(&mut Cx<'_>, &Group),
    ) {
        let all = cx.mask;
        cx.mask = all & lanes;
        if cx.mask != 0 {
            groups(
                cx,
                self.window,
                addresses,
                self.size,
                self.does,
                |cx, group| {
                    if self.is_good(cx, group) {
                        let contiguous = group.touch().is_contiguous();
                        let changes = |cx: &mut Cx<'_>, line| changes(cx, group, line);
                        watch_unless(cx, group, contiguous, self.does, AccessKind::Plain, changes);
                        act(cx, group);
                    }
                },
            );
        }
        cx.mask = all;
    }

    /// Whether the memory is one that tensor cores reach.
    pub(crate) fn is_good(&self, cx: &mut Cx<'_>, group: &Group) -> bool {
        let verb = self.does.verb();
        match group.home {
            Home::Shared(_) => true,
            Home::Global(_) if !self.shared_only => true,
            Home::Local => {
                cx.report(rule::TENSOR_LOCAL, group.mask, |_, mut told| {
                    told.message =
                        format!("{verb} a matrix through a pointer to the thread's local memory");
                    told.note("a fragment is spread over the warp, so its memory must be one that all lanes see: shared or global")
                        .help("put the tile into shared memory, fill it together, synchronise, and use it from there")
                });
                false
            }
            other => {
                let name = other.name();
                let need = if self.shared_only {
                    "shared"
                } else {
                    "shared or global"
                };
                cx.report(rule::WRONG_WINDOW, group.mask, |_, mut told| {
                    told.message =
                        format!("{verb} a matrix in {name} memory, where {need} memory is wanted");
                    told
                });
                false
            }
        }
    }
}
