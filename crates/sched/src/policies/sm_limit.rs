use crate::program::{Num, PortablePolicy, Writer};
use crate::text::{Named, Parameter, Value};

/// Blocks on the first `sms` multiprocessors steal. On the others every block
/// ends with its own tile, which leaves gaps in which a kernel that runs beside
/// this one gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimit {
    /// How many multiprocessors.
    pub sms: u32,
}

impl PortablePolicy for SmLimit {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        w.sm().lt(self.sms)
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.sm().lt(self.sms)
    }
    fn label(&self) -> String {
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
