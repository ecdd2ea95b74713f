//! Softmax over keys that come block by block.
//!
//! A row keeps a level, the logarithm (to base 2) that its weights are relative
//! to, and the sum of its weights. The level need not be the largest score: any
//! level gives the same result, as long as no weight overflows. So it is raised,
//! and everything rescaled, only when a score exceeds it by more than
//! [`SLACK`]: after the first blocks, hardly ever.

use super::params::Element;
use super::problem::Weights;
use heist_builder::{Bool, FragmentA, Group, Kernel, Val, Var, WarpTile};

/// How far scores may exceed the level: weights stay below 256, far from the
/// largest f16, and as many bits of them are kept as at any other level.
const SLACK: f32 = 8.0;

/// The most that a lane's weights of a row may add up to at a level that is not raised. Where one of 32 of them
/// is above this share of it, its score exceeds the level by more than [`SLACK`]; and all are far from the largest f16.
const MOST_SUM: f32 = 8192.0;

/// Keys of a block of which each of four lanes has 32.
pub(crate) const MOST_KEYS: u32 = 128;

/// The level of a row that has seen no key: below every score, and finite, so
/// that no difference of it is a NaN.
pub(crate) const NO_LEVEL: f32 = -1e30;

/// The state of one row, in base 2.
#[derive(Clone, Copy)]
pub(crate) struct Row<'k> {
    pub(crate) level: Var<'k, f32>,
    pub(crate) sum: Var<'k, f32>,
}

impl<'k> Row<'k> {
    pub(crate) fn new(k: &Kernel<'k>) -> Row<'k> {
        Row {
            level: k.var(NO_LEVEL),
            sum: k.var(0.0f32),
        }
    }

    /// Raises the level where a score, the highest of some, needs it.
    pub(crate) fn raise(&self, highest: Val<'k, f32>) -> Raise<'k> {
        let level = self.level.get();
        let over = highest.gt(level + SLACK);
        let new = over.select(highest, level);
        let factor = (level - new).exp2_approx();
        self.level.set(new);
        self.sum.update(|sum| sum * factor);
        Raise { factor, over }
    }

    /// Adds a score of no key to the sum, which is complete; gives what brings results to the level
    /// that it may have raised.
    pub(crate) fn add_sink(&self, sink: Val<'k, f32>) -> Val<'k, f32> {
        let level = self.level.get().max(sink);
        let factor = (self.level.get() - level).exp2_approx();
        self.sum
            .update(|sum| sum.mul_add(factor, (sink - level).exp2_approx()));
        self.level.set(level);
        factor
    }

    /// The log-sum-exp, to base e; minus infinity for a row that saw no key.
    pub(crate) fn log_sum(&self) -> Val<'k, f32> {
        (self.level.get() + self.sum.get().log2_approx()) * std::f32::consts::LN_2
    }

    /// One divided by the sum; zero for a row that saw no key.
    pub(crate) fn normaliser(&self) -> Val<'k, f32> {
        let sum = self.sum.get();
        sum.gt(0.0).select(sum.recip_approx(), 0.0)
    }
}

/// A level that may have been raised.
#[derive(Clone, Copy)]
pub(crate) struct Raise<'k> {
    /// What brings earlier weights to it.
    pub(crate) factor: Val<'k, f32>,
    /// Whether it was.
    pub(crate) over: Bool<'k>,
}

/// Sums of a row that are added up side by side.
const STRANDS: usize = 4;

/// Levels that were raised.
pub(crate) struct Raised<'k> {
    /// What brings earlier weights to the new levels.
    factors: Vec<[Val<'k, f32>; 2]>,
    /// Whether any level was raised.
    any: Bool<'k>,
}

impl<'k> Raised<'k> {
    /// Brings results to the new levels.
    pub(crate) fn apply(&self, results: &WarpTile<'k>) {
        let k = results.kernel();
        k.if_(self.any.any(), || {
            for (m, factors) in self.factors.iter().enumerate() {
                scale_rows(results, m, *factors);
            }
        });
    }
}

/// The rows of a warp: two to a lane for each 16, four lanes to a row.
pub(crate) struct Softmax<'k> {
    k: Kernel<'k>,
    scale: Val<'k, f32>,
    pub(crate) rows: Vec<[Row<'k>; 2]>,
}

impl<'k> Softmax<'k> {
    /// Of `blocks` blocks of 16 rows. `scale` makes scores of products, to base 2.
    pub(crate) fn new(k: &Kernel<'k>, scale: Val<'k, f32>, blocks: usize) -> Softmax<'k> {
        Softmax {
            k: *k,
            scale,
            rows: (0..blocks).map(|_| [Row::new(k), Row::new(k)]).collect(),
        }
    }

    /// Raises the levels where these scores need it, and brings the results so
    /// far to the new ones.
    pub(crate) fn admit(&self, scores: &WarpTile<'k>, results: &WarpTile<'k>) {
        let k = self.k;
        let highest: Vec<[Val<'k, f32>; 2]> = (0..self.rows.len())
            .map(|m| row_maxima(scores, m).map(|max| max * self.scale))
            .collect();
        // A lane looks at its own scores: what the four of a row have is brought together where one needs it.
        let over = self
            .rows
            .iter()
            .zip(&highest)
            .flat_map(|(rows, highest)| rows.iter().zip(highest))
            .map(|(row, &highest)| highest.gt(row.level.get() + SLACK))
            .reduce(|a, b| a | b);
        let Some(over) = over else {
            return;
        };
        k.if_(over.any(), || {
            for (m, (rows, highest)) in self.rows.iter().zip(&highest).enumerate() {
                let mut factors = [k.c(1.0f32); 2];
                for (at, (row, &highest)) in rows.iter().zip(highest).enumerate() {
                    let level = row.level.get().max(highest.group_max(Group::Four));
                    factors[at] = (row.level.get() - level).exp2_approx();
                    row.level.set(level);
                    row.sum.update(|sum| sum * factors[at]);
                }
                scale_rows(results, m, factors);
            }
        });
    }

    /// The weights of 16 keys for 16 rows as the left matrix of a product, or as
    /// the left matrices of two; they are added to the rows' sums.
    pub(crate) fn weights<T: Element>(
        &self,
        scores: &WarpTile<'k>,
        block: usize,
        keys: usize,
        how: Weights,
    ) -> Option<Vec<FragmentA<'k, T>>> {
        let rows = self.rows.get(block)?;
        let levels = rows.map(|row| row.level.get());
        let weigh = |column: usize| {
            let [a, b, c, d] = scores.block(block, column)?.get();
            let weight = |score: Val<'k, f32>, row: usize| {
                score.mul_add(self.scale, -levels[row]).exp2_approx()
            };
            let weights = [weight(a, 0), weight(b, 0), weight(c, 1), weight(d, 1)];
            rows[0].sum.update(|sum| sum + weights[0] + weights[1]);
            rows[1].sum.update(|sum| sum + weights[2] + weights[3]);
            Some(weights)
        };
        let (left, right) = (weigh(2 * keys)?, weigh(2 * keys + 1)?);
        Some(match how {
            Weights::Rounded => vec![FragmentA::from_accumulators(left, right)],
            Weights::Split => FragmentA::split_accumulators(left, right).into(),
        })
    }

    /// Raises the levels where these scores need it; the results so far are to
    /// be brought to them with [`Raised::apply`] before anything is added.
    pub(crate) fn raise(&self, scores: &WarpTile<'k>) -> Raised<'k> {
        let k = self.k;
        let mut raised = Raised {
            factors: Vec::new(),
            any: k.c(false),
        };
        for (m, rows) in self.rows.iter().enumerate() {
            let highest = row_maxima(scores, m).map(|max| max.group_max(Group::Four) * self.scale);
            let mut factors = [k.c(1.0f32); 2];
            for (at, (row, highest)) in rows.iter().zip(highest).enumerate() {
                let raise = row.raise(highest);
                factors[at] = raise.factor;
                raised.any = raised.any | raise.over;
            }
            raised.factors.push(factors);
        }
        raised
    }

    /// Turns scores into weights, in place, and adds them to the rows' sums.
    pub(crate) fn weigh(&self, scores: &WarpTile<'k>) {
        let sums = self.weights_of(scores, |m, col, weights| {
            if let Some(block) = scores.block(m, col) {
                block.set(weights);
            }
        });
        self.add(&sums);
    }

    /// Adds to the rows' sums.
    fn add(&self, sums: &[[Val<'k, f32>; 2]]) {
        for (row, &own) in self.rows.iter().flatten().zip(sums.iter().flatten()) {
            row.sum.update(|all| all + own);
        }
    }

    /// Gives `put` the weights of the scores at the levels that there are, and adds them to the rows' sums. The levels are
    /// raised first where these sums show that a score exceeds one by more than [`SLACK`]: then, and hardly ever, the scores are gone
    /// through for their maxima, and once more for the weights. Not for scores of more than [`MOST_KEYS`] keys.
    pub(crate) fn weigh_or_raise(
        &self,
        scores: &WarpTile<'k>,
        put: impl Fn(usize, usize, [Val<'k, f32>; 4]),
    ) -> Raised<'k> {
        let k = self.k;
        let sums = self.weights_of(scores, &put);
        let own: Vec<_> = sums.iter().map(|pair| pair.map(|sum| k.var(sum))).collect();
        let factors: Vec<_> = sums
            .iter()
            .map(|_| [1.0f32; 2].map(|one| k.var(one)))
            .collect();
        let any = k.var(false);
        // Also where a sum is no number.
        let fit = sums.iter().flatten().map(|sum| sum.le(MOST_SUM));
        let fit = fit.reduce(|a, b| a & b).unwrap_or(k.c(true));
        k.if_((!fit).any(), || {
            let raised = self.raise(scores);
            any.set(raised.any);
            for (var, value) in factors
                .iter()
                .flatten()
                .zip(raised.factors.iter().flatten())
            {
                var.set(*value);
            }
            let sums = self.weights_of(scores, &put);
            for (var, value) in own.iter().flatten().zip(sums.iter().flatten()) {
                var.set(*value);
            }
        });
        let own: Vec<_> = own.iter().map(|pair| pair.map(Var::get)).collect();
        self.add(&own);
        Raised {
            factors: factors.iter().map(|pair| pair.map(Var::get)).collect(),
            any: any.get(),
        }
    }

    /// Gives `put` the weights of the scores, block by block, and returns what this lane has of their sums.
    fn weights_of(
        &self,
        scores: &WarpTile<'k>,
        put: impl Fn(usize, usize, [Val<'k, f32>; 4]),
    ) -> Vec<[Val<'k, f32>; 2]> {
        let (_, cols) = scores.shape();
        let mut all = Vec::new();
        for (m, rows) in self.rows.iter().enumerate() {
            let levels = rows.map(|row| row.level.get());
            // Several sums a row, so that they need not wait for each other.
            let mut sums: [Vec<Val<'k, f32>>; 2] = [Vec::new(), Vec::new()];
            for col in 0..cols {
                let Some(block) = scores.block(m, col) else {
                    continue;
                };
                let weight = |score: Val<'k, f32>, row: usize| {
                    score.mul_add(self.scale, -levels[row]).exp2_approx()
                };
                let [a, b, c, d] = block.get();
                let weights = [weight(a, 0), weight(b, 0), weight(c, 1), weight(d, 1)];
                put(m, col, weights);
                for (sums, pair) in sums.iter_mut().zip(weights.chunks_exact(2)) {
                    let pair = pair[0] + pair[1];
                    match sums.get_mut(col % STRANDS) {
                        Some(sum) => *sum = *sum + pair,
                        None => sums.push(pair),
                    }
                }
            }
            all.push(sums.map(|sums| {
                let sum = sums.into_iter().reduce(|a, b| a + b);
                sum.unwrap_or(self.k.c(0.0))
            }));
        }
        all
    }

    /// Adds a score of no key to the sums, which are complete: what `sink` gives for a row (of
    /// 16 rows, the upper or the lower), to base 2; minus infinity where there is none.
    pub(crate) fn add_sinks(
        &self,
        results: &WarpTile<'k>,
        sink: impl Fn(usize, usize) -> Val<'k, f32>,
    ) {
        for (m, rows) in self.rows.iter().enumerate() {
            let mut factors = [self.k.c(1.0f32); 2];
            for (at, row) in rows.iter().enumerate() {
                factors[at] = row.add_sink(sink(m, at));
            }
            scale_rows(results, m, factors);
        }
    }

    /// Adds up the sums of each row's four lanes.
    pub(crate) fn finish(&self) {
        for row in self.rows.iter().flatten() {
            row.sum.update(|sum| sum.sum(Group::Four));
        }
    }
}

/// The largest of this lane's scores in each of its two rows of a block.
fn row_maxima<'k>(scores: &WarpTile<'k>, block: usize) -> [Val<'k, f32>; 2] {
    let (_, cols) = scores.shape();
    let mut maxima: [Option<Val<'k, f32>>; 2] = [None, None];
    for col in 0..cols {
        let Some(sums) = scores.block(block, col) else {
            continue;
        };
        let [a, b, c, d] = sums.get();
        for (max, pair) in maxima.iter_mut().zip([a.max(b), c.max(d)]) {
            *max = Some(max.map_or(pair, |max| max.max(pair)));
        }
    }
    maxima.map(|max| max.unwrap_or_else(|| scores.kernel().c(f32::NEG_INFINITY)))
}

/// Multiplies the two rows of each lane in a block by a factor each.
pub(crate) fn scale_rows<'k>(results: &WarpTile<'k>, block: usize, factors: [Val<'k, f32>; 2]) {
    let (_, cols) = results.shape();
    for sums in (0..cols).filter_map(|col| results.block(block, col)) {
        let [a, b, c, d] = sums.get();
        let [upper, lower] = factors;
        sums.set([a * upper, b * upper, c * lower, d * lower]);
    }
}
