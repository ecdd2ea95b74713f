use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Parameter, Value};
use std::num::NonZeroU32;

/// Takes the first of every `n` opportunities.
///
/// A last call is an opportunity too. So `every(2)`, which declines each second
/// one, takes the call that follows: it steals late half the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// The period.
    pub n: NonZeroU32,
}

impl PortablePolicy for Every {
    type State<'w> = Slot<'w, u32>;
    fn init<'w>(&self, w: &'w Writer) -> Slot<'w, u32> {
        w.var("opportunity", 0u32)
    }
    fn should_try_steal<'w>(&self, _: &'w Writer, turn: &Slot<'w, u32>) -> Num<'w, bool> {
        let now = turn.get();
        let next = now + 1u32;
        turn.set(next.ge(self.n.get()).select(0u32, next));
        now.eq(0u32)
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        _: &Slot<'w, u32>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.yes()
    }
    fn label(&self) -> String {
        format!("{}({})", Self::NAME, self.n)
    }
    fn retires(&self) -> bool {
        // Two declines in a row take a period of three.
        self.n.get() > 2
    }
}

impl Named for Every {
    const NAME: &'static str = "every";
    const PARAMETERS: &'static [Parameter] = &[Parameter::positive("n")];
    const SUMMARY: &'static str =
        "takes the first of every n opportunities; a last call is one too";
    const EXAMPLE: &'static str = "every(2)";
    fn from_values(values: &[Value]) -> Option<Every> {
        let [Value::Count(n)] = *values else {
            return None;
        };
        NonZeroU32::new(n).map(|n| Every { n })
    }
}
