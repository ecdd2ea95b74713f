//! A program as device code: every step becomes the instruction that it stands for.

use super::step::{Op, Program, Section, Step, Type};
use crate::context::PolicyCx;
use heist_builder::{Bool, Val, Var};
use std::cell::RefCell;
use std::fmt;

/// A program that is built into a kernel.
pub struct Staged<'k> {
    program: Program,
    states: RefCell<Vec<State<'k>>>,
}

impl fmt::Debug for Staged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Staged({} steps)", self.program.len())
    }
}

/// A value while the kernel is built.
#[derive(Clone, Copy)]
enum Value<'k> {
    Bool(Bool<'k>),
    Narrow(Val<'k, u32>),
    Wide(Val<'k, u64>),
    /// A step without one.
    None,
}

#[derive(Clone, Copy)]
enum State<'k> {
    Bool(Var<'k, bool>),
    Narrow(Var<'k, u32>),
    Wide(Var<'k, u64>),
}

impl<'k> Value<'k> {
    fn bool(self, cx: &PolicyCx<'k>) -> Bool<'k> {
        match self {
            Value::Bool(value) => value,
            _ => cx.no(),
        }
    }

    fn narrow(self, cx: &PolicyCx<'k>) -> Val<'k, u32> {
        match self {
            Value::Narrow(value) => value,
            Value::Wide(value) => value.cast(),
            _ => cx.c(0),
        }
    }

    fn wide(self, cx: &PolicyCx<'k>) -> Val<'k, u64> {
        match self {
            Value::Wide(value) => value,
            Value::Narrow(value) => value.cast(),
            _ => cx.c(0),
        }
    }
}

impl<'k> Staged<'k> {
    pub(super) fn start(program: Program, cx: &PolicyCx<'k>) -> Staged<'k> {
        let staged = Staged {
            program,
            states: RefCell::new(Vec::new()),
        };
        staged.run(cx, Section::Init, None);
        staged
    }

    /// Emits a section; what it answers.
    #[track_caller]
    pub(super) fn run(
        &self,
        cx: &PolicyCx<'k>,
        section: Section,
        granted: Option<Val<'k, u32>>,
    ) -> Bool<'k> {
        let steps = self.program.steps(section);
        let mut values: Vec<Value<'k>> = Vec::with_capacity(steps.len());
        let mut answer = cx.yes();
        for step in steps {
            let argument = |at: usize| values[usize::from(step.args[at])];
            let value = match step.op {
                Op::Answer => {
                    answer = argument(0).bool(cx);
                    Value::None
                }
                Op::Set => {
                    self.set(step, argument(0), cx);
                    Value::None
                }
                Op::Get => match self.states.borrow().get(step.number as usize) {
                    Some(State::Bool(state)) => Value::Bool(state.get()),
                    Some(State::Narrow(state)) => Value::Narrow(state.get()),
                    Some(State::Wide(state)) => Value::Wide(state.get()),
                    None => Value::None,
                },
                _ => pure(step, cx, granted, argument),
            };
            values.push(value);
        }
        answer
    }

    fn set(&self, step: &Step, value: Value<'k>, cx: &PolicyCx<'k>) {
        let mut states = self.states.borrow_mut();
        match (states.get(step.number as usize), value) {
            (Some(State::Bool(state)), value) => state.set(value.bool(cx)),
            (Some(State::Narrow(state)), value) => state.set(value.narrow(cx)),
            (Some(State::Wide(state)), value) => state.set(value.wide(cx)),
            (None, value) => {
                // The first one, in `init`, makes it.
                let name = self.program.states[states.len()];
                states.push(match value {
                    Value::Bool(value) => State::Bool(cx.var(value).named(name)),
                    Value::Wide(value) => State::Wide(cx.var(value).named(name)),
                    _ => State::Narrow(cx.var(value.narrow(cx)).named(name)),
                });
            }
        }
    }
}

/// A step that is no more than its value, or an atomic on a shared word.
fn pure<'k>(
    step: &Step,
    cx: &PolicyCx<'k>,
    granted: Option<Val<'k, u32>>,
    argument: impl Fn(usize) -> Value<'k>,
) -> Value<'k> {
    let number = step.number;
    let bool = |at| argument(at).bool(cx);
    let narrow = |at| argument(at).narrow(cx);
    let wide = |at| argument(at).wide(cx);
    let is_wide = |at| matches!(argument(at), Value::Wide(_));
    /// The same operation in the width of the step.
    macro_rules! arithmetic {
        (|$a:ident, $b:ident| $value:expr) => {
            if step.ty == Type::U64 {
                let ($a, $b) = (wide(0), wide(1));
                Value::Wide($value)
            } else {
                let ($a, $b) = (narrow(0), narrow(1));
                Value::Narrow($value)
            }
        };
    }
    macro_rules! compare {
        (|$a:ident, $b:ident| $value:expr) => {
            if is_wide(0) {
                let ($a, $b) = (wide(0), wide(1));
                Value::Bool($value)
            } else {
                let ($a, $b) = (narrow(0), narrow(1));
                Value::Bool($value)
            }
        };
    }
    match (step.op, step.ty) {
        (Op::Const, Type::Bool) => Value::Bool(cx.c(number != 0)),
        (Op::Const, Type::U32) => Value::Narrow(cx.c(number)),
        (Op::Const, Type::U64) => Value::Wide(cx.c(u64::from(number))),
        (Op::High, _) => match narrow(0).known() {
            Some(low) => Value::Wide(cx.c(u64::from(number) << 32 | u64::from(low))),
            None => Value::Wide(wide(0) + cx.c(u64::from(number) << 32)),
        },
        (Op::Nanoseconds, _) => Value::Wide(cx.nanoseconds()),
        (Op::Sm, _) => Value::Narrow(cx.sm()),
        (Op::Worker, _) => Value::Narrow(cx.worker()),
        (Op::Workers, _) => Value::Narrow(cx.workers()),
        (Op::Tiles, _) => Value::Narrow(cx.tiles()),
        (Op::Resident, _) => Value::Narrow(cx.resident()),
        (Op::Granted, _) => Value::Narrow(granted.unwrap_or(cx.c(0))),
        (Op::Bell, _) => Value::Bool(cx.is_asked_to_yield()),
        (Op::Add, _) => arithmetic!(|a, b| a + b),
        (Op::Sub, _) => arithmetic!(|a, b| a - b),
        (Op::Mul, _) => arithmetic!(|a, b| a * b),
        (Op::Div, _) => arithmetic!(|a, b| a / b),
        (Op::Min, _) => arithmetic!(|a, b| a.min(b)),
        (Op::Max, _) => arithmetic!(|a, b| a.max(b)),
        (Op::MulHigh, _) => Value::Narrow(narrow(0).mul_high(narrow(1))),
        (Op::And, Type::Bool) => Value::Bool(bool(0) & bool(1)),
        (Op::Or, Type::Bool) => Value::Bool(bool(0) | bool(1)),
        (Op::Xor, Type::Bool) => Value::Bool((bool(0) | bool(1)) & !(bool(0) & bool(1))),
        (Op::And, _) => arithmetic!(|a, b| a & b),
        (Op::Or, _) => arithmetic!(|a, b| a | b),
        (Op::Xor, _) => arithmetic!(|a, b| a ^ b),
        (Op::Shr, Type::U64) => Value::Wide(wide(0) >> number),
        (Op::Shr, _) => Value::Narrow(narrow(0) >> number),
        (Op::Not, _) => Value::Bool(!bool(0)),
        (Op::Less, _) => compare!(|a, b| a.lt(b)),
        (Op::AtMost, _) => compare!(|a, b| a.le(b)),
        (Op::Equal, _) => compare!(|a, b| a.eq(b)),
        (Op::Select, Type::Bool) => Value::Bool(bool(0).select(bool(1), bool(2))),
        (Op::Select, Type::U32) => Value::Narrow(bool(0).select(narrow(1), narrow(2))),
        (Op::Select, Type::U64) => Value::Wide(bool(0).select(wide(1), wide(2))),
        (Op::Cast, Type::U64) => Value::Wide(wide(0)),
        (Op::Cast, _) => Value::Narrow(narrow(0)),
        (Op::WordAdd | Op::WordMax, _) => {
            let (word, value, condition) = (cx.word(number), wide(0), bool(1));
            let apply = || match step.op {
                Op::WordAdd => word.atomic_add(value),
                _ => word.atomic_max(value),
            };
            Value::Wide(match condition.known() {
                Some(true) => apply(),
                Some(false) => cx.c(0u64),
                None => cx.kernel().if_value(condition, apply, || cx.c(0u64)),
            })
        }
        (Op::Get | Op::Set | Op::Answer, _) => Value::None,
    }
}
