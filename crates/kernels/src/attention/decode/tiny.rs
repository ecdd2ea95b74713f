//! Keys and values in 8-bit floats: a stage is copied as it is stored, and every warp turns what it
//! multiplies into halves in its registers.
//!
//! `ldmatrix` moves pairs of bytes. Of a row of 16 keys' elements a lane gets four neighbours, where a
//! product of halves wants two and the two that are 8 further. The order along the depth is free as
//! long as both factors have the same, so the queries are stored in that order ([`fill_queries`]).
//! Transposed, a lane gets two neighbouring elements of two keys: the even elements of 16 are the columns
//! of one product and the odd ones those of the next, and a lane then has four neighbours of each row of
//! the results (in `rows`).

use super::DecodeArgs;
use super::rows::Rows;
use super::work::Part;
use crate::attention::params::Element;
use heist_builder::{Bool, E4m3, FragmentB, On, SharedTile, Val, WarpTile, f16};

/// Elements whose order is changed together.
const GROUP: u32 = 16;

/// The largest half.
const MOST: f32 = 65504.0;

/// Fills the tile of queries: `threads` threads, of which this is number `thread`, each with 16
/// elements of a row at a time. Rows past the last are zeros.
pub(super) fn fill_queries<'k, T: Element>(
    args: &DecodeArgs<On<'k>>,
    part: &Part<'k>,
    queries: &SharedTile<'k, f16>,
    thread: Val<'k, u32>,
    threads: u32,
) {
    let k = thread.kernel();
    let groups = queries.cols() / GROUP;
    let total = queries.rows() * groups;
    for trip in 0..total.div_ceil(threads) {
        let index = thread + trip * threads;
        let (row, group) = (index / groups, index % groups);
        let whole = (trip + 1) * threads <= total;
        k.if_(k.c(whole) | index.lt(total), || {
            let words = [(); 8].map(|()| k.var(0u32));
            k.if_(part.has(args, row), || {
                let from = part.query(args, row);
                let from = args.q.cast::<T>().at(from).at(group * GROUP);
                for (four, words) in words.chunks_exact(2).enumerate() {
                    let values = from.at(4 * four).load_vec::<4>();
                    let values = values.map(|value| value.cast::<f32>().max(-MOST).min(MOST));
                    for (word, pair) in words.iter().zip(values.chunks_exact(2)) {
                        word.set(Val::pack_as::<f16>(pair[0], pair[1]).bitcast());
                    }
                }
            });
            for half in 0..2 {
                let to = queries.chunk(row, group * 2 + half as u32).cast::<u32>();
                to.store_vec([0, 2, 4, 6].map(|word| words[word + half].get()));
            }
        });
    }
}

impl<'k> Rows<'k, f16> {
    /// The same as [`stage`](Rows::stage) for keys and values of 8 bits.
    pub(super) fn tiny_stage(
        &self,
        stage: &SharedTile<'k, f16>,
        first: Val<'k, u32>,
        masked: Bool<'k>,
    ) {
        let (high, wide) = (self.shape().row_blocks, self.shape().cols() / 8);
        let scores = WarpTile::zero(&self.kernel(), high as usize, wide as usize);
        self.tiny_scores(stage, &scores);
        // Of 32 rows asked for before the softmax, which takes as long as they take to come; of fewer that was up to 2 in a hundred slower.
        let words = (high > 1).then(|| self.tiny_words(stage, 0));
        self.admit(&scores, first, masked);
        self.tiny_values(stage, &scores, words);
    }

    /// The scores of a stage's keys, from keys of 8 bits.
    fn tiny_scores(&self, stage: &SharedTile<'k, f16>, scores: &WarpTile<'k>) {
        let k = stage.kernel();
        let lane = k.lane();
        // Two blocks of 8 keys by two groups of 16 elements.
        let row = self.first_row() + self.panel() * self.shape().panel_rows() + (lane & 15);
        let chunk = self.chunk() + (lane >> 4);
        for step in (0..self.shape().head_dim / GROUP).step_by(2) {
            let left = [step, step + 1].map(|step| {
                let blocks = 0..self.shape().row_blocks;
                blocks.map(|m| self.queries(m, step)).collect::<Vec<_>>()
            });
            let (panel, within) = (step / 8, step % 8);
            for pair in 0..self.shape().cols() / 16 {
                let (down, right) = self.shape().place_of_keys(pair);
                let row = row + (panel * self.shape().panel_rows() + down);
                let at = stage.chunk(row, chunk + (within + right));
                let words = at.load_matrices::<4>();
                for (index, word) in words.into_iter().enumerate() {
                    let right = FragmentB::from_pairs(word.bitcast::<u32>().unpack_four::<E4m3>());
                    let (block, group) = (index & 1, index >> 1);
                    for (m, left) in left[group].iter().enumerate() {
                        if let Some(sums) = scores.block(m, 2 * pair as usize + block) {
                            sums.mma(left, &right);
                        }
                    }
                }
            }
        }
    }

    /// The values of 16 keys, of 32 elements each: keys 0 to 7 and 8 to 15 of one group of elements, then of the next.
    fn tiny_words(&self, stage: &SharedTile<'k, f16>, step: u32) -> Vec<[Val<'k, u32>; 4]> {
        let (shape, lane) = (self.shape(), stage.kernel().lane());
        let values = self.panel() * shape.panel_rows() + shape.panels() * shape.key_rows();
        let row = self.first_row() + values + (lane & 15);
        let chunk = self.chunk() + (lane >> 4);
        let (down, right) = shape.place_of_keys(step);
        let groups = (0..shape.head_dim / GROUP).step_by(2);
        let words = groups.map(|group| {
            let (panel, within) = (group / 8, group % 8);
            let row = row + (panel * shape.panel_rows() + down);
            let at = stage.chunk(row, chunk + (within + right));
            at.load_matrices_transposed::<4>().map(Val::bitcast)
        });
        words.collect()
    }

    /// Weighs a stage's values of 8 bits, of which those of the first 16 keys may be on their way.
    fn tiny_values(
        &self,
        stage: &SharedTile<'k, f16>,
        scores: &WarpTile<'k>,
        mut ahead: Option<Vec<[Val<'k, u32>; 4]>>,
    ) {
        let (shape, softmax) = (self.shape(), self.softmax());
        for step in 0..shape.cols() / 16 {
            let weights: Vec<_> = (0..shape.row_blocks as usize)
                .filter_map(|m| softmax.weights::<f16>(scores, m, step as usize, shape.weights))
                .collect();
            let words = ahead.take().unwrap_or_else(|| self.tiny_words(stage, step));
            for (two, words) in words.into_iter().enumerate() {
                let halves = words.map(|word| word.with_bytes([0, 2, 1, 3]).unpack_four::<E4m3>());
                for (next, keys) in halves.chunks_exact(2).enumerate() {
                    let [low, high] = [keys[0], keys[1]];
                    for (odd, pair) in low.into_iter().zip(high).enumerate() {
                        let right = FragmentB::from_pairs([pair.0, pair.1]);
                        let column = 2 * (2 * two + next) + odd;
                        for (m, weights) in weights.iter().enumerate() {
                            if let Some(sums) = self.results().block(m, column) {
                                weights.iter().for_each(|left| sums.mma(left, &right));
                            }
                        }
                    }
                }
            }
        }
    }
}
