//! Policies that look at a clock. Nanoseconds are the GPU's `%globaltimer`,
//! which may tick as seldom as once a microsecond.

use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use heist_builder::{Bool, Val, Var};

/// Stops asking once the block has run this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBudget {
    /// How long, in nanoseconds.
    pub nanoseconds: u64,
}

impl Policy for TimeBudget {
    type State<'k> = Val<'k, u64>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Val<'k, u64> {
        cx.nanoseconds().named("budget_start")
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, start: &Val<'k, u64>) -> Bool<'k> {
        (cx.nanoseconds() - *start).lt(self.nanoseconds)
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        start: &Val<'k, u64>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        (cx.nanoseconds() - *start).lt(self.nanoseconds)
    }
    fn name(&self) -> String {
        format!("time-budget({})", Nanoseconds(self.nanoseconds))
    }
}

/// A time as the text of a policy writes it: in the largest whole unit.
pub(crate) struct Nanoseconds(pub(crate) u64);

impl std::fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ns = self.0;
        for (unit, size) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
            if ns > 0 && ns.is_multiple_of(size) {
                return write!(f, "{}{unit}", ns / size);
            }
        }
        write!(f, "{ns}ns")
    }
}

/// Requests cost a token. Each block has a bucket of `burst` tokens that fills
/// at `rate` tokens a millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Tokens a millisecond.
    pub rate: u32,
    /// The most tokens the bucket holds, and what it starts with.
    pub burst: u32,
}

/// A token in the unit in which the bucket is counted: one nanosecond at a
/// rate of one token a millisecond.
const TOKEN: u64 = 1_000_000;

impl Policy for TokenBucket {
    /// What is in the bucket, and when that was.
    type State<'k> = (Var<'k, u64>, Var<'k, u64>);
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Self::State<'k> {
        let level = cx.var(u64::from(self.burst) * TOKEN).named("bucket");
        (level, cx.var(cx.nanoseconds()).named("filled_at"))
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Self::State<'k>) -> Bool<'k> {
        let (level, filled_at) = state;
        let now = cx.nanoseconds();
        // A rate of 2^32 fills the largest bucket in a millisecond: no more
        // than that needs to be counted, and the product stays in range.
        let elapsed = (now - filled_at.get()).min(TOKEN);
        filled_at.set(now);
        let filled = elapsed * u64::from(self.rate) + level.get();
        let filled = filled.min(u64::from(self.burst) * TOKEN);
        let enough = filled.ge(TOKEN);
        level.set(filled - enough.select(TOKEN, 0u64));
        enough
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        _: &Self::State<'k>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        cx.yes()
    }
    fn name(&self) -> String {
        format!("token-bucket({}, {})", self.rate, self.burst)
    }
}

/// Asks early while tiles take about the same time, and late where they do not.
///
/// An early request hides its latency and can park a tile behind a heavy one.
/// This policy keeps a running mean of the time between its opportunities; where
/// the last tile took more than twice that, it passes up the early opportunity
/// and takes the last call. It never lets a block retire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adaptive;

/// What [`Adaptive`] remembers.
#[derive(Debug)]
pub struct Pace<'k> {
    declined: Var<'k, bool>,
    before: Var<'k, u64>,
    mean: Var<'k, u64>,
}

impl Policy for Adaptive {
    type State<'k> = Pace<'k>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Pace<'k> {
        Pace {
            declined: cx.var(false),
            before: cx.var(cx.nanoseconds()),
            mean: cx.var(0u64).named("mean_tile_ns"),
        }
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, pace: &Pace<'k>) -> Bool<'k> {
        let now = cx.nanoseconds();
        let took = now - pace.before.get();
        let (mean, last_call) = (pace.mean.get(), pace.declined.get());
        let uneven = mean.gt(0) & took.gt(mean * 2);
        // A last call is no new tile: it leaves the measure alone.
        pace.before.set(last_call.select(pace.before.get(), now));
        let moved = mean - mean / 8 + took / 8;
        let moved = mean.eq(0).select(took, moved);
        pace.mean.set(last_call.select(mean, moved));
        let ask = last_call | !uneven;
        pace.declined.set(!ask);
        ask
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        _: &Pace<'k>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        cx.yes()
    }
    fn name(&self) -> String {
        "adaptive".into()
    }
    fn may_retire(&self) -> bool {
        false
    }
}
