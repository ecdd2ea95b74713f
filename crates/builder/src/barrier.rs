//! Barriers of the block: the one for all threads, and the named ones.

use crate::error::Problem;
use crate::kernel::{Kernel, number};
use crate::value::{Bool, Val};

impl<'k> Kernel<'k> {
    /// Waits for all threads of the block, and makes their writes to shared and
    /// global memory visible to each other.
    #[track_caller]
    pub fn sync(&self) {
        self.effect("bar.sync", vec![number(0)]);
    }

    /// A barrier for `threads` of the block's threads, a multiple of 32. There
    /// are 15 of them.
    #[track_caller]
    pub fn named_barrier(&self, threads: u32) -> NamedBarrier<'k> {
        self.must_divide("the participants of a named barrier", threads.into(), 32);
        if threads == 0 || threads > self.threads() {
            self.fail_with(Problem::OutOfRange {
                what: "the participants of a named barrier".into(),
                value: threads.into(),
                low: 32,
                high: self.threads().into(),
            });
        }
        let id = self.rec.named_barriers.get();
        if id > 15 {
            self.fail_with(Problem::OutOfRange {
                what: "the number of named barriers".into(),
                value: id.into(),
                low: 0,
                high: 15,
            });
        }
        self.rec.named_barriers.set(id + 1);
        NamedBarrier {
            k: *self,
            id,
            threads,
        }
    }
}

impl<'k> Bool<'k> {
    /// Whether it holds in some thread of the block. It is a barrier too: all threads come here, and
    /// it orders their memory accesses as [`Kernel::sync`] does.
    #[track_caller]
    pub fn block_any(self) -> Bool<'k> {
        self.emit("bar.red.or.pred", vec![number(0), self.register().into()])
    }

    /// Whether it holds in every thread of the block; a barrier, like [`Bool::block_any`].
    #[track_caller]
    pub fn block_all(self) -> Bool<'k> {
        self.emit("bar.red.and.pred", vec![number(0), self.register().into()])
    }

    /// In how many threads of the block it holds; a barrier, like [`Bool::block_any`].
    #[track_caller]
    pub fn block_count(self) -> Val<'k, u32> {
        let operands = vec![number(0), self.register().into()];
        self.k.emit::<u32>("bar.red.popc.u32", operands)
    }
}

/// A barrier with a number of its own and a known number of participants.
#[derive(Clone, Copy, Debug)]
pub struct NamedBarrier<'k> {
    k: Kernel<'k>,
    id: u32,
    threads: u32,
}

impl NamedBarrier<'_> {
    /// How many threads take part.
    pub fn participants(&self) -> u32 {
        self.threads
    }

    /// Arrives and waits for the other participants.
    #[track_caller]
    pub fn sync(&self) {
        self.k.effect(
            "bar.sync",
            vec![number(self.id.into()), number(self.threads.into())],
        );
    }

    /// Arrives and continues; other threads wait.
    #[track_caller]
    pub fn arrive(&self) {
        self.k.effect(
            "bar.arrive",
            vec![number(self.id.into()), number(self.threads.into())],
        );
    }
}
