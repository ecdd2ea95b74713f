//! Blocks, a cluster of two to eight, that have the same rows and each a part of the keys: each sends every other
//! block what it has of that block's part of the columns, and stores its own part.
//!
//! Asynchronous stores bring it, and a barrier counts their bytes: nobody waits for a fence.
//!
//! A block knows the others by the bits in which their ranks differ from its own. The other one is then known to both
//! by the same number, which is also its place in what either has to send and has received.

use super::shape::WarpgroupShape;
use heist_builder::{Kernel, Mbarrier, Ptr, Shared, SharedArray, Val};

/// Threads of a warpgroup.
const THREADS: u32 = 128;

/// Four words that are sent together.
pub(super) type Four<'k> = [Val<'k, f32>; 4];

/// Room for what the other blocks send, and the barrier that counts it.
pub(super) struct Exchange<'k> {
    k: Kernel<'k>,
    memory: SharedArray<'k, f32>,
    arrived: Mbarrier<'k>,
    /// How many others there are.
    others: u32,
    /// Words that a thread sends each.
    words: u32,
}

impl<'k> Exchange<'k> {
    /// All blocks of a cluster take part in making it. None where no keys are shared.
    pub(super) fn new(k: &Kernel<'k>, shape: &WarpgroupShape) -> Option<Exchange<'k>> {
        let (others, words) = (shape.sharing.blocks() - 1, shape.sent_words());
        (others > 0).then(|| Exchange {
            k: *k,
            memory: k.shared("sent", others * words * THREADS),
            arrived: k.mbarrier("arrived", 1),
            others,
            words,
        })
    }

    /// Sends each other block what this thread has for the same thread of it, in the order of their numbers from 1 on.
    /// Once, for a cluster has one tile.
    pub(super) fn send(&self, all: &[Vec<Four<'k>>]) {
        let k = self.k;
        k.comment("send the other blocks their columns");
        k.if_(k.thread_index().eq(0), || {
            let bytes = self.others * self.words * THREADS * 4;
            self.arrived.arrive_expecting(bytes);
        });
        for (number, words) in (1..).zip(all) {
            let other = k.cluster_rank() ^ number;
            let (there, barrier) = (self.place(number).on(other), self.arrived.on(other));
            for (at, four) in (0..).zip(words) {
                there.at(at * 4 * THREADS).store_async_vec(*four, &barrier);
            }
        }
    }

    /// Waits for all of them, and gives what the same thread of each has sent, in the same order: whenever they arrive,
    /// sums are added up in that one.
    pub(super) fn received(&self) -> impl Iterator<Item = Vec<Val<'k, f32>>> {
        self.arrived.wait_for_copies(0u32);
        (1..=self.others).map(|number| {
            let from = self.place(number);
            (0..self.words / 4)
                .flat_map(|at| from.at(at * 4 * THREADS).load_vec::<4>())
                .collect()
        })
    }

    /// Where this thread's words from another block are.
    fn place(&self, number: u32) -> Ptr<'k, Shared, f32> {
        let first = (number - 1) * self.words * THREADS;
        self.memory.ptr().at(self.k.thread_index() * 4 + first)
    }
}

/// Brings the part of each block to the place of its number: that of block `rank ^ n` to place `n`. Registers have no
/// index, so each bit of the rank swaps the places that differ in it, or not.
pub(super) fn to_places<'k>(
    rank: Val<'k, u32>,
    mut parts: Vec<Vec<Four<'k>>>,
) -> Vec<Vec<Four<'k>>> {
    let count = parts.len();
    let mut bit = 1;
    while bit < count {
        let stays = (rank & bit as u32).eq(0);
        for low in (0..count).filter(|place| place & bit == 0) {
            let (left, right) = (parts[low].clone(), parts[low | bit].clone());
            let pick = |a: &[Four<'k>], b: &[Four<'k>]| {
                let both = a.iter().zip(b);
                both.map(|(a, b)| [0, 1, 2, 3].map(|at| stays.select(a[at], b[at])))
                    .collect()
            };
            parts[low] = pick(&left, &right);
            parts[low | bit] = pick(&right, &left);
        }
        bit *= 2;
    }
    parts
}
