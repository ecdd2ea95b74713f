//! The mainloop of one warp over its rows: scores, softmax, weighted values.

use super::config::Config;
use super::mask::{KeyRange, hide_masked};
use super::params::{AttentionArgs, Element};
use super::problem::Weights;
use super::query_tile::QueryTile;
use super::score::{Rules, Scores, modify};
use super::softmax::Softmax;
use heist_builder::{
    ASource, Accumulator, FragmentA, Kernel, On, SharedTile, TileSpec, Val, WarpTile,
};

/// The part of a tile that is one warp's: some of its rows, some of its keys.
pub(crate) struct WarpMainloop<'k, T: Element> {
    k: Kernel<'k>,
    head_dim: u32,
    cols: u32,
    weights: Weights,
    /// The warp's first row in the tile.
    pub(crate) row: Val<'k, u32>,
    /// The warp's first key in a block of keys.
    col: Val<'k, u32>,
    queries: Queries<'k, T>,
    seen: Vec<[KeyRange<'k>; 2]>,
    /// What becomes of the scores, where something does, and the factor of the products.
    rules: Option<Vec<[Rules<'k>; 2]>>,
    scale: Val<'k, f32>,
    /// The score of no key, where there is one.
    pub(crate) sink: Option<Val<'k, f32>>,
    pub(crate) softmax: Softmax<'k>,
    /// What the values weighed so far come to.
    pub(crate) results: WarpTile<'k>,
}

/// Where the left fragments of the scores are.
enum Queries<'k, T: Element> {
    /// Loaded again for each block of keys.
    Shared(ASource<'k, T>),
    /// Kept: row blocks by steps.
    Registers(Vec<Vec<FragmentA<'k, T>>>),
}

/// The block of keys whose scores are worked out.
pub(crate) struct KeyBlock<'k> {
    /// Its first key, where it matters which keys they are.
    pub(crate) first: Option<Val<'k, u32>>,
    /// Whether some rows may not see all of it.
    pub(crate) masked: bool,
}

/// The shape of the queries in shared memory.
pub(crate) fn query_tile<T: Element>(config: &Config) -> TileSpec<'static, T> {
    TileSpec::new("q", config.rows(), config.head_dim, config.layout())
}

/// The shape of a block of keys, or of values.
pub(crate) fn key_tile<T: Element>(config: &Config, name: &'static str) -> TileSpec<'static, T> {
    TileSpec::new(name, config.width(), config.head_dim, config.layout())
}

impl<'k, T: Element> WarpMainloop<'k, T> {
    /// Of the warp that asks, over queries that lie in shared memory.
    pub(crate) fn new(
        k: &Kernel<'k>,
        args: &AttentionArgs<On<'k>>,
        config: &Config,
        scores: &Scores<'_, 'k>,
        place: &QueryTile<'k, T>,
        queries: &SharedTile<'k, T>,
    ) -> WarpMainloop<'k, T> {
        let warp = k.warp();
        let (down, across) = if config.across == 1 {
            (warp, k.c(0))
        } else {
            (warp % config.down, warp / config.down)
        };
        let row = down * (16 * config.row_blocks);
        let blocks = config.row_blocks;
        let steps = config.head_dim / 16;
        let source = queries.a_rows(row);
        let queries = if config.q_in_registers {
            let block = |m| (0..steps).map(|step| source.fragment(m, step)).collect();
            Queries::Registers((0..blocks).map(block).collect())
        } else {
            Queries::Shared(source)
        };
        let lane_row = row + Accumulator::row(k);
        let seen =
            (0..blocks).map(|m| [0, 8].map(|down| place.seen_by(lane_row + (16 * m + down))));
        let rules = |m: u32| {
            let rules = |down: u32| place.rules(scores, || lane_row + (16 * m + down));
            Some([rules(0)?, rules(8)?])
        };
        WarpMainloop {
            k: *k,
            head_dim: config.head_dim,
            cols: config.cols,
            weights: config.weights,
            row,
            col: across * config.cols,
            queries,
            seen: seen.collect(),
            rules: (0..blocks).map(rules).collect(),
            scale: args.scale,
            sink: place.sink(scores),
            softmax: Softmax::new(k, scores.factor(args.scale), blocks as usize),
            results: WarpTile::zero(k, blocks as usize, (config.head_dim / 8) as usize),
        }
    }

    /// Registers for the scores of a block.
    pub(crate) fn scores(&self) -> WarpTile<'k> {
        WarpTile::zero(&self.k, self.seen.len(), (self.cols / 8) as usize)
    }

    /// A block of keys: whether some rows may not see all of it, and its first key, where
    /// it matters which keys they are.
    pub(crate) fn block(&self, masked: bool, first: impl FnOnce() -> Val<'k, u32>) -> KeyBlock<'k> {
        KeyBlock {
            first: (masked || self.rules.is_some()).then(first),
            masked,
        }
    }

    /// The scores of a block of keys, unscaled unless they are changed.
    pub(crate) fn score(
        &self,
        scores: &WarpTile<'k>,
        keys: &SharedTile<'k, T>,
        block: &KeyBlock<'k>,
    ) {
        let keys = keys.b_rows(self.col);
        for step in 0..self.head_dim / 16 {
            let left: Vec<Vec<FragmentA<'k, T>>> = match &self.queries {
                Queries::Shared(source) => (0..self.seen.len() as u32)
                    .map(|m| vec![source.fragment(m, step)])
                    .collect(),
                Queries::Registers(kept) => {
                    kept.iter().map(|row| vec![row[step as usize]]).collect()
                }
            };
            for pair in 0..self.cols / 16 {
                let right = keys.fragments(pair, step);
                multiply(scores, pair as usize, &left, &right);
            }
        }
        if let (Some(first), Some(rules)) = (block.first, &self.rules) {
            modify(scores, rules, self.scale, first + self.col);
        }
        if let (Some(first), true) = (block.first, block.masked) {
            hide_masked(scores, &self.seen, first + self.col);
        }
    }

    /// Turns scores into weights and adds the values weighed by them.
    pub(crate) fn weigh(&self, scores: &WarpTile<'k>, values: &SharedTile<'k, T>) {
        self.softmax.admit(scores, &self.results);
        let values = values.b_columns_from(self.col, 0);
        for keys in 0..self.cols / 16 {
            let left: Vec<Vec<FragmentA<'k, T>>> = (0..self.seen.len())
                .filter_map(|m| self.softmax.weights(scores, m, keys as usize, self.weights))
                .collect();
            for pair in 0..self.head_dim / 16 {
                let right = values.fragments(pair, keys);
                multiply(&self.results, pair as usize, &left, &right);
            }
        }
    }
}

/// Adds the products of all row blocks, which are sums of terms, with two
/// neighbouring columns of blocks.
fn multiply<'k, T: Element>(
    sums: &WarpTile<'k>,
    pair: usize,
    left: &[Vec<FragmentA<'k, T>>],
    right: &[heist_builder::FragmentB<'k, T>; 2],
) {
    // All first terms before the second ones: no product waits for the last.
    let terms = left.iter().map(Vec::len).max().unwrap_or(0);
    for term in 0..terms {
        for (m, left) in left.iter().enumerate() {
            for (n, right) in right.iter().enumerate() {
                if let (Some(left), Some(block)) = (left.get(term), sums.block(m, 2 * pair + n)) {
                    block.mma(left, right);
                }
            }
        }
    }
}
