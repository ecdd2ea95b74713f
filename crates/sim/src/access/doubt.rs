//! Values that are not defined: of a register that nothing has set ([`crate::watch::unset`]), of memory
//! that nothing has written, of a lane that takes no part in a shuffle, and quotients by zero.
//!
//! Programs load more than they need and drop it: the warp that scans the sums of all warps loads those of
//! warps that are not there, a merge loads the element behind its list, a pipelined loop that makes no turn has
//! loaded its first tile, a reduction over a part of a warp shuffles all of it. So an undefined value is
//! reported once it has an effect: in a branch, an address, or a store to global memory that has nothing else in it.
//! Until then it is followed, lane by lane and byte by byte, through registers, predicates, shuffles and memory, where
//! a store leaves such bytes unwritten: structs are copied in whole words, with the padding between their members.
//! Which bytes of a result come of which bytes of its operands the instruction tells itself: it is run with
//! several values for those that are not defined. While a warp has no such value, which is nearly always, nothing is
//! done, and while it has one, only instructions that may touch it are looked at.

use super::conflict::place;
use super::context::Cx;
use super::group::{Group, Home};
use super::tensor_memory::unwritten_column;
use crate::code::{Gate, Guard, How, PredSrc, Selects, Uses};
use crate::engine::executable::Instr;
use crate::lanes::{ALL, Mask, Row, each};
use crate::state::follow::{Bytes, Doubt, Lacks, Memory, Origin};
use crate::state::late::Pass;
use crate::state::tensor_memory::What;
use heist_ptx::rule;
use rustc_hash::FxHashMap;

/// Follows a register that is not defined in some lanes, for want of what it was loaded from, or else because nothing
/// has set it.
#[cold]
pub(crate) fn begin(cx: &mut Cx<'_>, row: u32, lanes: Mask, lacks: Option<Lacks>) {
    let pc = cx.pc();
    let origin = lacks.map(|lacks| Origin::new(pc, lacks));
    let doubts = cx.warp.doubts.get_or_insert_default();
    doubts.add_row(row, lanes, origin);
}

/// Memory that values are followed through; none of constants and parameters, which the host writes.
pub(crate) fn memory(home: Home) -> Option<Memory> {
    match home {
        Home::Global(at) => Some(Memory::Global(at)),
        Home::Shared(rank) => Some(Memory::Shared(rank)),
        Home::Local => Some(Memory::Local),
        Home::Const | Home::Param => None,
    }
}

/// Follows the registers that a load of unwritten memory leaves undefined; false if they can't be followed.
#[cold]
pub(crate) fn loaded(cx: &mut Cx<'_>, group: &Group) -> bool {
    let pc = cx.pc();
    let Some(memory) = memory(group.home) else {
        return false;
    };
    let Some(uses) = uses(cx) else {
        // What can't be followed may be padding, if not all of it is unwritten.
        let mut lanes = each(group.mask);
        let Some(lane) = lanes.find(|&lane| is_all_unwritten(cx, memory, lane, group)) else {
            return true;
        };
        let known = known_at(cx, memory, group.offsets[lane]);
        if let Some(origin) = known {
            report(cx, 1 << lane, origin);
        }
        return known.is_some();
    };
    if matches!(uses.how, How::Copies) {
        return each(group.mask).all(|lane| !is_all_unwritten(cx, memory, lane, group));
    }
    let Uses {
        writes,
        how: How::Loads(element),
        ..
    } = uses
    else {
        return false;
    };
    let beside = each(group.mask).all(|lane| !is_all_unwritten(cx, memory, lane, group));
    let mut began = false;
    for (at, &row) in writes.iter().enumerate() {
        let (mut bytes, mut first) = ([0; 16], None);
        for lane in each(group.mask) {
            let offset = group.offsets[lane] + u64::from(*element) * at as u64;
            let missing = unwritten(cx, memory, lane, offset, *element);
            first = first.or((missing != 0).then(|| offset + u64::from(missing.trailing_zeros())));
            for (at, byte) in bytes.iter_mut().enumerate() {
                // A sign is that of the last one.
                let at = at.min(*element as usize - 1);
                *byte |= u32::from(missing >> at & 1) << lane;
            }
        }
        let Some(offset) = first else { continue };
        let origin = known_at(cx, memory, offset).unwrap_or(Origin {
            beside,
            ..Origin::new(pc, Lacks::Byte(memory, offset))
        });
        let doubts = cx.warp.doubts.get_or_insert_default();
        doubts.set_bytes(row, group.mask, bytes, Some(origin));
        began = true;
    }
    began
}

/// Reports bytes of a thread's own memory that are printed, and that nothing has written.
pub(crate) fn printed(cx: &mut Cx<'_>, lane: usize, offset: u64, len: u32) {
    let missing = unwritten(cx, Memory::Local, lane, offset, len);
    if missing == 0 || !cx.machine.options.checks.unwritten {
        return;
    }
    let (pc, offset) = (cx.pc(), offset + u64::from(missing.trailing_zeros()));
    let lacks = Lacks::Byte(Memory::Local, offset);
    let origin = known_at(cx, Memory::Local, offset).unwrap_or(Origin::new(pc, lacks));
    report(cx, 1 << lane, origin);
}

/// Where a byte came from that was stored without being defined.
fn known_at(cx: &mut Cx<'_>, memory: Memory, offset: u64) -> Option<Origin> {
    origins(cx, memory)?.get(&(offset / 4)).copied()
}

/// Which bytes of a lane's memory nothing has written, a bit each.
fn unwritten(cx: &mut Cx<'_>, memory: Memory, lane: usize, offset: u64, len: u32) -> u16 {
    let len = len as usize;
    match memory {
        Memory::Local => cx.warp.local.unwritten_of(lane, offset, len),
        Memory::Shared(rank) => cx.blocks[rank as usize].shared.unwritten_of(offset, len),
        Memory::Global(at) => {
            let one = cx.machine.global.get(at);
            one.map_or(0, |one| one.region.unwritten_of(offset, len))
        }
    }
}

/// Whether nothing has written any byte that a lane loads.
fn is_all_unwritten(cx: &mut Cx<'_>, memory: Memory, lane: usize, group: &Group) -> bool {
    let (start, end) = (
        group.offsets[lane],
        group.offsets[lane] + u64::from(group.size),
    );
    (start..end).all(|offset| unwritten(cx, memory, lane, offset, 1) != 0)
}

/// Where bytes came from that were stored without being defined, by words.
fn origins<'a>(cx: &'a mut Cx<'_>, memory: Memory) -> Option<&'a mut FxHashMap<u64, Origin>> {
    match memory {
        Memory::Local => Some(&mut cx.warp.local.undefined),
        Memory::Shared(rank) => Some(&mut cx.blocks[rank as usize].shared.undefined),
        Memory::Global(at) => {
            let one = cx.machine.global.get_mut(at);
            one.map(|one| &mut one.region.undefined)
        }
    }
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
    let mut bytes = value.map_or([0; 16], |row| bytes_of(cx, row, ALL));
    for byte in &mut bytes {
        let here = *byte;
        *byte = each(mask & !inactive)
            .filter(|&lane| here >> (source(lane) & 31) & 1 != 0)
            .fold(inactive, |lanes, lane| lanes | 1 << lane);
    }
    let lacks = Lacks::Lane;
    let origin = match inactive {
        0 => passed.origin,
        _ => Some(Origin::new(pc, lacks)),
    };
    let doubts = cx.warp.doubts.get_or_insert_default();
    for &row in &uses.writes {
        doubts.set_bytes(row, mask, bytes, origin);
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
    let origin = Origin::new(cx.pc(), Lacks::Quotient);
    let Some(uses) = uses(cx) else {
        return report(cx, lanes, origin);
    };
    let doubts = cx.warp.doubts.get_or_insert_default();
    for &row in &uses.writes {
        doubts.add_row(row, lanes, Some(origin));
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
        How::Computes | How::Derives | How::Packs | How::Selects(_) | How::Gates(_)
    ) {
        let doubts = cx.warp.doubts.get_or_insert_default();
        for &row in &uses.writes {
            doubts.add_row(row, doubt.lanes, doubt.origin);
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
pub(crate) fn before(cx: &mut Cx<'_>, instr: &dyn Instr) {
    let Some(uses) = uses(cx) else {
        return;
    };
    let mask = cx.mask;
    let made = made(cx, uses, mask);
    act(cx, uses, mask);
    let bytes = match &uses.how {
        How::Derives | How::Packs if made.lanes != 0 => {
            let derived = derive(cx, instr, uses, mask);
            let within = |bytes: Bytes| bytes.map(|byte| byte & made.lanes);
            derived.into_iter().map(within).collect()
        }
        How::Selects(select) if made.lanes != 0 => vec![selected(cx, select, mask)],
        // The result of a shuffle is known behind it: it may read that register in other lanes.
        How::Shuffles(_) => return,
        _ => Vec::new(),
    };
    let Some(doubts) = &mut cx.warp.doubts else {
        return;
    };
    for (at, &row) in uses.writes.iter().enumerate() {
        let bytes = bytes.get(at).copied().unwrap_or([made.lanes; 16]);
        doubts.set_bytes(row, mask, bytes, made.origin);
    }
    for pred in &uses.decides {
        doubts.pred(pred.0).set(mask, made);
    }
}

/// Which bytes of each result come of bytes that are not defined: the instruction is run with several values for these.
fn derive(cx: &mut Cx<'_>, instr: &dyn Instr, uses: &Uses, mask: Mask) -> Vec<Bytes> {
    let mut instr = instr;
    while let Some(inner) = instr.inner() {
        instr = inner;
    }
    let width = |row: u32| usize::from(cx.code.widths.get(row as usize).copied().unwrap_or(4));
    let base = cx.fragment.base;
    let rows = |row: u32| {
        let first = (row + base) as usize;
        first..first + width(row).div_ceil(4)
    };
    let undefined: Vec<(u32, Bytes)> = uses
        .reads
        .iter()
        .map(|&row| (row, bytes_of(cx, row, mask)))
        .collect();
    let touched = uses.reads.iter().chain(&uses.writes);
    let kept: Vec<_> = touched
        .map(|&row| (rows(row), cx.warp.regs[rows(row)].to_vec()))
        .collect();
    let (carry, doubts) = (cx.warp.carry, cx.warp.doubts.take());
    let mut results: Vec<Vec<Row>> = Vec::new();
    let mut derived = vec![[0; 16]; uses.writes.len()];
    for trial in 0..4 {
        for (at, (row, bytes)) in undefined.iter().enumerate() {
            let size = 4 * rows(*row).len();
            let values: &mut [u8] = bytemuck::cast_slice_mut(&mut cx.warp.regs[rows(*row)]);
            for (byte, lanes) in bytes.iter().enumerate().take(width(*row)) {
                for lane in each(*lanes) {
                    values[lane * size + byte] = other_value(trial, at, byte);
                }
            }
        }
        instr.step(cx);
        for (at, &row) in uses.writes.iter().enumerate() {
            let result = &cx.warp.regs[rows(row)];
            let Some(before) = results.get(at) else {
                results.push(result.to_vec());
                continue;
            };
            let size = 4 * result.len();
            let pair = bytemuck::cast_slice::<Row, u8>(result)
                .iter()
                .zip(bytemuck::cast_slice::<Row, u8>(before));
            for (place, (one, other)) in pair.enumerate() {
                derived[at][place % size] |= u32::from(one != other) << (place / size);
            }
        }
        for (rows, values) in &kept {
            cx.warp.regs[rows.clone()].copy_from_slice(values);
        }
        cx.warp.carry = carry;
    }
    cx.warp.doubts = doubts;
    derived
}

/// What a byte that is not defined might be: all bits clear, all set, and two that differ by register and byte.
fn other_value(trial: u32, register: usize, byte: usize) -> u8 {
    match trial {
        0 => 0,
        1 => u8::MAX,
        2 => (0x5a ^ (0x35 * register) ^ (0x1b * byte)) as u8,
        _ => (0x93 ^ (0x4f * register) ^ (0x2d * byte)) as u8,
    }
}

/// The bytes of a choice that are not defined: all where the predicate is not.
fn selected(cx: &Cx<'_>, select: &Selects, mask: Mask) -> Bytes {
    let (unknown, chosen) = match select.by {
        Ok(source) => (of_pred(cx, source, mask).lanes, cx.pred(source)),
        Err(constant) => (0, constant),
    };
    let mut all = [unknown; 16];
    for (row, lanes) in select.from.into_iter().zip([chosen, !chosen]) {
        let Some(row) = row else { continue };
        for (byte, more) in all.iter_mut().zip(bytes_of(cx, row, mask & lanes)) {
            *byte |= more;
        }
    }
    all
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
        How::Computes | How::Derives | How::Mixes | How::Packs | How::Selects(_) => {}
        How::Shuffles(_) | How::Loads(_) | How::Stores(..) | How::Copies | How::Acts => {
            return Doubt::default();
        }
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
        How::Copies | How::Acts => {
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
        How::Computes
        | How::Derives
        | How::Mixes
        | How::Packs
        | How::Selects(_)
        | How::Gates(_) => {}
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

/// Leaves bytes unwritten that a store gave an undefined value to; reports it where nothing else goes to global memory.
fn stores(cx: &mut Cx<'_>, element: u32, stored: &[Option<u32>], mask: Mask) {
    let doubts = cx.warp.doubts.as_mut();
    let Some(groups) = doubts.and_then(|doubts| doubts.stores.take()) else {
        return;
    };
    let element = element as usize;
    let values: Vec<(Doubt, Bytes)> = stored
        .iter()
        .map(|row| match *row {
            Some(row) => {
                let bytes = bytes_of(cx, row, mask);
                // A register may be wider than what is stored of it.
                let lanes = bytes[..element].iter().fold(0, |lanes, byte| lanes | byte);
                (of_row(cx, row, mask).within(lanes), bytes)
            }
            None => (Doubt::default(), [0; 16]),
        })
        .collect();
    let all = values.iter().flat_map(|(_, bytes)| &bytes[..element]);
    let all = all.fold(mask, |lanes, byte| lanes & byte);
    // Padding comes beside bytes that are defined; of anything else one register is enough.
    let padding = |doubt: &Doubt| doubt.origin.is_some_and(|origin| origin.beside);
    let alone = values.iter().filter(|(doubt, _)| !padding(doubt));
    let alone = alone.fold(0, |lanes, (doubt, _)| lanes | doubt.lanes);
    let mut told = 0;
    for (memory, lanes, offsets) in groups {
        if matches!(memory, Memory::Global(_)) {
            told |= (all | alone) & lanes;
        }
        for (at, (doubt, bytes)) in values.iter().enumerate() {
            let Some(origin) = doubt.origin else { continue };
            for lane in each(doubt.lanes & lanes & !told) {
                let start = offsets[lane] + (element * at) as u64;
                for (offset, byte) in (start..).zip(&bytes[..element]) {
                    if byte >> lane & 1 != 0 {
                        leave(cx, memory, lane, offset, origin);
                    }
                }
            }
        }
    }
    for (row, (doubt, _)) in stored.iter().zip(&values) {
        let lanes = doubt.lanes & told;
        if let Some(row) = *row
            && lanes != 0
        {
            tell(cx, Doubt { lanes, ..*doubt });
            if let Some(doubts) = &mut cx.warp.doubts {
                doubts.clear_row(row, lanes);
            }
        }
    }
}

/// Leaves a byte of memory unwritten.
fn leave(cx: &mut Cx<'_>, memory: Memory, lane: usize, offset: u64, origin: Origin) {
    match memory {
        Memory::Local => cx.warp.local.unmark(lane, offset),
        Memory::Shared(rank) => cx.blocks[rank as usize].shared.unmark(offset, 1),
        Memory::Global(at) => {
            if let Some(one) = cx.machine.global.get_mut(at) {
                one.region.unmark(offset, 1);
            }
        }
    }
    if let Some(origins) = origins(cx, memory) {
        origins.insert(offset / 4, origin);
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
            lacks: Lacks::Byte(..) | Lacks::Late,
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
    let doubt = doubts.map(|doubts| doubts.row(row));
    let mut doubt = doubt.unwrap_or_default().within(mask);
    if doubt.lanes != 0 {
        doubt.origin = doubt
            .origin
            .or(Some(Origin::new(cx.pc(), Lacks::Register(row))));
    }
    doubt
}

fn bytes_of(cx: &Cx<'_>, row: u32, mask: Mask) -> Bytes {
    let doubts = cx.warp.doubts.as_ref();
    let bytes = doubts.map_or([0; 16], |doubts| doubts.bytes(row));
    bytes.map(|byte| byte & mask)
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
            doubts.clear_row(row, doubt.lanes);
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
fn report(cx: &mut Cx<'_>, lanes: Mask, origin: Origin) {
    let Origin { pc, lacks, .. } = origin;
    if cx.machine.late.pass == Pass::Follows {
        cx.machine.late.matters = true;
        return;
    }
    let here = std::mem::replace(&mut cx.fragment.pc, pc);
    let rule = match lacks {
        Lacks::Register(_) => rule::REGISTER_UNWRITTEN,
        Lacks::Lane => rule::INACTIVE_LANE,
        Lacks::Column(_) => rule::TENSOR_UNWRITTEN,
        Lacks::Byte(Memory::Shared(_), _) => rule::SHARED_UNWRITTEN,
        Lacks::Byte(Memory::Global(_), _) => rule::GLOBAL_UNWRITTEN,
        Lacks::Byte(Memory::Local, _) => rule::LOCAL_UNWRITTEN,
        Lacks::Quotient => rule::DIVISION_BY_ZERO,
        Lacks::Late => rule::GLOBAL_RACE,
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
            Lacks::Byte(Memory::Local, offset) => (
                format!("reads {offset:#x} of local memory, which this thread has not written"),
                "write it before it is read",
            ),
            Lacks::Byte(memory, offset) => {
                let home = match memory {
                    Memory::Shared(rank) => Home::Shared(rank),
                    Memory::Global(at) => Home::Global(at),
                    Memory::Local => Home::Local,
                };
                let what = place(cx, home, offset);
                let message = format!("reads {what}, which nothing has written");
                let help =
                    "write it before it is read; if another thread does, wait for that thread";
                (message, help)
            }
            Lacks::Late => (
                "uses what another thread may have written meanwhile".to_owned(),
                "put a barrier between the two",
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn what_an_undefined_byte_might_be_differs_by_register_and_byte() {
        for trial in [2, 3] {
            let places = (0..4).flat_map(|register| (0..4).map(move |byte| (register, byte)));
            let tried = places.map(|(register, byte)| other_value(trial, register, byte));
            assert_eq!(tried.collect::<BTreeSet<u8>>().len(), 16, "{trial}");
        }
    }
}
