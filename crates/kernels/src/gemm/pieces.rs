//! A tile in pieces of its depth, between which it can be left half done.
//!
//! The thread that copies looks at the bell before it copies the last stage of a piece, so that the
//! warpgroups know what it decided once that stage has arrived: their loops over steps have no test.

use super::tiling::Tiling;
use heist_builder::{Bool, Global, Kernel, Ptr, Val, Var, WgmmaResult};
use heist_sched::Pause;

/// Steps of a piece, 5 us of the largest tiles on an H200, where the ring has fewer stages. A power of two.
const STEPS: u32 = 8;

/// 32-bit words that the state of a tile takes: its sums, as its threads have them.
pub(crate) fn state_words(tiling: &Tiling) -> u32 {
    tiling.rows * tiling.cols
}

/// Microseconds that a tile takes over so deep rows of operands, in bytes, on an H200.
pub(crate) fn tile_time(tiling: &Tiling, depth: u32) -> f64 {
    let halves = f64::from(depth) / 2.0;
    f64::from(tiling.rows) * f64::from(tiling.cols) * halves / 2.9e6
}

/// How a tile is left half done.
#[derive(Clone, Copy)]
pub(crate) struct Pieces<'k> {
    k: Kernel<'k>,
    pub(crate) pause: Pause<'k>,
    /// Steps of a piece. The thread that copies is never a piece ahead of those that multiply.
    steps: u32,
    /// Threads that multiply a tile.
    threads: u32,
    /// Whether the tile that a warpgroup has multiplied is left. It has to know by itself: the next tile, which another warpgroup
    /// may have, is left while this one still stores.
    left: Var<'k, bool>,
}

impl<'k> Pieces<'k> {
    pub(crate) fn new(k: &Kernel<'k>, tiling: &Tiling, pause: Pause<'k>) -> Pieces<'k> {
        Pieces {
            k: *k,
            pause,
            steps: (tiling.stages + 2).next_power_of_two().max(STEPS),
            threads: tiling.sharing() * 128,
            left: k.var(false).named("left"),
        }
    }

    /// Steps that are done, in any thread.
    pub(crate) fn done(&self) -> Val<'k, u32> {
        self.pause.from()
    }

    /// The same in all threads of a warp, which agree, and the assembler knows it.
    pub(crate) fn agreed(&self) -> Val<'k, u32> {
        self.done().shuffle_from(0u32)
    }

    /// Whether a piece ends before step `next`, of `steps`, and another follows.
    pub(crate) fn ends(&self, next: Val<'k, u32>, steps: Val<'k, u32>) -> Bool<'k> {
        (next & (self.steps - 1)).eq(0) & next.lt(steps)
    }

    /// Whether the bell is asked for at step `next` - 1, where it is asked for `at` that step of a piece. Not at each step, since the thread that
    /// copies would wait as long as memory takes at every one.
    pub(crate) fn listens(&self, next: Val<'k, u32>, at: Val<'k, u32>) -> Bool<'k> {
        (next & (self.steps - 1)).eq(at)
    }

    /// Where in a piece it is asked for: two steps before it is looked at.
    pub(crate) fn late(&self) -> u32 {
        self.steps - 2
    }

    /// Where in a tile of so many steps: those that end before that ask with their first.
    pub(crate) fn listens_at(&self, steps: Val<'k, u32>) -> Val<'k, u32> {
        let late = self.late();
        steps.lt(late).select(self.k.c(1), late)
    }

    /// In a warpgroup that multiplies: calls `body` with every step until the tile ends or is left.
    ///
    /// One loop, not one in another: products are in flight from piece to piece, and where loops
    /// meet the assembler would copy the sums and wait for each product.
    pub(crate) fn each_step(&self, steps: Val<'k, u32>, body: impl Fn(Val<'k, u32>)) {
        let k = self.k;
        let step = k.var(0u32).named("step");
        let end = k.var(steps).named("end");
        k.while_(
            || step.get().lt(end.get()),
            || {
                body(step.get());
                let next = step.get() + 1;
                step.set(next);
                let left = self.pause.left_if(self.ends(next, steps));
                end.set(left.select(next, end.get()));
            },
        );
        self.left.set(end.get().ne(steps));
    }

    /// The same with the first step of each piece and the one behind its last, for a body that
    /// leaves no product in flight.
    pub(crate) fn each_piece(
        &self,
        steps: Val<'k, u32>,
        body: impl Fn(Val<'k, u32>, Val<'k, u32>),
    ) {
        let step = self.k.var(0u32).named("piece");
        self.left.set(self.k.c(false));
        self.k.while_(
            || step.get().lt(steps) & !self.left.get(),
            || {
                let next = (step.get() + self.steps).min(steps);
                body(step.get(), next);
                self.left.set(self.pause.left_if(next.lt(steps)));
                step.set(next);
            },
        );
    }

    /// Sets sums to what they were when the tile was left.
    pub(crate) fn restore(&self, sums: impl Iterator<Item = Var<'k, f32>>) {
        self.k.comment("go on with what was left half done");
        let saved = self.own(self.pause.saved());
        for (index, four) in fours(sums).into_iter().enumerate() {
            let words = saved.at(self.place(index)).load_vec::<4>();
            four.into_iter()
                .zip(words)
                .for_each(|(sum, word)| sum.set(word));
        }
    }

    /// Saves the sums of a tile that is left half done, or calls `store`.
    pub(crate) fn save_or(&self, sums: &[WgmmaResult<'k>], store: impl Fn()) {
        let save = || {
            self.k.comment("left half done");
            let room = self.own(self.pause.room());
            let sums = sums.iter().flat_map(WgmmaResult::vars);
            for (index, four) in fours(sums).into_iter().enumerate() {
                room.at(self.place(index))
                    .store_vec(four.map(|sum| sum.get()));
            }
        };
        self.k.if_else(self.left.get(), save, store);
    }

    /// Where this thread's first four sums are: neighbours have neighbouring words.
    fn own(&self, state: Ptr<'k, Global, u32>) -> Ptr<'k, Global, f32> {
        // The warpgroup that copies has no sums. Of two with a tile each, either may go on with what the other has left.
        let thread = (self.k.thread_index() - 128) % self.threads;
        state.cast::<f32>().at(thread * 4)
    }

    /// How many words behind those a thread's `index`-th four are.
    fn place(&self, index: usize) -> u32 {
        index as u32 * self.threads * 4
    }
}

/// A thread's sums in fours, as it has them for 8 columns of 64 rows: each four is saved and restored at once.
pub(super) fn fours<'k>(sums: impl Iterator<Item = Var<'k, f32>>) -> Vec<[Var<'k, f32>; 4]> {
    let sums: Vec<_> = sums.collect();
    sums.as_chunks().0.to_vec()
}
