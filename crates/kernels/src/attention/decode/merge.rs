//! Merges what warps with the same rows and other keys have of them. Each warp gets a share of the columns, so that
//! all of them add up and store.
//!
//! All warps run the same instructions for that, whichever share is theirs: code that each runs once, and for itself,
//! comes from memory as it is run, and takes longer than what it does.

use crate::attention::epilogue::MergeShape;
use crate::attention::softmax::Softmax;
use heist_builder::{Kernel, Ptr, Shared, SharedTile, Val, Var, WarpTile, f16};
use std::ops::Range;

/// Pairs of 8 columns that a share has; the last shares may have fewer, or none.
pub(super) fn share_pairs(pairs: u32, across: u32) -> u32 {
    pairs.div_ceil(across)
}

/// The shares of a round: the first round has no fewer than any other.
pub(super) fn round_of(across: u32, rounds: u32, number: u32) -> Range<u32> {
    let from = |number: u32| (number * across).div_ceil(rounds);
    from(number)..from(number + 1)
}

/// Columns that are added up: the first one, and the blocks of 8 from there on, for each 16 rows.
pub(super) struct Columns<'k> {
    pub(super) first: Val<'k, u32>,
    pub(super) blocks: Vec<Vec<[Val<'k, f32>; 4]>>,
}

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
        let rows = results.shape().0;
        let shares = round_of(across, rounds, 0).len() * (across as usize - 1);
        let values = 4 * rows * 2 * share_pairs(results.shape().1 as u32 / 2, across) as usize;
        let total = across as usize * Self::states(softmax) + shares * values;
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

    /// Pairs of 8 columns that there are, and that a share has.
    fn pairs(&self) -> [u32; 2] {
        let all = self.results.shape().1 as u32 / 2;
        [all, share_pairs(all, self.across)]
    }

    /// The columns, of 8 each, that a warp gets.
    fn share(&self, number: u32) -> Range<usize> {
        let [all, each] = self.pairs();
        let from = |number: u32| 2 * (number * each).min(all) as usize;
        from(number)..from(number + 1)
    }

    /// The shares of a round.
    fn round(&self, number: u32) -> Range<u32> {
        round_of(self.across, self.rounds, number)
    }

    /// Where the values of the share at `place` of a round are that come from the warp which is number `rank` among the others.
    fn values(&self, place: Val<'k, u32>, rank: Val<'k, u32>) -> Ptr<'k, Shared, f32> {
        let rows = self.results.shape().0 as u32;
        let each = 4 * rows * 2 * self.pairs()[1] * 32;
        let states = self.across * Self::states(self.softmax) as u32 * 32;
        self.words
            .at(states)
            .at((place * (self.across - 1) + rank) * each)
    }

    /// Gives every warp what the others have of its share, round by round, and calls `then` with columns of the share that are added up,
    /// and with what `joined` gives when all levels and sums are. `meet` is where all of them wait for each other.
    pub(super) fn merge<N>(
        &self,
        meet: impl Fn(),
        joined: impl Fn() -> N,
        then: impl Fn(&Columns<'k>, &N),
    ) {
        let k = self.k;
        if self.across == 1 {
            let (rows, columns) = self.results.shape();
            let row = |m| (0..columns).filter_map(move |n| self.results.block(m, n));
            let blocks = (0..rows).map(|m| row(m).map(|block| block.get()).collect());
            let (first, blocks) = (k.c(0), blocks.collect());
            return then(&Columns { first, blocks }, &joined());
        }
        self.send_states();
        self.send(0);
        let mine = self.mine();
        meet();
        let factors = self.join();
        let joined = joined();
        let [all, each] = self.pairs();
        let even = all == each * self.across;
        for round in 0..self.rounds {
            if round > 0 {
                meet();
                self.send(round);
                meet();
            }
            let shares = self.round(round);
            let here = self.own.ge(shares.start) & self.own.lt(shares.end);
            k.if_(k.c(self.rounds == 1) | here, || {
                let place = self.own - shares.start;
                // Of shares that are not alike pairs are asked for one by one.
                let groups = if even { 1 } else { each };
                for group in 0..groups {
                    let pairs = group * each / groups..(group + 1) * each / groups;
                    let first = self.own * each + pairs.start;
                    k.if_(k.c(even) | first.lt(all), || {
                        let blocks = self.add_up(&mine, place, &pairs, &factors);
                        let first = first * 16;
                        then(&Columns { first, blocks }, &joined);
                    });
                }
            });
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
        let (rows, each) = (self.results.shape().0, 2 * self.pairs()[1] as usize);
        for (place, share) in self.round(round).enumerate() {
            self.k.if_(self.own.ne(share), || {
                let rank = self.own - self.own.gt(share).to_u32();
                let to = self.values(self.k.c(place as u32), rank);
                for (m, (at, n)) in (0..rows).flat_map(|m| {
                    let columns = self.share(share).enumerate();
                    columns.map(move |column| (m, column))
                }) {
                    let values = self.results.block(m, n).map(|block| block.get());
                    for (index, value) in values.into_iter().flatten().enumerate() {
                        to.at(32 * (4 * (m * each + at) + index)).store(value);
                    }
                }
            });
        }
    }

    /// This warp's own results of its share, for each 16 rows the blocks of 8 columns. What there is none of is zero.
    fn mine(&self) -> Vec<Vec<[Var<'k, f32>; 4]>> {
        let (rows, each) = (self.results.shape().0, 2 * self.pairs()[1]);
        let row = |_| {
            (0..each)
                .map(|_| [(); 4].map(|()| self.k.var(0.0f32)))
                .collect()
        };
        let mine: Vec<Vec<[Var<'k, f32>; 4]>> = (0..rows).map(row).collect();
        for share in 0..self.across {
            self.k.if_(self.own.eq(share), || {
                for (m, mine) in mine.iter().enumerate() {
                    for (to, n) in mine.iter().zip(self.share(share)) {
                        let values = self.results.block(m, n).map(|block| block.get());
                        for (to, value) in to.iter().zip(values.into_iter().flatten()) {
                            to.set(value);
                        }
                    }
                }
            });
        }
        mine
    }

    /// Brings rows to the levels and sums of all warps; what brings the results of this warp and of the others to these, for each row.
    fn join(&self) -> Vec<(Val<'k, f32>, Vec<Val<'k, f32>>)> {
        let states = Self::states(self.softmax) as u32;
        let all = |word: usize| -> Vec<Val<'k, f32>> {
            let each =
                (0..self.across).map(|warp| self.words.at(32 * (warp * states + word as u32)));
            each.map(Ptr::load).collect()
        };
        let rows = self.softmax.rows.iter().flatten().enumerate();
        rows.map(|(index, row)| {
            let (levels, sums) = (all(2 * index), all(2 * index + 1));
            let common = levels.iter().copied().reduce(Val::max);
            let common = common.unwrap_or(row.level.get());
            let factor = |level: Val<'k, f32>| (level - common).exp2_approx();
            let own = factor(row.level.get());
            let factors: Vec<_> = levels.into_iter().map(factor).collect();
            let mut sum = self.k.c(0.0f32);
            for (own, factor) in sums.into_iter().zip(&factors) {
                sum = own.mul_add(*factor, sum);
            }
            row.level.set(common);
            row.sum.set(sum);
            let others = factors.windows(2).zip(0u32..);
            let others = others.map(|(two, rank)| self.own.le(rank).select(two[1], two[0]));
            (own, others.collect())
        })
        .collect()
    }

    /// Adds up some columns of this warp's share: its own results first, then those of the others in their order.
    fn add_up(
        &self,
        mine: &[Vec<[Var<'k, f32>; 4]>],
        place: Val<'k, u32>,
        pairs: &Range<u32>,
        factors: &[(Val<'k, f32>, Vec<Val<'k, f32>>)],
    ) -> Vec<Vec<[Val<'k, f32>; 4]>> {
        let each = 2 * self.pairs()[1] as usize;
        let columns = 2 * pairs.start as usize..2 * pairs.end as usize;
        let others: Vec<_> = (0..self.across - 1)
            .map(|rank| self.values(place, self.k.c(rank)))
            .collect();
        let rows = mine.iter().enumerate();
        rows.map(|(m, blocks)| {
            let columns = columns.clone().zip(&blocks[columns.clone()]);
            let added = columns.map(|(n, block)| {
                [0, 1, 2, 3].map(|at| {
                    let (own, ranks) = &factors[2 * m + at / 2];
                    let mut sum = block[at].get() * *own;
                    for (from, factor) in others.iter().zip(ranks) {
                        let value = from.at(32 * (4 * (m * each + n) + at)).load();
                        sum = value.mul_add(*factor, sum);
                    }
                    sum
                })
            });
            added.collect()
        })
        .collect()
    }
}
