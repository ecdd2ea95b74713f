use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::{Bool, Var};
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

impl Policy for Every {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        cx.var(0u32).named("opportunity")
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, turn: &Var<'k, u32>) -> Bool<'k> {
        let now = turn.get();
        let next = now + 1;
        turn.set(next.ge(self.n.get()).select(0u32, next));
        now.eq(0)
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        _: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        cx.yes()
    }
    fn name(&self) -> String {
        format!("{}({})", Self::NAME, self.n)
    }
    fn may_retire(&self) -> bool {
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
