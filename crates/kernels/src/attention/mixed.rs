//! Scores on tensor cores from queries in shared memory; softmax and values by
//! eight threads to a row, as in [`scalar`](super::scalar).

use super::config::Config;
use super::load::fill;
use super::mainloop::{WarpMainloop, key_tile, query_tile};
use super::params::{AttentionArgs, Element};
use super::query_tile::QueryTile;
use super::scalar::{LANES, floats};
use super::score::Scores;
use super::softmax::Row;
use heist_builder::{Group, Kernel, On, Ptr, Shared, Val, Var};
use heist_sched::Tile;

/// Rows that a group of eight lanes has, of a warp's sixteen.
const ROWS: u32 = 4;

/// One tile.
pub(crate) fn tile<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    plain: &Scores<'_, 'k>,
    tile: &Tile<'k>,
) {
    let place = QueryTile::<T>::of(k, args, config, plain, tile);
    let queries = k.tile(query_tile::<T>(config));
    let keys = k.tile(key_tile::<T>(config, "k"));
    let values = k.tile(key_tile::<T>(config, "v"));
    // One more, so that rows start in different banks.
    let pitch = config.width() + 1;
    let scores = k.shared::<f32>("scores", config.rows() * pitch);
    let each = config.head_dim / LANES;
    k.if_(place.rows.gt(0), || {
        fill(k, &queries, place.q(), args.q_row, place.rows);
        k.sync();
        let warp = WarpMainloop::new(k, args, config, plain, &place, &queries);
        let (group, part) = (k.lane() / LANES, k.lane() % LANES);
        let col = part * each;
        let rows: Vec<SharedRow<'k>> = (0..ROWS)
            .map(|index| SharedRow {
                row: warp.row + group + index * (16 / ROWS),
                state: Row::new(k),
                results: (0..each).map(|_| k.var(0.0f32)).collect(),
            })
            .collect();
        place
            .blocks(config.rows(), config.width(), 1)
            .each_with_first_key(|first, masked| {
                let inside = place.keys_from(first);
                fill(k, &keys, place.k(first), args.k_row, inside);
                fill(k, &values, place.v(first), args.k_row, inside);
                k.sync();
                let products = warp.scores();
                warp.score(&products, &keys, &warp.block(masked, || first));
                products.each_pair(|row, col, pair| {
                    let to = scores.at((warp.row + row).mul_add(pitch, col));
                    to.store(pair[0] * args.scale);
                    to.at(1).store(pair[1] * args.scale);
                });
                k.sync_warp();
                for row in &rows {
                    let line = scores.at(row.row.mul_add(pitch, part));
                    let own: Vec<_> = (0..config.width() / LANES)
                        .map(|index| line.at(index * LANES))
                        .collect();
                    row.admit(&own);
                }
                k.sync_warp();
                k.for_range(0, inside.min(config.width()), |key| {
                    let value = floats(values.at(key, col), each);
                    for row in &rows {
                        let weight = scores.at(row.row.mul_add(pitch, key)).load();
                        for (result, &value) in row.results.iter().zip(&value) {
                            result.update(|sum| value.mul_add(weight, sum));
                        }
                    }
                });
                k.sync();
            });
        for row in &rows {
            k.if_(row.row.lt(place.rows), || {
                let factor = row.state.normaliser();
                let sums: Vec<_> = row.results.iter().map(|sum| sum.get() * factor).collect();
                place.store(config.output, row.row.mul_add(args.q_row, col), &sums);
                k.if_(part.eq(0), || {
                    let to = args.lse.at(place.row_number + row.row);
                    to.store(row.state.log_sum());
                });
            });
        }
    });
}

/// A row of a tile, as eight lanes share it.
struct SharedRow<'k> {
    row: Val<'k, u32>,
    state: Row<'k>,
    results: Vec<Var<'k, f32>>,
}

impl<'k> SharedRow<'k> {
    /// Turns this lane's scores into weights, in place.
    fn admit(&self, scores: &[Ptr<'k, Shared, f32>]) {
        let values: Vec<_> = scores.iter().map(|at| at.load()).collect();
        let Some(highest) = values.iter().copied().reduce(|a, b| a.max(b)) else {
            return;
        };
        let level = self.state.level.get().max(highest.group_max(Group::Eight));
        let factor = (self.state.level.get() - level).exp2_approx();
        self.state.level.set(level);
        let weights: Vec<_> = values
            .iter()
            .map(|&score| (score - level).exp2_approx())
            .collect();
        let Some(sum) = weights.iter().copied().reduce(|a, b| a + b) else {
            return;
        };
        let sum = sum.sum(Group::Eight);
        self.state.sum.update(|old| old.mul_add(factor, sum));
        for result in &self.results {
            result.update(|sum| sum * factor);
        }
        for (at, weight) in scores.iter().zip(weights) {
            at.store(weight);
        }
    }
}
