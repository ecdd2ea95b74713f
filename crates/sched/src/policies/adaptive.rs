use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Value};
use heist_builder::{Bool, Var};

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
        Self::NAME.into()
    }
    fn may_retire(&self) -> bool {
        false
    }
}

impl Named for Adaptive {
    const NAME: &'static str = "adaptive";
    const SUMMARY: &'static str =
        "asks early while tiles are alike, late where one took more than twice the mean";
    const EXAMPLE: &'static str = "adaptive";
    fn from_values(values: &[Value]) -> Option<Adaptive> {
        values.is_empty().then_some(Adaptive)
    }
}
