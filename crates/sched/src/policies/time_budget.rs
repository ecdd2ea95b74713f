use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Nanoseconds, Parameter, Value};

/// Stops asking once the block has run this long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBudget {
    /// How long, in nanoseconds.
    pub nanoseconds: u64,
}

impl PortablePolicy for TimeBudget {
    type State<'w> = Slot<'w, u64>;
    fn init<'w>(&self, w: &'w Writer) -> Slot<'w, u64> {
        w.var("budget_start", w.nanoseconds())
    }
    fn should_try_steal<'w>(&self, w: &'w Writer, start: &Slot<'w, u64>) -> Num<'w, bool> {
        (w.nanoseconds() - start.get()).lt(self.nanoseconds)
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        start: &Slot<'w, u64>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        (w.nanoseconds() - start.get()).lt(self.nanoseconds)
    }
    fn label(&self) -> String {
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
