//! Policies that count.

use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use heist_builder::{Bool, Var};

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
        "greedy".into()
    }
    fn constant(&self) -> Option<bool> {
        Some(true)
    }
}

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
        "never".into()
    }
    fn constant(&self) -> Option<bool> {
        Some(false)
    }
}

/// Steals until `limit` tiles were stolen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxSteals {
    /// How many.
    pub limit: u32,
}

impl Policy for MaxSteals {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        cx.var(0u32).named("stolen")
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, stolen: &Var<'k, u32>) -> Bool<'k> {
        stolen.get().lt(self.limit)
    }
    fn keep_going_after_success<'k>(
        &self,
        _: &PolicyCx<'k>,
        stolen: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        stolen.set(*stolen + 1);
        stolen.get().lt(self.limit)
    }
    fn name(&self) -> String {
        format!("max-steals({})", self.limit)
    }
}

/// Takes the first of every `n` opportunities.
///
/// A last call is an opportunity too. So `every(2)`, which declines each second
/// one, takes the call that follows: it steals late half the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every {
    /// The period; 0 counts as 1.
    pub n: u32,
}

impl Policy for Every {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        cx.var(0u32).named("opportunity")
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, turn: &Var<'k, u32>) -> Bool<'k> {
        let now = turn.get();
        let next = now + 1;
        turn.set(next.ge(self.n).select(0u32, next));
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
        format!("every({})", self.n)
    }
    fn may_retire(&self) -> bool {
        // Two declines in a row take a period of three.
        self.n > 2
    }
}

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
        "fair-share".into()
    }
}
