use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Parameter, Value};
use heist_builder::{Bool, Var};

/// At most `blocks` blocks of the launch steal at a time; the others run their own
/// tile and retire. Whoever leaves makes a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMost {
    /// How many.
    pub blocks: u32,
}

impl Policy for AtMost {
    /// Whether this block has one of the places.
    type State<'k> = Var<'k, bool>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, bool> {
        cx.var(false).named("has_place")
    }
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, place: &Var<'k, bool>) -> Bool<'k> {
        let (k, taken) = (cx.kernel(), cx.word(0));
        k.if_(!place.get(), || {
            let before = taken.atomic_add(1u64);
            place.set(before.lt(u64::from(self.blocks)));
            k.if_(!place.get(), || {
                taken.atomic_add(u64::MAX);
            });
        });
        place.get()
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        _: &Var<'k, bool>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        cx.yes()
    }
    fn leave<'k>(&self, cx: &PolicyCx<'k>, place: &Var<'k, bool>) {
        cx.kernel().if_(place.get(), || {
            cx.word(0).atomic_add(u64::MAX);
        });
    }
    fn shared_words(&self) -> u32 {
        1
    }
    fn name(&self) -> String {
        format!("{}({})", Self::NAME, self.blocks)
    }
}

impl Named for AtMost {
    const NAME: &'static str = "at-most";
    const PARAMETERS: &'static [Parameter] = &[Parameter::count("n")];
    const SUMMARY: &'static str = "at most n blocks of the launch ask at a time";
    const EXAMPLE: &'static str = "at-most(64)";
    fn from_values(values: &[Value]) -> Option<AtMost> {
        let [Value::Count(blocks)] = *values else {
            return None;
        };
        Some(AtMost { blocks })
    }
}
