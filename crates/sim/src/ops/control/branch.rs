//! Branches, returns, and other ways to leave.

use crate::access::context::Cx;
use crate::code::{Flow, NOWHERE, Reach, Wait};
use crate::decode::map::with;
use crate::decode::mods::{Mods, operands};
use crate::decode::names::Named;
use crate::decode::{Cost, Decoded, Decoder, Leaves};
use crate::engine::executable::Instr;
use crate::lanes::each;
use heist_ptx::{Instruction, Name, Operand, ScalarType, Statement, rule};
use std::sync::Arc;

pub(crate) fn decode<'m>(d: &mut Decoder<'m>, i: &'m Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "bra" => bra(d, i),
        "brx" => brx(d, i),
        "ret" => ret(d),
        "exit" => {
            d.emit_with(
                with(|_| Flow::Exit),
                Cost::CONTROL,
                Reach::Own,
                Leaves::Ends,
            );
            Ok(())
        }
        "trap" => {
            let instr = with(|cx| {
                cx.report(rule::TRAP, cx.mask, |_, mut told| {
                    told.message =
                        "a trap was executed: the kernel ends here with an error".to_owned();
                    told
                });
                Flow::Stop
            });
            d.emit_with(instr, Cost::CONTROL, Reach::Own, Leaves::Ends);
            Ok(())
        }
        "brkpt" => {
            let instr = with(|cx| {
                cx.report(rule::BREAKPOINT, cx.mask, |_, mut told| {
                    told.message = "a breakpoint was executed".to_owned();
                    told.help("without a debugger a GPU stops here with an error")
                });
                Flow::Next
            });
            d.emit(instr, Cost::CONTROL);
            Ok(())
        }
        "nanosleep" => nanosleep(d, i, mods),
        _ => {
            d.emit(with(|_| Flow::Next), Cost::CONTROL);
            Ok(())
        }
    }
}

/// A branch to a label.
struct Bra(u32);

impl Instr for Bra {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        Flow::Branch(cx.code.labels[self.0 as usize])
    }
}

/// The operation after the last statement of a function: control must not reach it.
pub(crate) struct RunsOff;

impl Instr for RunsOff {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let name = cx
            .code
            .function_of(cx.pc())
            .map(|function| function.name.clone())
            .unwrap_or_default();
        cx.report(rule::RUNS_OFF_END, cx.mask, |_, mut told| {
            told.message = format!("control runs past the end of `{name}`");
            told.help("end it with `ret;`")
        });
        Flow::Return
    }
}

fn label_of(d: &Decoder<'_>, name: &str) -> Decoded<u32> {
    d.find_label(name).ok_or_else(|| {
        d.wrong(
            rule::UNDECLARED_LABEL,
            format!("there is no label `{name}` here"),
        )
    })
}

fn bra(d: &mut Decoder<'_>, i: &Instruction) -> Decoded<()> {
    let o = operands(d, i, 1)?;
    let Operand::Name(name) = &o[0] else {
        return Err(d.wrong(rule::OPERAND_KIND, "a label is wanted here"));
    };
    let label = label_of(d, name)?;
    d.emit_with(
        Box::new(Bra(label)),
        Cost::new(2, 0),
        Reach::Own,
        Leaves::To(label),
    );
    Ok(())
}

/// The number of a list of labels; branches by one list share it.
fn table_of(d: &mut Decoder<'_>, list: &str, targets: &[Name]) -> Decoded<u32> {
    let label = d
        .scopes
        .label(list)
        .map_or(0, |label| label.number as usize);
    let key = d.first_label + label;
    if let Some(&known) = d.table_of.get(&key) {
        return Ok(known);
    }
    let labels = targets
        .iter()
        .map(|name| label_of(d, name))
        .collect::<Decoded<_>>()?;
    let number = d.tables.len() as u32;
    d.tables.push(labels);
    d.table_of.insert(key, number);
    Ok(number)
}

/// `brx.idx index, targets`.
fn brx<'m>(d: &mut Decoder<'m>, i: &'m Instruction) -> Decoded<()> {
    let o = operands(d, i, 2)?;
    let index = d.src(&o[0], ScalarType::U32)?;
    let Operand::Name(list) = &o[1] else {
        return Err(d.wrong(
            rule::OPERAND_KIND,
            "the label of a `.branchtargets` is wanted here",
        ));
    };
    let Some(Statement::BranchTargets { targets, .. }) = d.find_list(list) else {
        return Err(d.wrong(
            rule::UNDECLARED_LABEL,
            format!("`{list}` is no `.branchtargets`"),
        ));
    };
    let number = table_of(d, list, targets)?;
    let table = Arc::clone(&d.tables[number as usize]);
    let instr = with(move |cx| {
        let indices = *cx.row(index);
        let mut bad = 0;
        for lane in each(cx.mask) {
            let target = table
                .get(indices[lane] as usize)
                .map(|&label| cx.code.labels[label as usize]);
            cx.targets[lane] = target.unwrap_or(NOWHERE);
            bad |= u32::from(target.is_none()) << lane;
        }
        if bad != 0 {
            let (index, count) = (indices[crate::lanes::first(bad)], table.len());
            cx.report(rule::INDIRECT_TARGET, bad, |_, mut told| {
                told.message = format!("branches to target {index} of a list of {count}");
                told
            });
            return Flow::Stop;
        }
        Flow::Scatter
    });
    d.emit_with(instr, Cost::new(4, 0), Reach::Own, Leaves::Table(number));
    Ok(())
}

fn ret(d: &mut Decoder<'_>) -> Decoded<()> {
    for (name, offset) in d.returns.clone() {
        if let Some(Named::Register(register)) = d.find(&name) {
            for (part, at) in register.parts() {
                let store = super::call::store_formal(part, offset + at);
                d.emit(store, Cost::ALU);
            }
        }
    }
    d.emit_with(
        with(|_| Flow::Return),
        Cost::CONTROL,
        Reach::Own,
        Leaves::Ends,
    );
    Ok(())
}

fn nanosleep(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    let o = operands(d, i, 1)?;
    let ns = d.src(&o[0], mods.ty().unwrap_or(ScalarType::U32))?;
    let instr = with(move |cx| {
        let longest = each(cx.mask)
            .map(|lane| cx.row(ns)[lane])
            .max()
            .unwrap_or(0);
        // Up to twice as long, and never longer than a millisecond.
        let ns = u64::from(longest).min(1_000_000);
        let now = cx.warp.settle();
        let time = now + ns * 1000 / cx.machine.device.cycle_ps() + 20;
        cx.wait(Wait::Until { time })
    });
    d.emit_reaching(instr, Cost::CONTROL, Reach::Cluster);
    Ok(())
}
