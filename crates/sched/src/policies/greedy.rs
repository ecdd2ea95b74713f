use crate::program::{Num, PortablePolicy, Writer};
use crate::text::{Named, Value};

/// Always asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl PortablePolicy for Greedy {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        w.yes()
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.yes()
    }
    fn label(&self) -> String {
        Self::NAME.into()
    }
}

impl Named for Greedy {
    const NAME: &'static str = "greedy";
    const SUMMARY: &'static str = "always asks; costs nothing";
    const EXAMPLE: &'static str = "greedy";
    fn from_values(values: &[Value]) -> Option<Greedy> {
        values.is_empty().then_some(Greedy)
    }
}
