use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::{Bool, Var};

/// Takes each opportunity with probability `p`. Each block throws its own
/// dice, the same ones in every launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability {
    /// From 0 to 1.
    pub p: f64,
}

impl Policy for Probability {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        // Odd multipliers spread neighbours over the whole range.
        let mixed = (cx.worker() + 1) * 0x9E37_79B9u32;
        cx.var((mixed ^ (mixed >> 15)) * 0x85EB_CA6Bu32)
            .named("dice")
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, dice: &Var<'k, u32>) -> Bool<'k> {
        if let Some(answer) = self.constant() {
            return cx.c(answer);
        }
        // A linear congruential generator; its high bits are good enough dice.
        let next = dice
            .get()
            .mul_add(cx.c(1_664_525u32), cx.c(1_013_904_223u32));
        dice.set(next);
        let scrambled = next ^ (next >> 16);
        (scrambled * 0x045D_9F3Bu32).lt((self.p * 4_294_967_296.0) as u32)
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        _: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        match self.constant() {
            Some(answer) => cx.c(answer),
            None => cx.yes(),
        }
    }
    fn name(&self) -> String {
        format!("{}({})", Self::NAME, self.p)
    }
    fn constant(&self) -> Option<bool> {
        if self.p >= 1.0 {
            Some(true)
        } else if self.p > 0.0 {
            None
        } else {
            Some(false)
        }
    }
}

impl Named for Probability {
    const NAME: &'static str = "probability";
    const PARAMETERS: &'static [Parameter] = &[Parameter::part("p")];
    const SUMMARY: &'static str = "takes each opportunity with this probability";
    const EXAMPLE: &'static str = "probability(0.75)";
    fn from_values(values: &[Value]) -> Option<Probability> {
        let [Value::Part(p)] = *values else {
            return None;
        };
        Some(Probability { p })
    }
}
