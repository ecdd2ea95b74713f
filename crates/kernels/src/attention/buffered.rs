//! Tensor cores fed by asynchronous copies: the `buffered`, `large` and
//! `persistent` rungs, which differ in their tiles and in who runs them.

use super::config::{Config, Feed};
use super::finish::{merge, store};
use super::params::{AttentionArgs, Element};
use super::place::{Blocks, Place};
use super::team::{Team, key_tile, query_tile};
use heist_build::{FillTile, Kernel, On, Val};
use heist_sched::Tile;

/// One tile.
pub(crate) fn tile<'k, T: Element>(
    k: &Kernel<'k>,
    args: &AttentionArgs<On<'k>>,
    config: &Config,
    tile: &Tile<'k>,
) {
    let place = Place::<T>::of(k, args, config, tile);
    k.if_(place.rows.gt(0), || {
        let queries = k.copy_once(query_tile::<T>(config), |q| {
            q.copy_rows(place.q(), args.q_row, Some(place.rows));
        });
        let blocks = place.blocks(config.rows(), config.width(), config.splits);
        let keys = |index, to: &FillTile<'k, T>, edge| {
            copy(&place, &blocks, What::Keys, index, to, edge);
        };
        let values = |index, to: &FillTile<'k, T>, edge| {
            copy(&place, &blocks, What::Values, index, to, edge);
        };
        match config.feed {
            Feed::Pairs => {
                let specs = (key_tile::<T>(config, "k"), key_tile::<T>(config, "v"));
                let ahead = config.stages - 1;
                let pipeline = k.copy_pipeline_of(config.stages, specs);
                let running = pipeline.start(|index, (to_k, to_v)| {
                    keys(k.c(index), &to_k, true);
                    values(k.c(index), &to_v, true);
                });
                let queries = queries.wait();
                let team = Team::new(k, args, config, &place, &queries);
                blocks.each(|index, masked| {
                    running.step(
                        |(to_k, to_v)| {
                            keys(index + ahead, &to_k, masked);
                            values(index + ahead, &to_v, masked);
                        },
                        |(keys, values)| {
                            let scores = team.scores();
                            team.score(&scores, &keys, masked.then(|| blocks.first_key(index)));
                            team.weigh(&scores, &values);
                        },
                    );
                });
                running.finish();
                merge(k, config, &team);
                store(k, args, config, &place, &team, &queries);
            }
            Feed::Turns => {
                // Stage after stage: keys of a block, its values, the next one's keys.
                let ahead = config.stages - 1;
                let pipeline = k.copy_pipeline_of(config.stages, key_tile::<T>(config, "kv"));
                let turns = |index: Val<'k, u32>, turn: u32, to: &FillTile<'k, T>, masked| {
                    if turn.is_multiple_of(2) {
                        keys(index + turn / 2, to, masked);
                    } else {
                        values(index + turn / 2, to, masked);
                    }
                };
                let running = pipeline.start(|turn, to| turns(k.c(0), turn, &to, true));
                let queries = queries.wait();
                let team = Team::new(k, args, config, &place, &queries);
                let scores = team.scores();
                blocks.each(|index, masked| {
                    running.step(
                        |to| turns(index, ahead, &to, masked),
                        |keys| {
                            scores.clear();
                            team.score(&scores, &keys, masked.then(|| blocks.first_key(index)));
                        },
                    );
                    running.step(
                        |to| turns(index, ahead + 1, &to, masked),
                        |values| team.weigh(&scores, &values),
                    );
                });
                running.finish();
                merge(k, config, &team);
                store(k, args, config, &place, &team, &queries);
            }
        }
    });
}

/// Starts copying block `index` of the keys or the values, if there is one. A
/// block at an edge may reach past the last key.
fn copy<'k, T: Element>(
    place: &Place<'k, T>,
    blocks: &Blocks<'k>,
    what: What,
    index: Val<'k, u32>,
    to: &FillTile<'k, T>,
    edge: bool,
) {
    let k = index.kernel();
    k.if_(index.lt(blocks.count), || {
        let first = blocks.first_key(index);
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
