use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use crate::text::{Named, Value};
use heist_builder::{Bool, Var};

/// Stops at an equal share: all tiles over all blocks that run at a time,
/// rounded up, its own tile included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare;

impl Policy for FairShare {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        let (tiles, resident) = (cx.tiles(), cx.resident());
        let share = (tiles + resident - 1) / resident;
        // What is left of the share, the tile that it starts with taken off.
        cx.var(share.max(1u32) - 1).named("share_left")
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, left: &Var<'k, u32>) -> Bool<'k> {
        left.get().gt(0)
    }
    fn keep_going_after_success<'k>(
        &self,
        _: &PolicyCx<'k>,
        left: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        left.set(left.get() - 1);
        left.get().gt(0)
    }
    fn name(&self) -> String {
        Self::NAME.into()
    }
}

impl Named for FairShare {
    const NAME: &'static str = "fair-share";
    const SUMMARY: &'static str = "stops at an equal share of the tiles";
    const EXAMPLE: &'static str = "fair-share";
    fn from_values(values: &[Value]) -> Option<FairShare> {
        values.is_empty().then_some(FairShare)
    }
}
