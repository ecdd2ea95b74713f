//! Control: branches, calls, the ends of a thread, and what a kernel says of itself.

use super::operands::{
    ANYTHING, BadOpcode, Form, Lookup, NOTHING, OutOfRange, Slot, constant, exactly,
};
use super::row::{Control, Family, Results, Row};
use crate::arch::Feature;
use crate::instruction::Instruction;
use crate::types::ScalarType::U32;

const BRANCHES: &str = "tests/ptx/control/branches.ptx";
const LAUNCH: &str = "tests/ptx/special/launch.ptx";

const fn act(name: &'static str, family: Family, operands: fn(&Form<'_>) -> Lookup) -> Row {
    Row::doing(name, family, operands).results(Results::None)
}

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    act("bra", Family::Control, |_| exactly(vec![Slot::Label])).control(Control::Branch).in_block().tested(BRANCHES),
    act("brx", Family::Control, |_| exactly(vec![Slot::In(U32), Slot::Label])).control(Control::BranchTable).in_block().tested(BRANCHES),
    act("exit", Family::Control, NOTHING).control(Control::Exit).in_block().tested(BRANCHES),
    act("ret", Family::Control, NOTHING).control(Control::Return).in_block().tested(BRANCHES),
    act("trap", Family::Control, NOTHING).control(Control::Trap).in_block().tested("rules/X004-trap/bad.ptx"),
    act("brkpt", Family::Control, NOTHING).tested("rules/X023-breakpoint/bad.ptx"),
    act("nanosleep", Family::Control, sleep).tested("tests/ptx/special/registers.ptx"),
    act("pmevent", Family::Control, |_| exactly(vec![Slot::Immediate])).tested(LAUNCH),
    act("call", Family::Call, ANYTHING).results(Results::Call).control(Control::Call).tested("tests/ptx/control/calls.ptx"),
    act("griddepcontrol", Family::Hint, NOTHING).needs(|_, needs| needs.add(Feature::GridDependency)).tested(LAUNCH),
    act("setmaxnreg", Family::RegisterPool, |_| exactly(vec![Slot::Immediate])).range(register_count)
        .needs(|_, needs| needs.add(Feature::Setmaxnreg)).tested("tests/ptx/special/registers_pool.ptx"),
];

fn sleep(form: &Form<'_>) -> Lookup {
    match form.first() {
        None => Err(BadOpcode::Missing("its type, `.u32`")),
        Some(U32) => exactly(vec![Slot::In(U32)]),
        Some(ty) => Err(BadOpcode::Type(
            ty,
            "a time is a number of nanoseconds in `.u32`",
        )),
    }
}

fn register_count(instruction: &Instruction) -> Option<OutOfRange> {
    let count = constant(instruction, 0)?;
    let fits = (24..=256).contains(&count.magnitude) && count.magnitude % 8 == 0;
    if fits && !count.negative {
        return None;
    }
    Some(OutOfRange {
        at: 0,
        message: format!("a thread can't be given {} registers", count.magnitude),
        help: "`setmaxnreg` takes 24 to 256, in multiples of 8",
    })
}
