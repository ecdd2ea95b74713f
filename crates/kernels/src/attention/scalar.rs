//! The plainest kernel: eight threads to a query row, each with an eighth of the
//! head, one key after the other.

use super::config::Config;
use super::load::fill;
use super::mainloop::key_tile;
use super::params::{AttentionArgs, Element};
use super::query_tile::QueryTile;
use super::score::Scores;
use super::softmax::Row;
use heist_builder::{Group, Kernel, On, Ptr, Space, Val};
use heist_sched::Tile;

/// Threads to a row.
pub(crate) const LANES: u32 = 8;

/// One tile.
pub(crate) fn tile<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    plain: &Scores<'_, 'k>,
    tile: &Tile<'k>,
) {
    let place = QueryTile::<T>::of(k, args, config, plain, tile);
    let keys = k.tile(key_tile::<T>(config, "k"));
    let values = k.tile(key_tile::<T>(config, "v"));
    let each = config.head_dim / LANES;
    k.if_(place.rows.gt(0), || {
        let (row, part) = (k.thread_index() / LANES, k.thread_index() % LANES);
        let col = part * each;
        // Rows past the end repeat the last one, and are not stored.
        let at = row.min(place.rows - 1).mul_add(args.q_row, col);
        let query = floats(place.q().at(at), each);
        let results: Vec<_> = (0..each).map(|_| k.var(0.0f32)).collect();
        let state = Row::new(k);
        let seen = place.seen_by(row);
        place
            .blocks(config.rows(), config.width(), 1)
            .each_with_first_key(|first, _| {
                let inside = place.keys_from(first);
                fill(k, &keys, place.k(first), args.k_row, inside);
                fill(k, &values, place.v(first), args.k_row, inside);
                k.sync();
                k.for_range(0, inside.min(config.width()), |index| {
                    let key = floats(keys.at(index, col), each);
                    let product = query.iter().zip(&key);
                    let product = product.fold(k.c(0.0f32), |sum, (q, k)| q.mul_add(*k, sum));
                    let product = product.sum(Group::Eight);
                    let score = seen.or_hidden((first + index).cast(), product * args.scale);
                    let level = state.level.get().max(score);
                    let factor = (state.level.get() - level).exp2_approx();
                    let weight = (score - level).exp2_approx();
                    state.level.set(level);
                    state.sum.update(|sum| sum.mul_add(factor, weight));
                    let value = floats(values.at(index, col), each);
                    for (result, value) in results.iter().zip(value) {
                        result.update(|sum| value.mul_add(weight, sum * factor));
                    }
                });
                k.sync();
            });
        k.if_(row.lt(place.rows), || {
            let factor = state.normaliser();
            let sums: Vec<_> = results.iter().map(|sum| sum.get() * factor).collect();
            place.store(config.output, row.mul_add(args.q_row, col), &sums);
            k.if_(part.eq(0), || {
                args.lse.at(place.row_number + row).store(state.log_sum());
            });
        });
    });
}

/// `count` neighbouring halves as f32. `count` is even.
pub(crate) fn floats<'k, S: Space, T: Element>(
    from: Ptr<'k, S, T>,
    count: u32,
) -> Vec<Val<'k, f32>> {
    (0..count)
        .map(|index| from.at(index).load().cast::<f32>())
        .collect()
}
