//! Tensor cores fed by asynchronous copies: the `buffered`, `large` and
//! `persistent` rungs, which differ in their tiles and in their schedule.

use super::config::{Config, Feed};
use super::epilogue::{MergeShape, merge, store};
use super::mainloop::{WarpMainloop, key_tile, query_tile};
use super::mask::Blocks;
use super::params::{AttentionArgs, Element};
use super::query_tile::QueryTile;
use super::score::Scores;
use heist_builder::{FillTile, Kernel, On, Val};
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
    k.if_(place.rows.gt(0), || {
        let queries = k.copy_once(query_tile::<T>(config), |q| {
            q.copy_rows(place.q(), args.q_row, Some(place.rows));
        });
        let aside = config.set_aside.then(|| place.destination().set_aside(k));
        let destination = || match &aside {
            Some(aside) => aside.take(),
            None => place.destination(),
        };
        let blocks = place.blocks(config.rows(), config.width(), config.splits);
        let keys = |number, to: &FillTile<'k, T>, edge| {
            copy(&place, &blocks, What::Keys, number, to, edge);
        };
        let values = |number, to: &FillTile<'k, T>, edge| {
            copy(&place, &blocks, What::Values, number, to, edge);
        };
        match config.feed {
            Feed::Pairs => {
                let specs = (key_tile::<T>(config, "k"), key_tile::<T>(config, "v"));
                let ahead = config.stages as i32 - 1;
                let pipeline = k.copy_pipeline_of(config.stages, specs);
                let running = pipeline.start(|index, (to_k, to_v)| {
                    keys(blocks.begin + index as i32, &to_k, true);
                    values(blocks.begin + index as i32, &to_v, true);
                });
                let queries = queries.wait();
                let warp = WarpMainloop::new(k, args, config, scores, &place, &queries);
                blocks.each(|number, masked| {
                    running.step(
                        |(to_k, to_v)| {
                            keys(number + ahead, &to_k, masked);
                            values(number + ahead, &to_v, masked);
                        },
                        |(keys, values)| {
                            let scores = warp.scores();
                            let block = warp.block(masked, || blocks.first_key(number));
                            warp.score(&scores, &keys, &block);
                            warp.weigh(&scores, &values);
                        },
                    );
                });
                running.finish();
                merge_warps(k, config, &warp);
                store(k, args, config, &destination(), &warp, &queries);
            }
            Feed::Turns => {
                // Stage after stage: keys of a block, its values, the next one's keys.
                let ahead = config.stages - 1;
                let pipeline = k.copy_pipeline_of(config.stages, key_tile::<T>(config, "kv"));
                let turns = |number: Val<'k, i32>, turn: u32, to: &FillTile<'k, T>, masked| {
                    if turn.is_multiple_of(2) {
                        keys(number + (turn / 2) as i32, to, masked);
                    } else {
                        values(number + (turn / 2) as i32, to, masked);
                    }
                };
                let running = pipeline.start(|turn, to| turns(blocks.begin, turn, &to, true));
                let queries = queries.wait();
                let warp = WarpMainloop::new(k, args, config, scores, &place, &queries);
                let products = warp.scores();
                blocks.each(|number, masked| {
                    running.step(
                        |to| turns(number, ahead, &to, masked),
                        |keys| {
                            products.clear();
                            let block = warp.block(masked, || blocks.first_key(number));
                            warp.score(&products, &keys, &block);
                        },
                    );
                    running.step(
                        |to| turns(number, ahead + 1, &to, masked),
                        |values| warp.weigh(&products, &values),
                    );
                });
                running.finish();
                merge_warps(k, config, &warp);
                store(k, args, config, &destination(), &warp, &queries);
            }
        }
    });
}

/// Brings together what warps with the same rows have.
fn merge_warps<'k, T: Element>(k: &Kernel<'k>, config: &Config, warp: &WarpMainloop<'k, T>) {
    let shape = MergeShape {
        down: config.down,
        across: config.across,
    };
    merge(k, shape, k.warp(), &warp.softmax, &warp.results, || {
        k.sync()
    });
}

/// Starts copying a block of the keys or the values, if there is one of that
/// number. A block at an edge may reach past the last key.
fn copy<'k, T: Element>(
    place: &QueryTile<'k, T>,
    blocks: &Blocks<'k>,
    what: What,
    number: Val<'k, i32>,
    to: &FillTile<'k, T>,
    edge: bool,
) {
    let k = number.kernel();
    k.if_(blocks.has(number), || {
        let first = blocks.first_key(number);
        let from = match what {
            What::Keys => place.k(first),
            What::Values => place.v(first),
        };
        let inside = edge.then(|| place.keys_from(first));
        to.copy_rows(from, place.key_pitch(), inside);
    });
}

/// Which of the two.
#[derive(Clone, Copy)]
enum What {
    Keys,
    Values,
}
