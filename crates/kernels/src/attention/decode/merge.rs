//! Merges what warps with the same rows and other keys have of them. Each warp gets a share of the columns, so that
//! all of them add up and store.

use crate::attention::epilogue::MergeShape;
use crate::attention::softmax::Softmax;
use heist_builder::{Kernel, Ptr, Shared, SharedTile, Val, WarpTile, f16};
use std::ops::Range;

/// The shared memory of a merge, as a lane sees it: lane by lane, since the same lane of another warp holds the same
/// rows and columns.
pub(super) struct Merge<'a, 'k> {
    k: Kernel<'k>,
    across: u32,
    /// The number of this warp among those that have its rows.
    own: Val<'k, u32>,
    softmax: &'a Softmax<'k>,
    results: &'a WarpTile<'k>,
    words: Ptr<'k, Shared, f32>,
    /// In how many rounds shares are sent: as many as leave room for each.
    rounds: u32,
}

impl<'a, 'k> Merge<'a, 'k> {
    /// Of warp number `warp`, in a stage that was lent for it, or else in memory of its own.
    pub(super) fn new(
        k: &Kernel<'k>,
        MergeShape { down, across }: MergeShape,
        warp: Val<'k, u32>,
        (softmax, results): (&'a Softmax<'k>, &'a WarpTile<'k>),
        (lent, rounds): (Option<&SharedTile<'k, f16>>, u32),
    ) -> Self {
        let (rows, cols) = results.shape();
        let values = (across as usize - 1) * 4 * rows * cols;
        let total = across as usize * Self::states(softmax) + values / rounds as usize;
        let memory = match lent {
            Some(stage) => stage.chunk(0u32, 0u32).cast::<f32>(),
            None => k
                .shared::<f32>("merge", (total as u32 * down * 32).max(1))
                .ptr(),
        };
        let first = (warp % down).mul_add(total as u32 * 32, k.lane());
        Merge {
            k: *k,
            across,
            own: warp / down,
            softmax,
            results,
            words: memory.at(first),
            rounds,
        }
    }

    /// Words of a warp's levels and sums.
    fn states(softmax: &Softmax<'k>) -> usize {
        4 * softmax.rows.len()
    }

    /// The columns, of 8 each, that a warp gets: in pairs.
    fn share(&self, number: u32) -> Range<usize> {
        let (pairs, across) = (self.results.shape().1 / 2, self.across as usize);
        let from = |number: usize| 2 * (number * pairs / across);
        from(number as usize)..from(number as usize + 1)
    }

    /// The shares of a round.
    fn round(&self, number: u32) -> Range<u32> {
        let from = |number: u32| number * self.across / self.rounds;
        from(number)..from(number + 1)
    }

    /// Where the values of a share of a round are that come from the warp which is number `rank` among the others.
    fn values(&self, round: u32, share: u32, rank: Val<'k, u32>) -> Ptr<'k, Shared, f32> {
        let rows = self.results.shape().0;
        let (columns, others) = (self.share(share), self.across as usize - 1);
        let first = self.share(self.round(round).start).start;
        let before = self.across as usize * Self::states(self.softmax)
            + others * 4 * rows * (columns.start - first);
        let each = (4 * rows * columns.len() * 32) as u32;
        self.words.at(32 * before).at(rank * each)
    }

    /// The blocks of a share, row by row.
    fn blocks(&self, share: u32) -> impl Iterator<Item = (usize, usize)> {
        let (rows, columns) = (self.results.shape().0, self.share(share));
        (0..rows).flat_map(move |m| columns.clone().map(move |n| (m, n)))
    }

    /// Gives every warp what the others have of its share, round by round, and calls `then` with the columns of a share that is added up,
    /// once for each that a warp can have, and with what `joined` gives when all levels and sums are. `meet` is where all of them wait for
    /// each other.
    pub(super) fn merge<N>(
        &self,
        meet: impl Fn(),
        joined: impl Fn() -> N,
        then: impl Fn(Range<usize>, &N),
    ) {
        if self.across == 1 {
            let columns = self.share(0);
            return then(columns, &joined());
        }
        self.send_states();
        self.send(0);
        meet();
        let factors = self.join();
        let joined = joined();
        for round in 0..self.rounds {
            if round > 0 {
                meet();
                self.send(round);
                meet();
            }
            for share in self.round(round) {
                let columns = self.share(share);
                if columns.is_empty() {
                    continue;
                }
                self.k.if_(self.own.eq(share), || {
                    self.add_up(round, share, &factors);
                    then(columns.clone(), &joined);
                });
            }
        }
    }

    fn send_states(&self) {
        let states = Self::states(self.softmax);
        let to = self.words.at(self.own * (32 * states as u32));
        let rows = self.softmax.rows.iter().flatten();
        for (index, state) in rows.flat_map(|row| [row.level, row.sum]).enumerate() {
            to.at(32 * index).store(state.get());
        }
    }

    fn send(&self, round: u32) {
        for share in self.round(round) {
            self.k.if_(self.own.ne(share), || {
                let to = self.values(round, share, self.own - self.own.gt(share).to_u32());
                let blocks = self.blocks(share);
                let blocks = blocks.filter_map(|(m, n)| self.results.block(m, n));
                for (index, value) in blocks.flat_map(|block| block.get()).enumerate() {
                    to.at(32 * index).store(value);
                }
            });
        }
    }

    /// Brings rows to the levels and sums of all warps; what brings each warp's results to these, for each row.
    fn join(&self) -> Vec<Vec<Val<'k, f32>>> {
        let states = Self::states(self.softmax) as u32;
        let all = |word: usize| -> Vec<Val<'k, f32>> {
            let each =
                (0..self.across).map(|warp| self.words.at(32 * (warp * states + word as u32)));
            each.map(Ptr::load).collect()
        };
        let mut factors = vec![Vec::new(); self.across as usize];
        for (index, row) in self.softmax.rows.iter().flatten().enumerate() {
            let (levels, sums) = (all(2 * index), all(2 * index + 1));
            let common = levels.iter().copied().reduce(Val::max);
            let common = common.unwrap_or(row.level.get());
            let mut sum = self.k.c(0.0f32);
            for ((level, own), factors) in levels.into_iter().zip(sums).zip(&mut factors) {
                let factor = (level - common).exp2_approx();
                sum = own.mul_add(factor, sum);
                factors.push(factor);
            }
            row.level.set(common);
            row.sum.set(sum);
        }
        factors
    }

    /// Adds up the columns of a share, in the order of the warps.
    fn add_up(&self, round: u32, share: u32, factors: &[Vec<Val<'k, f32>>]) {
        let others: Vec<_> = (0..self.across - 1)
            .map(|rank| self.values(round, share, self.k.c(rank)))
            .collect();
        for (index, (m, n)) in self.blocks(share).enumerate() {
            let Some(block) = self.results.block(m, n) else {
                continue;
            };
            let own = block.get();
            let mut values = own;
            for (at, value) in values.iter_mut().enumerate() {
                let row = 2 * m + at / 2;
                let mut sum: Option<Val<'k, f32>> = None;
                for (warp, factors) in (0..).zip(factors) {
                    let part = match warp == share {
                        true => own[at],
                        false => {
                            let rank = warp as usize - usize::from(warp > share);
                            others[rank].at(32 * (4 * index + at)).load()
                        }
                    };
                    sum = Some(match sum {
                        None => part * factors[row],
                        Some(sum) => part.mul_add(factors[row], sum),
                    });
                }
                *value = sum.unwrap_or(*value);
            }
            block.set(values);
        }
    }
}
