//! Two blocks, a cluster, that have the same rows and each a half of the keys: each sends the other what
//! it has of half of the columns, and stores the other half.
//!
//! Asynchronous stores bring it, and a barrier counts their bytes: nobody waits for a fence.

use super::shape::WarpgroupShape;
use heist_builder::{Kernel, Mbarrier, SharedArray, Val};

/// Threads of a warpgroup.
const THREADS: u32 = 128;

/// Room for what the other block sends, and the barrier that counts it.
pub(super) struct Pair<'k> {
    k: Kernel<'k>,
    memory: SharedArray<'k, f32>,
    arrived: Mbarrier<'k>,
    words: u32,
}

impl<'k> Pair<'k> {
    /// Both blocks take part in making it.
    pub(super) fn new(k: &Kernel<'k>, shape: &WarpgroupShape) -> Pair<'k> {
        let words = shape.sent_words();
        Pair {
            k: *k,
            memory: k.shared("sent", words * THREADS),
            arrived: k.mbarrier("arrived", 1),
            words,
        }
    }

    /// Sends the other block this thread's words, and gives what the same thread of the other has sent.
    /// Once, for a cluster has one tile.
    pub(super) fn exchange(&self, words: &[Val<'k, f32>]) -> Vec<Val<'k, f32>> {
        let k = self.k;
        k.comment("exchange halves with the other block");
        let (own, other) = (k.thread_index() * 4, k.cluster_rank() ^ 1);
        let (there, barrier) = (self.memory.ptr().at(own).on(other), self.arrived.on(other));
        k.if_(k.thread_index().eq(0), || {
            self.arrived.arrive_expecting(self.words * THREADS * 4);
        });
        for (at, four) in (0..).zip(words.chunks_exact(4)) {
            let four = [four[0], four[1], four[2], four[3]];
            there.at(at * 4 * THREADS).store_async_vec(four, &barrier);
        }
        self.arrived.wait_for_copies(0u32);
        let from = self.memory.ptr().at(own);
        (0..self.words / 4)
            .flat_map(|at| from.at(at * 4 * THREADS).load_vec::<4>())
            .collect()
    }
}
