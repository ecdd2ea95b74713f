use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Value};
use heist_builder::Bool;

/// Never asks: every block runs its own tile and retires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Never;

impl Policy for Never {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        cx.no()
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.no()
    }
    fn name(&self) -> String {
        Self::NAME.into()
    }
    fn constant(&self) -> Option<bool> {
        Some(false)
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
