use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Value};
use heist_builder::Bool;

/// Always asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Greedy;

impl Policy for Greedy {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        cx.yes()
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.yes()
    }
    fn name(&self) -> String {
        Self::NAME.into()
    }
    fn constant(&self) -> Option<bool> {
        Some(true)
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
