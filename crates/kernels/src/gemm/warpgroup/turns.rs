//! Turns of two warpgroups: who stores, and who has the next tile.

use heist_builder::{BarrierSpec, Kernel, Mbarrier, Val, Var};

/// Two warpgroups that take tiles in turns. Each multiplies only once the other has seen all stages of its tile before: a
/// barrier has two phases, so whoever has passed over stages must not look at them before the other has.
#[derive(Clone, Copy)]
pub(super) struct PingPong<'k> {
    /// The warpgroup whose tile is next.
    pub(super) next: Var<'k, u32>,
    pub(super) turns: Turns<'k>,
}

/// Two warpgroups that store their sums in turns, the first one first. So one of them multiplies the next tile
/// while the other stores, and stays ahead of it by as much.
#[derive(Clone, Copy)]
pub(super) struct Turns<'k> {
    /// Where this warpgroup waits for its turn.
    own: Mbarrier<'k>,
    parity: Var<'k, u32>,
    /// Where the other one does.
    other: Mbarrier<'k>,
}

impl<'k> Turns<'k> {
    /// In the warpgroups numbered 1 and 2.
    pub(super) fn new(k: &Kernel<'k>, group: Val<'k, u32>) -> Turns<'k> {
        let [turns] = k.mbarriers([BarrierSpec {
            name: "turn",
            count: 2,
            arrivals: 128,
        }]);
        let first = group.eq(1u32);
        Turns {
            own: turns.at(first.select(0u32, 1u32)),
            // The phase before the first counts as ended: the first turn is there.
            parity: k.var(first.select(1u32, 0u32)).named("turn_parity"),
            other: turns.at(first.select(1u32, 0u32)),
        }
    }

    /// Waits for this warpgroup's turn, does something, and gives the turn to the other.
    pub(super) fn take(&self, work: impl FnOnce()) {
        self.wait();
        work();
        self.give();
    }

    pub(super) fn wait(&self) {
        self.own.wait(self.parity.get());
        self.parity.update(|parity| parity ^ 1);
    }

    pub(super) fn give(&self) {
        self.other.arrive();
    }
}
