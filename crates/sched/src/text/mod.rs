//! Policies as text: `max-steals(8) & first-half`.
//!
//! `!` binds tightest, then `&`, then `|`; parentheses group. Numbers are
//! counts, parts of one, or times with a unit (`ns`, `us`, `ms`, `s`). What
//! names there are is a [`Catalogue`]; a program adds its own policies to it.

mod catalogue;
mod parser;

pub use catalogue::{Catalogue, Entry, Named, Parameter, ParameterKind, PolicyError};

use crate::erased::AnyPolicy;
use std::fmt;
use std::str::FromStr;

/// A policy as it was written, all names and numbers checked.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyExpr {
    /// A policy by name.
    Call {
        /// Its name in the catalogue.
        name: String,
        /// Its arguments.
        args: Vec<Value>,
    },
    /// `!a`.
    Not(Box<PolicyExpr>),
    /// `a & b`.
    And(Box<PolicyExpr>, Box<PolicyExpr>),
    /// `a | b`.
    Or(Box<PolicyExpr>, Box<PolicyExpr>),
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

/// What is wrong with the text of a policy, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n  {text}\n  {mark}")]
pub struct PolicyTextError {
    /// What was found and what was expected, with the closest name where a name
    /// is unknown.
    pub message: String,
    /// The whole text.
    pub text: String,
    /// Where it went wrong, in characters from the start.
    pub position: usize,
    /// A caret under that place.
    pub mark: String,
}

impl PolicyTextError {
    /// A caret under `position`, in characters from the start.
    fn new(text: &str, position: usize, message: String) -> PolicyTextError {
        // Tabs and line breaks would move the caret.
        let text = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        PolicyTextError {
            message,
            text,
            position,
            mark: format!("{}^", " ".repeat(position)),
        }
    }
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

impl PolicyExpr {
    /// How tightly it binds.
    fn strength(&self) -> u8 {
        match self {
            PolicyExpr::Or(..) => 0,
            PolicyExpr::And(..) => 1,
            PolicyExpr::Not(_) => 2,
            PolicyExpr::Call { .. } => 3,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, at_least: u8) -> fmt::Result {
        if self.strength() < at_least {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        match self {
            PolicyExpr::Call { name, args } => {
                f.write_str(name)?;
                for (index, arg) in args.iter().enumerate() {
                    f.write_str(if index == 0 { "(" } else { ", " })?;
                    write!(f, "{arg}")?;
                }
                f.write_str(if args.is_empty() { "" } else { ")" })
            }
            PolicyExpr::Not(inner) => {
                f.write_str("!")?;
                inner.write(f, 2)
            }
            // To the left, so the right side needs parentheses at the same level.
            PolicyExpr::And(left, right) => {
                left.write(f, 1)?;
                f.write_str(" & ")?;
                right.write(f, 2)
            }
            PolicyExpr::Or(left, right) => {
                left.write(f, 0)?;
                f.write_str(" | ")?;
                right.write(f, 1)
            }
        }
    }
}

impl fmt::Display for PolicyExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl FromStr for AnyPolicy {
    type Err = PolicyTextError;

    /// Reads a policy of the standard [`Catalogue`].
    fn from_str(text: &str) -> Result<AnyPolicy, PolicyTextError> {
        Catalogue::standard().policy(text)
    }
}
