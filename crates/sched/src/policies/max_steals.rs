use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::{Bool, Var};

/// Steals until `limit` tiles were stolen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxSteals {
    /// How many.
    pub limit: u32,
}

impl Policy for MaxSteals {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        cx.var(0u32).named("stolen")
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, stolen: &Var<'k, u32>) -> Bool<'k> {
        stolen.get().lt(self.limit)
    }
    fn keep_going_after_success<'k>(
        &self,
        _: &PolicyCx<'k>,
        stolen: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        stolen.set(*stolen + 1);
        stolen.get().lt(self.limit)
    }
    fn name(&self) -> String {
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
