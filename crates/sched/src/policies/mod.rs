//! The policies that come with Heist, one in a file: what it does, its name, its
//! parameters and its help. A new one is a file, its `mod` line, and a line in
//! the list below; [`Policy::name`](crate::Policy::name) answers the text that
//! [`AnyPolicy`](crate::AnyPolicy) reads back.

mod at_most;
mod every;
mod fair_share;
mod fraction;
mod greedy;
mod max_steals;
mod never;
mod probability;
mod shared_bucket;
mod sm_limit;
mod time_budget;
mod token_bucket;
mod until_asked;

/// Registers policies: exports them, gives them `&`, `|` and `!`, and lets text
/// name them, in this order.
macro_rules! shipped {
    ($($file:ident::$policy:ident),+ $(,)?) => {
        $(pub use $file::$policy;)+
        crate::policy_operators!($($policy),+);
        /// What text can name.
        pub(crate) const SHIPPED: &[crate::text::Entry] =
            &[$(crate::text::Entry::of::<$policy>()),+];
    };
}

shipped! {
    greedy::Greedy,
    never::Never,
    max_steals::MaxSteals,
    every::Every,
    time_budget::TimeBudget,
    fraction::FirstHalf,
    fraction::Fraction,
    fair_share::FairShare,
    token_bucket::TokenBucket,
    probability::Probability,
    sm_limit::SmLimit,
    at_most::AtMost,
    shared_bucket::SharedBucket,
    until_asked::UntilAsked,
}
