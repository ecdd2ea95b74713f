use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Parameter, Value};

/// Steals until `limit` tiles were stolen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxSteals {
    /// How many.
    pub limit: u32,
}

impl PortablePolicy for MaxSteals {
    type State<'w> = Slot<'w, u32>;
    fn init<'w>(&self, w: &'w Writer) -> Slot<'w, u32> {
        w.var("stolen", 0u32)
    }
    fn should_try_steal<'w>(&self, _: &'w Writer, stolen: &Slot<'w, u32>) -> Num<'w, bool> {
        stolen.get().lt(self.limit)
    }
    fn keep_going_after_success<'w>(
        &self,
        _: &'w Writer,
        stolen: &Slot<'w, u32>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        stolen.set(stolen.get() + 1u32);
        stolen.get().lt(self.limit)
    }
    fn label(&self) -> String {
        format!("{}({})", Self::NAME, self.limit)
    }
}

impl Named for MaxSteals {
    const NAME: &'static str = "max-steals";
    const PARAMETERS: &'static [Parameter] = &[Parameter::count("n")];
    const SUMMARY: &'static str = "stops after n stolen tiles";
    const EXAMPLE: &'static str = "max-steals(8)";
    fn from_values(values: &[Value]) -> Option<MaxSteals> {
        let [Value::Count(limit)] = *values else {
            return None;
        };
        Some(MaxSteals { limit })
    }
}
