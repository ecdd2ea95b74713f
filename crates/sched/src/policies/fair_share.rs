use crate::program::{Num, PortablePolicy, Slot, Writer};
use crate::text::{Named, Value};

/// Stops at an equal share: all tiles over all blocks that run at a time,
/// rounded up, its own tile included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FairShare;

impl PortablePolicy for FairShare {
    type State<'w> = Slot<'w, u32>;
    fn init<'w>(&self, w: &'w Writer) -> Slot<'w, u32> {
        let (tiles, resident) = (w.tiles(), w.resident());
        let share = (tiles + resident - 1u32) / resident;
        // What is left of the share, the tile that it starts with taken off.
        w.var("share_left", share.max(1u32) - 1u32)
    }
    fn should_try_steal<'w>(&self, _: &'w Writer, left: &Slot<'w, u32>) -> Num<'w, bool> {
        left.get().gt(0u32)
    }
    fn keep_going_after_success<'w>(
        &self,
        _: &'w Writer,
        left: &Slot<'w, u32>,
        _: Num<'w, u32>,
    ) -> Num<'w, bool> {
        left.set(left.get() - 1u32);
        left.get().gt(0u32)
    }
    fn label(&self) -> String {
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
