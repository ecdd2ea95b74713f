//! What the blocks of a cluster have of the same rows: sent to the first one's shared memory, and added
//! up there.
//!
//! Asynchronous stores bring it, and a barrier counts their bytes: nobody waits for a fence, and those
//! that have sent are done.

use super::shape::WarpgroupShape;
use heist_builder::{Kernel, Mbarrier, SharedArray, Val};
use std::cell::RefCell;

/// Threads of a warpgroup.
const THREADS: u32 = 128;

/// Room for every part but the first, and the barrier that counts them.
pub(super) struct Parts<'k> {
    k: Kernel<'k>,
    memory: SharedArray<'k, f32>,
    arrived: Mbarrier<'k>,
    count: u32,
    /// Words of a part that a thread has: a multiple of four.
    words: u32,
}

impl<'k> Parts<'k> {
    /// The whole cluster takes part in making it.
    pub(super) fn new(k: &Kernel<'k>, shape: &WarpgroupShape) -> Parts<'k> {
        let (count, words) = (shape.parts(), shape.value_dim / 2 + 4);
        Parts {
            k: *k,
            memory: k.shared("parts", count * words * THREADS),
            arrived: k.mbarrier("arrived", 1),
            count,
            words,
        }
    }

    /// Where the words of this thread are of a part, four after four.
    fn place(&self, part: Val<'k, u32>) -> Val<'k, u32> {
        let thread = self.k.thread_index() % THREADS;
        part.mul_add(self.words * THREADS, thread * 4)
    }

    /// Sends a part to the first block. It has as many words as the others' threads have.
    pub(super) fn send(&self, part: Val<'k, u32>, words: &[Val<'k, f32>]) {
        self.k.comment("send what this warpgroup has");
        let there = self.memory.ptr().at(self.place(part)).on(0u32);
        let barrier = self.arrived.on(0u32);
        for (at, four) in (0..).zip(words.chunks_exact(4)) {
            let four = [four[0], four[1], four[2], four[3]];
            there.at(at * 4 * THREADS).store_async_vec(four, &barrier);
        }
    }

    /// Waits for all parts, and calls `absorb` with each: it is given what reads a word of it, and asks for
    /// the words in their order.
    pub(super) fn each(&self, absorb: impl Fn(&dyn Fn(usize) -> Val<'k, f32>)) {
        let k = self.k;
        k.comment("add up what the others have");
        k.if_(k.thread_index().eq(0), || {
            let bytes = self.count * self.words * THREADS * 4;
            self.arrived.arrive_expecting(bytes);
        });
        self.arrived.wait_for_copies(0u32);
        for part in 0..self.count {
            let from = self.memory.ptr().at(self.place(k.c(part)));
            let four = RefCell::new(Vec::new());
            absorb(&|word| {
                if word % 4 == 0 {
                    let next = from.at(word as u32 * THREADS).load_vec::<4>();
                    *four.borrow_mut() = next.to_vec();
                }
                four.borrow()[word % 4]
            });
        }
    }
}
