//! Policies as text: `max-steals(8) & first-half`.
//!
//! `!` binds tightest, then `&`, then `|`; parentheses group. Numbers are
//! counts, parts of one, or times with a unit (`ns`, `us`, `ms`, `s`). What
//! names there are is a [`Catalogue`]; a program adds its own policies to it.
//!
//! ```
//! use heist_sched::{Policy, text::Catalogue};
//! let names = Catalogue::standard();
//! let policy = names.policy("( max-steals( 8 ) )&first-half|never").unwrap();
//! assert_eq!(policy.name(), "max-steals(8) & first-half | never");
//!
//! let error = names.policy("max-steels(8)").unwrap_err();
//! assert!(error.to_string().contains("max-steals"), "{error}");
//! ```

mod catalogue;
mod error;
mod expression;
mod named;
mod parser;
mod value;

pub use catalogue::Catalogue;
pub use error::{PolicyError, PolicyTextError};
pub use expression::PolicyExpr;
pub use named::{Entry, Named};
pub(crate) use value::Nanoseconds;
pub use value::{Parameter, ParameterKind, Value};
