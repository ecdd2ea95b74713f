//! Values that are not defined: of a register that nothing has set ([`crate::watch::unset`]), of shared or tensor memory
//! that nothing has written, of a lane that takes no part in a shuffle, and quotients by zero.
//!
//! Programs load more than they need and drop it: the warp that scans the sums of all warps loads those of
//! warps that are not there, a merge loads the element behind its list, a pipelined loop that makes no turn has
//! loaded its first tile, a reduction over a part of a warp shuffles all of it. So an undefined value is
//! reported once it has an effect: in a branch, an address, or memory that others see. Until then it is followed,
//! lane by lane, through registers, predicates, shuffles and shared memory, where a store of it leaves cells
//! unwritten. While a warp has no such value, which is nearly always, nothing is done, and while it has one, only
//! instructions that may touch it are looked at.

use super::conflict::place;
use super::context::Cx;
use super::group::{Group, Home};
use super::tensor_memory::unwritten_column;
use crate::code::{Gate, Guard, How, PredSrc, Uses};
use crate::lanes::{ALL, Mask, each};
use crate::state::follow::{Doubt, Lacks, Origin};
use crate::state::tensor_memory::What;
use heist_ptx::rule;

/// Follows a register that is not defined in some lanes, for want of what it was loaded from, or else because nothing
/// has set it.
#[cold]
pub(crate) fn begin(cx: &mut Cx<'_>, row: u32, lanes: Mask, lacks: Option<Lacks>) {
    let pc = cx.pc();
    let origin = lacks.map(|lacks| Origin { pc, lacks });
    let doubts = cx.warp.doubts.get_or_insert_default();
    doubts.row(row).add(lanes, origin);
}

/// Follows the registers that a load of unwritten shared memory leaves undefined; false if they can't be followed.
#[cold]
pub(super) fn loaded(cx: &mut Cx<'_>, group: &Group) -> bool {
    let pc = cx.pc();
    let (Home::Shared(rank), Some(uses)) = (group.home, uses(cx)) else {
        return false;
    };
    let Uses {
        writes,
        how: How::Loads(element),
        ..
    } = uses
    else {
        return false;
    };
    let element = u64::from(*element);
    let mut began = false;
    for (at, &row) in writes.iter().enumerate() {
        let (mut lanes, mut first) = (0, None);
        for lane in each(group.mask) {
            let offset = group.offsets[lane] + element * at as u64;
            let shared = &cx.blocks[rank as usize].shared;
            if let Some(missing) = shared.first_unwritten(offset, element as usize) {
                lanes |= 1 << lane;
                first = first.or(Some(missing));
            }
        }
        let Some(offset) = first else { continue };
        let known = cx.blocks[rank as usize].undefined.get(&(offset / 4));
        let origin = known.copied().unwrap_or(Origin {
            pc,
            lacks: Lacks::Shared { rank, offset },
        });
        let doubts = cx.warp.doubts.get_or_insert_default();
        doubts.row(row).add(lanes, Some(origin));
        began = true;
    }
    began
}

/// Follows the result of a shuffle: another lane's value, which is not defined where that lane takes no part.
#[cold]
pub(crate) fn shuffled(
    cx: &mut Cx<'_>,
    value: Option<u32>,
    inactive: Mask,
    source: impl Fn(usize) -> u32,
) {
    let Some(uses) = uses(cx) else {
        return;
    };
    let (mask, pc) = (cx.mask, cx.pc());
    let passed = value.map_or_else(Doubt::default, |row| of_row(cx, row, ALL));
    let lanes = each(mask & !inactive)
        .filter(|&lane| passed.lanes >> (source(lane) & 31) & 1 != 0)
        .fold(0, |lanes, lane| lanes | 1 << lane);
    let lacks = Lacks::Lane;
    let mut made = Doubt::default();
    made.add(inactive, Some(Origin { pc, lacks }));
    made.add(lanes, passed.origin);
    let doubts = cx.warp.doubts.get_or_insert_default();
    for &row in &uses.writes {
        doubts.row(row).set(mask, made);
    }
    for pred in &uses.decides {
        doubts.pred(pred.0).set(mask, Doubt::default());
    }
}

/// Whether an instruction may touch a value that is not defined.
#[cold]
pub(crate) fn is_touched(cx: &Cx<'_>) -> bool {
    let (uses, doubts) = (uses(cx), cx.warp.doubts.as_ref());
    uses.zip(doubts)
        .is_some_and(|(uses, doubts)| uses.touches.meets(doubts.some))
}

/// Notes that a division by zero has left its result undefined; reports it at once where it can't be followed.
#[cold]
pub(crate) fn quotient(cx: &mut Cx<'_>, lanes: Mask) {
    let origin = Origin {
        pc: cx.pc(),
        lacks: Lacks::Quotient,
    };
    let Some(uses) = uses(cx) else {
        return report(cx, lanes, origin);
    };
    let doubts = cx.warp.doubts.get_or_insert_default();
    for &row in &uses.writes {
        doubts.row(row).add(lanes, Some(origin));
    }
}

/// Before an instruction: whether its guard is defined. Lanes whose guard is not may or may not run it.
#[cold]
pub(crate) fn guard(cx: &mut Cx<'_>, guard: Option<Guard>) {
    let (Some(guard), Some(uses)) = (guard, uses(cx)) else {
        return;
    };
    let source = PredSrc {
        pred: guard.pred,
        negated: false,
    };
    let doubt = of_pred(cx, source, cx.fragment.mask);
    if doubt.lanes == 0 {
        return;
    }
    if matches!(
        uses.how,
        How::Computes | How::Packs | How::Selects(_) | How::Gates(_)
    ) {
        let doubts = cx.warp.doubts.get_or_insert_default();
        for &row in &uses.writes {
            doubts.row(row).add(doubt.lanes, doubt.origin);
        }
        for pred in &uses.decides {
            doubts.pred(pred.0).add(doubt.lanes, doubt.origin);
        }
        return;
    }
    tell(cx, doubt);
    if let Some(doubts) = &mut cx.warp.doubts {
        doubts.pred(guard.pred.0).lanes &= !doubt.lanes;
    }
}

/// Before an instruction runs: reports the effect of what it reads, and notes what becomes of its results.
#[cold]
pub(crate) fn before(cx: &mut Cx<'_>) {
    let Some(uses) = uses(cx) else {
        return;
    };
    let mask = cx.mask;
    let made = made(cx, uses, mask);
    act(cx, uses, mask);
    let Some(doubts) = &mut cx.warp.doubts else {
        return;
    };
    // The result of a shuffle is known behind it: it may read that register in other lanes.
    if matches!(uses.how, How::Shuffles(_)) {
        return;
    }
    for &row in &uses.writes {
        doubts.row(row).set(mask, made);
    }
    for pred in &uses.decides {
        doubts.pred(pred.0).set(mask, made);
    }
}

/// In which lanes the results of an instruction are not defined; of loads and shuffles that is known behind them.
fn made(cx: &Cx<'_>, uses: &Uses, mask: Mask) -> Doubt {
    let mut made = Doubt::default();
    if let How::Selects(select) = &uses.how {
        let chosen = match select.by {
            Ok(source) => {
                made = of_pred(cx, source, mask);
                cx.pred(source)
            }
            Err(constant) => constant,
        };
        for (row, lanes) in select.from.into_iter().zip([chosen, !chosen]) {
            if let Some(row) = row {
                let one = of_row(cx, row, mask & lanes);
                made.add(one.lanes, one.origin);
            }
        }
        return made;
    }
    for &row in &uses.reads {
        let one = of_row(cx, row, mask);
        made.add(one.lanes, one.origin);
    }
    for &source in &uses.asks {
        let one = of_pred(cx, source, mask);
        made.add(one.lanes, one.origin);
    }
    match &uses.how {
        How::Mixes if made.lanes != 0 && was_stored(made) => made.lanes = mask,
        How::Packs if !was_stored(made) => {
            for &row in &uses.reads {
                made.lanes &= of_row(cx, row, mask).lanes;
            }
        }
        How::Gates(gate) => made.lanes &= !decided(cx, *gate, mask),
        How::Computes | How::Mixes | How::Packs | How::Selects(_) => {}
        How::Shuffles(_) | How::Loads(_) | How::Stores(..) | How::Acts => return Doubt::default(),
    }
    made
}

/// Reports what has an effect at once: an address, a branch, an operand of what acts on memory or other threads.
fn act(cx: &mut Cx<'_>, uses: &Uses, mask: Mask) {
    match &uses.how {
        How::Shuffles(passed) => {
            for &row in uses.reads.iter().skip(*passed) {
                act_row(cx, row, mask);
            }
        }
        How::Loads(_) => {
            for &row in &uses.reads {
                act_row(cx, row, mask);
            }
        }
        How::Stores(_, stored) => {
            for &row in &uses.reads {
                if !stored.contains(&Some(row)) {
                    act_row(cx, row, mask);
                }
            }
            let mut stored = stored.iter().flatten();
            let undefined = stored.any(|&row| of_row(cx, row, mask).lanes != 0);
            if let Some(doubts) = &mut cx.warp.doubts {
                doubts.stores = undefined.then(Vec::new);
            }
        }
        How::Acts => {
            for &row in &uses.reads {
                act_row(cx, row, mask);
            }
            for &source in &uses.asks {
                let doubt = of_pred(cx, source, mask);
                if doubt.lanes != 0 {
                    tell(cx, doubt);
                    if let Some(doubts) = &mut cx.warp.doubts {
                        doubts.pred(source.pred.0).lanes &= !doubt.lanes;
                    }
                }
            }
        }
        How::Computes | How::Mixes | How::Packs | How::Selects(_) | How::Gates(_) => {}
    }
}

/// After an instruction has run.
#[cold]
pub(crate) fn after(cx: &mut Cx<'_>, uses: &Uses, mask: Mask) {
    if let How::Stores(element, stored) = &uses.how {
        stores(cx, *element, stored, mask);
    }
    cx.warp.doubts.take_if(|doubts| doubts.is_over());
}

/// Leaves cells unwritten that a store gave an undefined value to; reports it where the memory is not a block's.
fn stores(cx: &mut Cx<'_>, element: u32, stored: &[Option<u32>], mask: Mask) {
    let doubts = cx.warp.doubts.as_mut();
    let Some(groups) = doubts.and_then(|doubts| doubts.stores.take()) else {
        return;
    };
    for (at, row) in stored.iter().enumerate() {
        let Some(row) = *row else { continue };
        let doubt = of_row(cx, row, mask);
        let Some(origin) = doubt.origin else { continue };
        let mut rest = doubt.lanes;
        for (rank, lanes, offsets) in &groups {
            for lane in each(rest & lanes) {
                let offset = offsets[lane] + u64::from(element) * at as u64;
                let block = &mut cx.blocks[*rank as usize];
                block.shared.unmark(offset, element as usize);
                for cell in offset / 4..(offset + u64::from(element)).div_ceil(4) {
                    block.undefined.insert(cell, origin);
                }
            }
            rest &= !lanes;
        }
        if rest != 0 {
            tell(
                cx,
                Doubt {
                    lanes: rest,
                    ..doubt
                },
            );
            if let Some(doubts) = &mut cx.warp.doubts {
                doubts.row(row).lanes &= !rest;
            }
        }
    }
}

/// What the instruction at hand does with values; none in functions, which are not followed.
pub(crate) fn uses<'a>(cx: &Cx<'a>) -> Option<&'a Uses> {
    cx.follows_values()
        .then(|| cx.code.uses.get(cx.pc() as usize))
        .flatten()
}

/// Whether somebody was to store it. The rest comes of registers, of which compilers leave parts undefined, and drop them.
fn was_stored(doubt: Doubt) -> bool {
    matches!(
        doubt.origin,
        Some(Origin {
            lacks: Lacks::Shared { .. },
            ..
        })
    )
}

/// Lanes in which a defined predicate decides a result alone.
fn decided(cx: &Cx<'_>, gate: Gate, mask: Mask) -> Mask {
    let (decides, of) = match gate {
        Gate::Both { decides, of } => (decides, of),
        Gate::With { decides, pred } => (decides, [Ok(pred), Err(if decides { 0 } else { ALL })]),
    };
    of.into_iter().fold(0, |lanes, source| {
        let (bits, known) = match source {
            Ok(source) => (cx.pred(source), !of_pred(cx, source, mask).lanes),
            Err(constant) => (constant, ALL),
        };
        lanes | known & if decides { bits } else { !bits }
    })
}

fn of_row(cx: &Cx<'_>, row: u32, mask: Mask) -> Doubt {
    let doubts = cx.warp.doubts.as_ref();
    let doubt = doubts.and_then(|doubts| doubts.rows.get(row as usize));
    let mut doubt = doubt.copied().unwrap_or_default().within(mask);
    if doubt.lanes != 0 {
        doubt.origin = doubt.origin.or(Some(Origin {
            pc: cx.pc(),
            lacks: Lacks::Register(row),
        }));
    }
    doubt
}

fn of_pred(cx: &Cx<'_>, source: PredSrc, mask: Mask) -> Doubt {
    let doubts = cx.warp.doubts.as_ref();
    let doubt = doubts.and_then(|doubts| doubts.preds.get(source.pred.0 as usize));
    doubt.copied().unwrap_or_default().within(mask)
}

/// Reports the effect of a register that is not defined. Once is enough for what comes of it.
fn act_row(cx: &mut Cx<'_>, row: u32, mask: Mask) {
    let doubt = of_row(cx, row, mask);
    if doubt.lanes != 0 {
        tell(cx, doubt);
        if let Some(doubts) = &mut cx.warp.doubts {
            doubts.row(row).lanes &= !doubt.lanes;
        }
    }
}

fn tell(cx: &mut Cx<'_>, doubt: Doubt) {
    if let Some(origin) = doubt.origin {
        report(cx, doubt.lanes, origin);
    }
}

/// Reports the effect of a value that is not defined, where it was read first.
#[cold]
fn report(cx: &mut Cx<'_>, lanes: Mask, Origin { pc, lacks }: Origin) {
    let here = std::mem::replace(&mut cx.fragment.pc, pc);
    let rule = match lacks {
        Lacks::Register(_) => rule::REGISTER_UNWRITTEN,
        Lacks::Lane => rule::INACTIVE_LANE,
        Lacks::Column(_) => rule::TENSOR_UNWRITTEN,
        Lacks::Shared { .. } => rule::SHARED_UNWRITTEN,
        Lacks::Quotient => rule::DIVISION_BY_ZERO,
    };
    cx.report(rule, lanes, |cx, mut told| {
        let help;
        (told.message, help) = match lacks {
            Lacks::Register(row) => {
                let unset = &cx.code.watched.unset;
                let message = match unset.iter().find(|(unset, _)| *unset == row) {
                    Some((_, name)) if !name.is_empty() => {
                        format!("uses register `{name}`, which nothing has set")
                    }
                    _ => "uses a register that nothing has set".to_owned(),
                };
                let help = "set it on every path that leads here; a register has no first value";
                (message, help)
            }
            Lacks::Lane => (
                "takes a value from a lane that takes no part: the value is not defined".to_owned(),
                "shuffle from lanes that are in the mask and run the instruction",
            ),
            Lacks::Column(column) => unwritten_column(What::Load, column as usize),
            Lacks::Shared { rank, offset } => (
                format!(
                    "reads {}, which nothing has written",
                    place(cx, Home::Shared(rank), offset)
                ),
                "write it before it is read; if another thread does, wait for that thread",
            ),
            Lacks::Quotient => (
                "an integer is divided by zero: the result is not specified".to_owned(),
                "test the divisor before the division, not after it",
            ),
        };
        if here != pc {
            told = told.other(cx.code.span(here), "what comes of it has an effect here");
        }
        told.help(help)
    });
    cx.fragment.pc = here;
}
