use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::Bool;

/// Blocks on the first `sms` multiprocessors steal. On the others every block
/// ends with its own tile, which leaves gaps in which a kernel that runs beside
/// this one gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimit {
    /// How many multiprocessors.
    pub sms: u32,
}

impl Policy for SmLimit {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        cx.sm().lt(self.sms)
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.sm().lt(self.sms)
    }
    fn name(&self) -> String {
        format!("{}({})", Self::NAME, self.sms)
    }
}

impl Named for SmLimit {
    const NAME: &'static str = "sm-limit";
    const PARAMETERS: &'static [Parameter] = &[Parameter::count("n")];
    const SUMMARY: &'static str =
        "only blocks on the first n multiprocessors ask, which leaves room on the others";
    const EXAMPLE: &'static str = "sm-limit(100)";
    fn from_values(values: &[Value]) -> Option<SmLimit> {
        let [Value::Count(sms)] = *values else {
            return None;
        };
        Some(SmLimit { sms })
    }
}
