//! Policies that do their worst: they always decline, always stop, flip at
//! random, and lie about it. Also used by the runs on a real GPU.

use heist_builder::{Bool, Var};
use heist_sched::{AnyPolicy, Policy, PolicyCx, TileId};

/// All of them.
pub(crate) fn all() -> [AnyPolicy; 4] {
    [
        AnyPolicy::new(Coin).called("coin"),
        AnyPolicy::new(AlwaysDecline).called("always-decline"),
        AnyPolicy::new(AlwaysStop).called("always-stop"),
        AnyPolicy::new(Liar).called("liar"),
    ]
}

/// Flips a coin at each call, also after a success.
pub(crate) struct Coin;

impl Policy for Coin {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        cx.var(cx.worker() * 2_654_435_761u32 + 12_345)
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, coin: &Var<'k, u32>) -> Bool<'k> {
        coin.set(coin.get() * 1_664_525u32 + 1_013_904_223);
        (coin.get() >> 31).eq(0)
    }
    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        coin: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        self.should_try_steal(cx, coin)
    }
}

/// Says no, and is not known to say no while the kernel is built.
pub(crate) struct AlwaysDecline;

impl Policy for AlwaysDecline {
    type State<'k> = Var<'k, u32>;
    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Var<'k, u32> {
        cx.var(0u32)
    }
    fn should_try_steal<'k>(&self, _: &PolicyCx<'k>, zero: &Var<'k, u32>) -> Bool<'k> {
        zero.get().ne(0)
    }
    fn keep_going_after_success<'k>(
        &self,
        _: &PolicyCx<'k>,
        zero: &Var<'k, u32>,
        _: TileId<'k>,
    ) -> Bool<'k> {
        zero.get().eq(0)
    }
}

/// Asks, and stops after every grant.
pub(crate) struct AlwaysStop;

impl Policy for AlwaysStop {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        cx.yes()
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.no()
    }
}

/// Says that it never retires a block, and always does.
pub(crate) struct Liar;

impl Policy for Liar {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        cx.no()
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.no()
    }
    fn may_retire(&self) -> bool {
        false
    }
}
