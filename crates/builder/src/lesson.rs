//! Compiler messages for steps taken out of order.
//!
//! A method that a state does not have would be reported as "not found", which
//! helps nobody. So a few methods exist on the wrong states too, hidden, and
//! ask for a trait that nothing implements; its message is the lesson.

use crate::bulk::Landing;
use crate::clc::{InFlight, Refused, StealFlow};
use crate::cp_async::{PendingCopy, StageSpec};
use crate::fill::{FillArray, FillTile};
use crate::mbarrier::RemoteMbarrier;
use crate::tcgen05::AccumulatorWriter;
use crate::tensor_memory::{Accumulators, LoadingSums};
use crate::wgmma::WgmmaSums;

macro_rules! lessons {
    ($($trait:ident: $message:literal, $note:literal;)*) => {$(
        #[doc(hidden)]
        #[diagnostic::on_unimplemented(message = $message, label = "out of order", note = $note)]
        pub trait $trait {}
    )*};
}

lessons! {
    Answered:
        "a request in flight can't be looked into",
        "its response arrives by itself, some time later: call `.wait()` first, which gives the answer";
    MayAskAgain:
        "after a refusal nobody may ask again",
        "a refusal means: finish what you have and leave; hardware leaves a request after an observed refusal undefined";
    HasCoordinates:
        "a refusal has no coordinates",
        "only the granted side of `decide` (or `granted_or_break`) knows a block; decoding a refusal is undefined";
    IsFilled:
        "a stage can't be read while it is filled",
        "the copies are on their way: read it in the consuming closure, which runs after the wait and the barrier";
    IsWaitedFor:
        "these copies have not been waited for",
        "`.wait()` waits for them and gives the memory they fill";
    IsFinished:
        "the tensor cores may still be working on these sums",
        "`.finish()` waits for them and gives sums that can be read";
    IsCommitted:
        "products are not read where they are multiplied",
        "`.reader()` of the accumulators waits for their commit, and `.read(..)` gives sums that can be loaded";
    IsAProduct:
        "multiplications belong to a product",
        "the multiplying thread begins one with `.product(thread, |product| ..)`, whose commit tells the readers";
    IsLoaded:
        "these sums are on their way from tensor memory",
        "`.wait()` waits for them and gives values";
    IsLocal:
        "a barrier in another block's shared memory can't be waited for",
        "arrive there with `.arrive()`; waiting is for the block that has the barrier, on its own `Mbarrier`";
}

impl<'k> InFlight<'k> {
    #[doc(hidden)]
    pub fn decide<G, R>(self, _: G, _: R)
    where
        Self: Answered,
    {
    }
    #[doc(hidden)]
    pub fn granted_or_break(self, _: StealFlow<'k>)
    where
        Self: Answered,
    {
    }
}

impl Refused<'_> {
    #[doc(hidden)]
    pub fn submit(self)
    where
        Self: MayAskAgain,
    {
    }
    #[doc(hidden)]
    pub fn release(self)
    where
        Self: MayAskAgain,
    {
    }
    #[doc(hidden)]
    pub fn first_block(&self)
    where
        Self: HasCoordinates,
    {
    }
}

impl<T> FillArray<'_, T> {
    #[doc(hidden)]
    pub fn at<I>(&self, _: I)
    where
        Self: IsFilled,
    {
    }
}

impl<T> FillTile<'_, T> {
    #[doc(hidden)]
    pub fn at<R, C>(&self, _: R, _: C)
    where
        Self: IsFilled,
    {
    }
    #[doc(hidden)]
    pub fn a_rows<R>(&self, _: R)
    where
        Self: IsFilled,
    {
    }
    #[doc(hidden)]
    pub fn b_rows<R>(&self, _: R)
    where
        Self: IsFilled,
    {
    }
}

impl<T> Landing<'_, T> {
    #[doc(hidden)]
    pub fn at<I>(&self, _: I)
    where
        Self: IsFilled,
    {
    }
}

impl<S: StageSpec> PendingCopy<'_, S> {
    #[doc(hidden)]
    pub fn at<I>(&self, _: I)
    where
        Self: IsWaitedFor,
    {
    }
}

impl WgmmaSums<'_> {
    #[doc(hidden)]
    pub fn block(&self, _: usize)
    where
        Self: IsFinished,
    {
    }
    #[doc(hidden)]
    pub fn each_pair<F>(&self, _: F)
    where
        Self: IsFinished,
    {
    }
}

impl RemoteMbarrier<'_> {
    #[doc(hidden)]
    pub fn wait<P>(&self, _: P)
    where
        Self: IsLocal,
    {
    }
}

impl AccumulatorWriter<'_, '_> {
    #[doc(hidden)]
    pub fn read<F>(&self, _: F)
    where
        Self: IsCommitted,
    {
    }
    #[doc(hidden)]
    pub fn load<C>(&self, _: C)
    where
        Self: IsCommitted,
    {
    }
    #[doc(hidden)]
    pub fn mma<A, B>(&self, _: A, _: B)
    where
        Self: IsAProduct,
    {
    }
}

impl Accumulators<'_, '_> {
    #[doc(hidden)]
    pub fn load<C>(&self, _: C)
    where
        Self: IsCommitted,
    {
    }
    #[doc(hidden)]
    pub fn mma<A, B>(&self, _: A, _: B)
    where
        Self: IsAProduct,
    {
    }
}

impl<const N: usize> LoadingSums<'_, '_, N> {
    #[doc(hidden)]
    pub fn at<I>(&self, _: I)
    where
        Self: IsLoaded,
    {
    }
}
