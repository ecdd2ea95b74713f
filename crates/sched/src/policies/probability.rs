use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Parameter, Value};

/// Takes each opportunity with probability `p`. Each block has its own random sequence, the same in
/// every launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probability {
    /// From 0 to 1.
    pub p: f64,
}

impl Probability {
    /// The answer that it gives every time, if it is the same.
    fn always(&self) -> Option<bool> {
        if self.p >= 1.0 {
            Some(true)
        } else if self.p > 0.0 {
            None
        } else {
            Some(false)
        }
    }
}

impl PortablePolicy for Probability {
    /// The state of the random generator, where one is needed.
    type State<'w> = Option<Slot<'w, u32>>;
    fn init<'w>(&self, w: &'w Writer) -> Option<Slot<'w, u32>> {
        if self.always().is_some() {
            return None;
        }
        // Odd multipliers spread neighbours over the whole range.
        let mixed = (w.worker() + 1u32) * 0x9E37_79B9u32;
        Some(w.var("dice", (mixed ^ (mixed >> 15)) * 0x85EB_CA6Bu32))
    }
    fn should_try_steal<'w>(&self, w: &'w Writer, dice: &Option<Slot<'w, u32>>) -> Num<'w, bool> {
        let Some(dice) = dice else {
            return w.c(self.always() == Some(true));
        };
        // A linear congruential generator; its high bits are random enough.
        let next = dice.get() * 1_664_525u32 + 1_013_904_223u32;
        dice.set(next);
        let scrambled = next ^ (next >> 16);
        (scrambled * 0x045D_9F3Bu32).lt((self.p * 4_294_967_296.0) as u32)
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        _: &Option<Slot<'w, u32>>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.c(self.always().unwrap_or(true))
    }
    fn label(&self) -> String {
        format!("{}({})", Self::NAME, self.p)
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
