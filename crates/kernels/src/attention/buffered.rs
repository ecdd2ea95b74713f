//! Tensor cores fed by asynchronous copies: the `buffered`, `large` and
//! `persistent` rungs, which differ in their tiles and in who runs them.

use super::config::{Config, Feed};
use super::finish::{merge, store};
use super::params::{AttentionArgs, Element};
use super::place::{Blocks, Place};
use super::team::{Team, key_tile, query_tile};
use heist_build::{FillTile, Global, Kernel, On, Ptr, Val};
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
            q.copy_rows(place.q, args.q_row, Some(place.rows));
        });
        let blocks = place.blocks(config.rows(), config.width(), config.splits);
        let keys = Rows::new(&place, &blocks, place.k, args.k_row);
        let values = Rows::new(&place, &blocks, place.v, args.k_row);
        match config.feed {
            Feed::Pairs => {
                let specs = (key_tile::<T>(config, "k"), key_tile::<T>(config, "v"));
                let ahead = config.stages - 1;
                let pipeline = k.copy_pipeline_of(config.stages, specs);
                let running = pipeline.start(|index, (to_k, to_v)| {
                    keys.copy(k.c(index), &to_k, true);
                    values.copy(k.c(index), &to_v, true);
                });
                let queries = queries.wait();
                let team = Team::new(k, args, config, &place, &queries);
                blocks.each(|index, masked| {
                    running.step(
                        |(to_k, to_v)| {
                            keys.copy(index + ahead, &to_k, masked);
                            values.copy(index + ahead, &to_v, masked);
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
                let copy = |index: Val<'k, u32>, turn: u32, to: &FillTile<'k, T>, masked| {
                    let rows = if turn.is_multiple_of(2) {
                        &keys
                    } else {
                        &values
                    };
                    rows.copy(index + turn / 2, to, masked);
                };
                let running = pipeline.start(|turn, to| copy(k.c(0), turn, &to, true));
                let queries = queries.wait();
                let team = Team::new(k, args, config, &place, &queries);
                let scores = team.scores();
                blocks.each(|index, masked| {
                    running.step(
                        |to| copy(index, ahead, &to, masked),
                        |keys| {
                            scores.clear();
                            team.score(&scores, &keys, masked.then(|| blocks.first_key(index)));
                        },
                    );
                    running.step(
                        |to| copy(index, ahead + 1, &to, masked),
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

/// The rows of the keys, or of the values, in blocks.
struct Rows<'a, 'k, T> {
    place: &'a Place<'k, T>,
    blocks: &'a Blocks<'k>,
    from: Ptr<'k, Global, T>,
    pitch: Val<'k, u32>,
}

impl<'a, 'k, T: Element> Rows<'a, 'k, T> {
    fn new(
        place: &'a Place<'k, T>,
        blocks: &'a Blocks<'k>,
        from: Ptr<'k, Global, T>,
        pitch: Val<'k, u32>,
    ) -> Self {
        Rows {
            place,
            blocks,
            from,
            pitch,
        }
    }

    /// Starts copying block `index`, if there is one. A block at an edge may
    /// reach past the last key.
    fn copy(&self, index: Val<'k, u32>, to: &FillTile<'k, T>, edge: bool) {
        let k = index.kernel();
        k.if_(index.lt(self.blocks.count), || {
            let first = self.blocks.first_key(index);
            let from = self.from.at(first.mul_wide(self.pitch));
            let inside = edge.then(|| self.place.keys_from(first));
            to.copy_rows(from, self.pitch, inside);
        });
    }
}
