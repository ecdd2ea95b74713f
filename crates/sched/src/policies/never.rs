use crate::program::{Num, PortablePolicy, Writer};
use crate::text::{Named, Value};

/// Never asks: every block runs its own tile and retires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Never;

impl PortablePolicy for Never {
    type State<'w> = ();
    fn init(&self, _: &Writer) {}
    fn should_try_steal<'w>(&self, w: &'w Writer, (): &()) -> Num<'w, bool> {
        w.no()
    }
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        (): &(),
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        w.no()
    }
    fn label(&self) -> String {
        Self::NAME.into()
    }
}

impl Named for Never {
    const NAME: &'static str = "never";
    const SUMMARY: &'static str = "never asks: each block runs its own tile and retires";
    const EXAMPLE: &'static str = "never";
    fn from_values(values: &[Value]) -> Option<Never> {
        values.is_empty().then_some(Never)
    }
}
