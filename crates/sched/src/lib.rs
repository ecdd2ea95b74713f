//! Tiles that are scheduled while the kernel runs.
//!
//! You write the body of one tile and pick a [`Policy`]; the tile loop owns
//! everything else.

mod context;
mod erased;
mod policies;
mod policy;
pub mod text;

pub use context::PolicyCx;
pub use erased::{AnyPolicy, Held};
pub use policies::{
    Adaptive, Every, FairShare, FirstHalf, Fraction, Greedy, MaxSteals, Never, Probability,
    SmLimit, TimeBudget, TokenBucket,
};
pub use policy::{And, Inverse, Or, Policy, TileId};
pub use text::{Catalogue, PolicyExpr, PolicyTextError};
