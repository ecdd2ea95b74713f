//! The policies that come with Heist.
//!
//! Each is a plain struct, and [`Policy::name`](crate::Policy::name) answers
//! the text that [`AnyPolicy`](crate::AnyPolicy) reads back.

mod chance;
mod count;
mod place;
mod time;

pub use chance::Probability;
pub use count::{Every, FairShare, Greedy, MaxSteals, Never};
pub use place::{Fraction, SmLimit};
pub(crate) use time::Nanoseconds;
pub use time::{Adaptive, TimeBudget, TokenBucket};

/// The first half of the blocks steal; the others run their own tile.
#[allow(non_upper_case_globals)]
pub const FirstHalf: Fraction = Fraction { part: 0.5 };

crate::policy_operators!(
    Greedy,
    Never,
    MaxSteals,
    Every,
    FairShare,
    Fraction,
    SmLimit,
    TimeBudget,
    TokenBucket,
    Adaptive,
    Probability,
);
