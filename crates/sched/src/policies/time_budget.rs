use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Nanoseconds, Parameter, Value};
use heist_builder::{Bool, Val};

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
        format!("{}({})", Self::NAME, Nanoseconds(self.nanoseconds))
    }
}

impl Named for TimeBudget {
    const NAME: &'static str = "time-budget";
    const PARAMETERS: &'static [Parameter] = &[Parameter::time("time")];
    const SUMMARY: &'static str = "stops asking once the block has run this long";
    const EXAMPLE: &'static str = "time-budget(50us)";
    fn from_values(values: &[Value]) -> Option<TimeBudget> {
        let [Value::Time(nanoseconds)] = *values else {
            return None;
        };
        Some(TimeBudget { nanoseconds })
    }
}
