//! What goes into a policy's parentheses: parameters, and values for them.

use std::fmt;

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// A whole number.
    Count,
    /// A whole number that is not zero.
    Positive,
    /// A number from 0 to 1.
    Part,
    /// A time with a unit.
    Time,
}

impl ParameterKind {
    pub(super) fn expectation(self) -> &'static str {
        match self {
            ParameterKind::Count => "a whole number",
            ParameterKind::Positive => "a whole number from 1 on",
            ParameterKind::Part => "a number from 0 to 1",
            ParameterKind::Time => "a time such as `20us`",
        }
    }
}

/// A parameter of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// What it is called in help texts.
    pub name: &'static str,
    /// What it is.
    pub kind: ParameterKind,
}

impl Parameter {
    const fn new(name: &'static str, kind: ParameterKind) -> Parameter {
        Parameter { name, kind }
    }

    /// A whole number.
    pub const fn count(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Count)
    }

    /// A whole number that is not zero.
    pub const fn positive(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Positive)
    }

    /// A number from 0 to 1.
    pub const fn part(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Part)
    }

    /// A time.
    pub const fn time(name: &'static str) -> Parameter {
        Parameter::new(name, ParameterKind::Time)
    }
}

/// An argument of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// How many.
    Count(u32),
    /// A part of one, from 0 to 1.
    Part(f64),
    /// Nanoseconds.
    Time(u64),
}

/// A time as the text of a policy writes it: in the largest whole unit.
pub(crate) struct Nanoseconds(pub(crate) u64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        for (unit, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
            if ns > 0 && ns.is_multiple_of(size) {
                return write!(f, "{}{unit}", ns / size);
            }
        }
        write!(f, "{ns}ns")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Count(n) => write!(f, "{n}"),
            Value::Part(p) => write!(f, "{p}"),
            Value::Time(ns) => write!(f, "{}", Nanoseconds(*ns)),
        }
    }
}
