//! What the 32 lanes of a warp do together.
//!
//! Every function here must be reached by all lanes of the warp at once: the
//! mask is always the whole warp. In a branch that only some lanes take, it is
//! an error that the simulator reports.

use crate::emit::Opnd;
use crate::kernel::{Kernel, number};
use crate::scalar::{Class, Number, Ordered, Word};
use crate::value::{Bool, IntoVal, Val};
use heist_ptx::arch::Feature;
use heist_ptx::{Constant, Integer as Literal};
use std::panic::Location;

/// Which lanes exchange values: groups of neighbours of this many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The whole warp.
    Warp = 32,
    /// 16 neighbours.
    Sixteen = 16,
    /// 8 neighbours.
    Eight = 8,
    /// 4 neighbours: the lanes that hold one row of an mma fragment.
    Four = 4,
    /// 2 neighbours.
    Two = 2,
}

fn full_mask() -> Opnd {
    Opnd::Const(Constant::Int(Literal::decimal(-1)))
}

impl<'k, T: Word> Val<'k, T> {
    #[track_caller]
    fn shuffle(self, mode: &str, by: Val<'k, u32>, clamp: i64) -> Val<'k, T> {
        let word = self.k.as_word(self);
        let moved = self.k.emit::<u32>(
            format!("shfl.sync.{mode}.b32"),
            vec![
                word.register().into(),
                by.operand(),
                number(clamp),
                full_mask(),
            ],
        );
        moved.bitcast()
    }

    /// The value of lane `lane`.
    #[track_caller]
    pub fn shuffle_from(self, lane: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let lane = lane.into_val(&self.k);
        self.shuffle("idx", lane, 31)
    }

    /// The value of the lane whose number differs in the bits of `mask`.
    #[track_caller]
    pub fn shuffle_xor(self, mask: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let mask = mask.into_val(&self.k);
        self.shuffle("bfly", mask, 31)
    }

    /// The value of the lane `by` further up; the last `by` lanes keep theirs.
    #[track_caller]
    pub fn shuffle_down(self, by: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let by = by.into_val(&self.k);
        self.shuffle("down", by, 31)
    }

    /// The value of the lane `by` further down; the first `by` lanes keep
    /// theirs.
    #[track_caller]
    pub fn shuffle_up(self, by: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let by = by.into_val(&self.k);
        self.shuffle("up", by, 0)
    }
}

/// The value that lane 0 has, in every lane.
#[track_caller]
pub(crate) fn broadcast_first<T: Word>(value: Val<'_, T>) -> Val<'_, T> {
    value.shuffle_from(0)
}

impl<'k, T: Word> Val<'k, T> {
    /// Combines the values of a group of lanes; every lane gets the result.
    #[track_caller]
    pub fn combine(
        self,
        group: Group,
        combine: impl Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>,
    ) -> Val<'k, T> {
        let mut sum = self;
        let mut step = group as u32 / 2;
        while step > 0 {
            sum = combine(sum, sum.shuffle_xor(step));
            step /= 2;
        }
        sum
    }
}

impl<'k, T: Word + Number> Val<'k, T> {
    /// The sum over a group of lanes, in every lane. Whole warps of 32-bit
    /// whole numbers take one instruction.
    #[track_caller]
    pub fn sum(self, group: Group) -> Val<'k, T> {
        if group == Group::Warp && T::KIND.integer() {
            return self.redux("add");
        }
        self.combine(group, |a, b| a + b)
    }

    #[track_caller]
    fn redux(self, op: &str) -> Val<'k, T> {
        self.k.require(Feature::Redux);
        self.emit(
            format!("redux.sync.{op}.{}", T::KIND.suffix()),
            vec![self.register().into(), full_mask()],
        )
    }
}

impl<'k, T: Word + Ordered + Number> Val<'k, T> {
    /// The largest over a group of lanes, in every lane.
    #[track_caller]
    pub fn group_max(self, group: Group) -> Val<'k, T> {
        if group == Group::Warp && T::KIND.integer() {
            return self.redux("max");
        }
        self.combine(group, |a, b| a.max(b))
    }

    /// The smallest over a group of lanes, in every lane.
    #[track_caller]
    pub fn group_min(self, group: Group) -> Val<'k, T> {
        if group == Group::Warp && T::KIND.integer() {
            return self.redux("min");
        }
        self.combine(group, |a, b| a.min(b))
    }
}

impl<'k> Bool<'k> {
    /// Whether it holds in every lane of the warp.
    #[track_caller]
    pub fn all(self) -> Bool<'k> {
        self.vote("all")
    }

    /// Whether it holds in some lane of the warp.
    #[track_caller]
    pub fn any(self) -> Bool<'k> {
        self.vote("any")
    }

    #[track_caller]
    fn vote(self, mode: &str) -> Bool<'k> {
        if self.known().is_some() {
            return self;
        }
        self.emit(
            format!("vote.sync.{mode}.pred"),
            vec![self.register().into(), full_mask()],
        )
    }

    /// One bit per lane of the warp in which it holds.
    #[track_caller]
    pub fn ballot(self) -> Val<'k, u32> {
        self.k.emit::<u32>(
            "vote.sync.ballot.b32",
            vec![self.register().into(), full_mask()],
        )
    }
}

impl<'k> Kernel<'k> {
    /// The number of this thread's warp in its block. A shuffle makes it uniform over the warp, so
    /// that the assembler can see that.
    #[track_caller]
    pub fn warp_uniform(&self) -> Val<'k, u32> {
        let warp = self.warp();
        broadcast_first(warp)
    }

    /// Waits for all lanes of the warp, and orders their memory accesses.
    #[track_caller]
    pub fn sync_warp(&self) {
        self.effect("bar.warp.sync", vec![full_mask()]);
    }

    /// Holds in exactly one lane of the warp: `elect.sync` where there is one,
    /// lane 0 elsewhere.
    #[track_caller]
    pub fn elect(&self) -> Bool<'k> {
        if !self.has(Feature::Elect) {
            return self.lane().eq(0);
        }
        self.require(Feature::Elect);
        let chosen = self.rec.reg(Class::Pred);
        let pair = Opnd::Pair(Box::new((Opnd::Sink, chosen.into())));
        self.rec
            .op("elect.sync", vec![pair, full_mask()], Location::caller());
        Bool::from_reg(*self, chosen)
    }

    /// Runs `body` in thread 0 of the block.
    #[track_caller]
    pub fn one_thread(&self, body: impl Fn()) {
        self.if_(self.thread_index().eq(0), body);
    }
}

impl<'k> Val<'k, f32> {
    /// The sum over the block, in every thread: shuffles, one word of shared
    /// memory per warp, two barriers. All threads of the block take part.
    #[track_caller]
    pub fn block_sum(self) -> Val<'k, f32> {
        block_reduce(self, 0.0, |a, b| a + b)
    }

    /// The largest over the block, in every thread.
    #[track_caller]
    pub fn block_max(self) -> Val<'k, f32> {
        block_reduce(self, f32::NEG_INFINITY, |a, b| a.max(b))
    }
}

impl<'k> Val<'k, u32> {
    /// The sum over the block, in every thread.
    #[track_caller]
    pub fn block_sum(self) -> Val<'k, u32> {
        block_reduce(self, 0, |a, b| a + b)
    }
}

/// Reduces over a block whose threads all take part.
#[track_caller]
pub fn block_reduce<'k, T: Word + Number>(
    value: Val<'k, T>,
    neutral: T,
    combine: impl Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, T>,
) -> Val<'k, T> {
    let k = value.kernel();
    k.must_divide(
        "the number of threads of a block that reduces",
        k.threads().into(),
        32,
    );
    let in_warp = value.combine(Group::Warp, &combine);
    let warps = k.warps();
    if warps == 1 {
        return in_warp;
    }
    let partials = k.shared::<T>("partials", warps);
    let (warp, lane) = (k.warp(), k.lane());
    k.if_(lane.eq(0), || partials.at(warp).store(in_warp));
    k.sync();
    let mine = k.if_value(lane.lt(warps), || partials.at(lane).load(), || k.c(neutral));
    let result = mine.combine(Group::Warp, &combine);
    k.sync();
    result
}
