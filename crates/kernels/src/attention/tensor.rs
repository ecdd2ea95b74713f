//! Both products on tensor cores, without other optimisations: keys and values by ordinary loads,
//! one block at a time.

use super::config::Config;
use super::epilogue::store;
use super::load::fill;
use super::mainloop::{WarpMainloop, key_tile, query_tile};
use super::params::{AttentionArgs, Element};
use super::query_tile::QueryTile;
use super::score::Scores;
use heist_builder::{Kernel, On};
use heist_sched::Tile;

/// One tile.
pub(crate) fn tile<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    scores: &Scores<'_, 'k>,
    tile: &Tile<'k>,
) {
    let place = QueryTile::<T>::of(k, args, config, scores, tile);
    let queries = k.tile(query_tile::<T>(config));
    let keys = k.tile(key_tile::<T>(config, "k"));
    let values = k.tile(key_tile::<T>(config, "v"));
    k.if_(place.rows.gt(0), || {
        fill(k, &queries, place.q(), args.q_row, place.rows);
        k.sync();
        let warp = WarpMainloop::new(k, args, config, scores, &place, &queries);
        place
            .blocks(config.rows(), config.width(), 1)
            .each_with_first_key(|first, masked| {
                let inside = place.keys_from(first);
                fill(k, &keys, place.k(first), args.k_row, inside);
                fill(k, &values, place.v(first), args.k_row, inside);
                k.sync();
                let scores = warp.scores();
                warp.score(&scores, &keys, &warp.block(masked, || first));
                warp.weigh(&scores, &values);
                k.sync();
            });
        store(k, args, config, &place.destination(), &warp, &queries);
    });
}
