//! A policy as it is written.

use super::value::Value;
use std::fmt;

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
