//! When tiles that read the same keys read them: at the same time, or so far apart that memory gives them again.
//!
//! The tiles of a key head of one sequence, where it has several, read the same keys. Unit `u` is read when the block that has it has come so
//! far in its share: at `u` modulo the share. Tiles whose units begin `d` apart are therefore `d` modulo the share apart in time, and what all blocks
//! read meanwhile drives the keys out of the L2 cache, or does not. Tiles of a sequence follow each other (`d` is the blocks of a tile), or come in
//! rounds (`d` is the units of a round): which is better, and for how many blocks, depends on the sequences' number and lengths.

use super::heuristics::{seen_keys, sequence_tiles};
use super::shape::DecodeShape;
use crate::attention::problem::Problem;

/// Bytes that may be read between two readings of a key so that the second finds it in the L2 cache: of an H200, which has 50 MB. With 39 MB between
/// them 50 sequences of six tiles took 15 in a hundred less than with 400.
const KEPT: f64 = 40e6;
/// Bytes in a microsecond that an H200's memory gave where keys came twice.
const RATE: f64 = 3.9e6;
/// Microseconds that a stage of 32 keys takes whose keys are there.
const STAGE: f64 = 1.0;
/// Microseconds in which a block looks for its work among 32 sequences more: in rounds there are as many more as tiles.
const SEARCH: f64 = 2.0;
/// What another order or another number of blocks has to gain: the model is no better than that.
const GAIN: f64 = 0.97;

/// The rounds in which tiles come, and the blocks among which they are dealt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) rounds: u32,
    pub(super) blocks: u32,
}

/// Sequences as the model sees them: the tiles of each of their key heads, and the key blocks of a tile.
struct Model {
    sequences: Vec<(u32, u64)>,
    /// Units of each round.
    rounds: Vec<u64>,
    kv_heads: u64,
    stage_bytes: f64,
}

impl Model {
    fn of(problem: &Problem, shape: &DecodeShape) -> Model {
        let lengths = problem.sequences();
        let sequence = |&(queries, keys): &(u32, u32)| {
            let blocks = seen_keys(problem, [queries, keys]).div_ceil(shape.keys);
            (
                sequence_tiles(problem, shape, queries),
                u64::from(blocks.max(1)),
            )
        };
        let sequences: Vec<_> = lengths.iter().map(sequence).collect();
        let kv_heads = u64::from(problem.kv_heads / shape.heads);
        let most = sequence_tiles(problem, shape, problem.longest().0);
        let mut rounds = vec![0; most as usize];
        for &(tiles, blocks) in &sequences {
            for round in rounds.iter_mut().take(tiles as usize) {
                *round += kv_heads * blocks;
            }
        }
        Model {
            sequences,
            rounds,
            kv_heads,
            stage_bytes: shape.stage_bytes().into(),
        }
    }

    /// Microseconds in `rounds` rounds of tiles, dealt to `blocks` blocks.
    fn time(&self, Phase { rounds, blocks }: Phase) -> f64 {
        let total = self.rounds.iter().sum::<u64>().max(1);
        let share = total.div_ceil(blocks.into());
        let in_flight = f64::from(blocks) * self.stage_bytes;
        // How often keys come anew that begin so many units behind where they came before.
        let anew = |apart: u64| {
            let late = apart % share;
            let part = late as f64 / share as f64;
            let lost = |late: u64| f64::from(u8::from(late as f64 * in_flight > KEPT));
            lost(late) * (1.0 - part) + lost(share - late) * part
        };
        let mut units = 0.0;
        for &(tiles, blocks) in &self.sequences {
            // The first tile's keys come from memory, those of each other one if they come anew.
            let mut often = f64::from(tiles.min(1));
            for before in self.rounds.iter().take(tiles.saturating_sub(1) as usize) {
                often += anew(if rounds == 1 { blocks } else { *before });
            }
            units += (self.kv_heads * blocks) as f64 * often;
        }
        let more = (rounds - 1) as usize * self.sequences.len();
        let search = SEARCH * (more as f64 / 32.0).ceil();
        let by_memory = units * self.stage_bytes / RATE;
        by_memory.max(share as f64 * STAGE) + search
    }
}

/// Rounds and blocks for a problem whose blocks would be `usual` in number on `sms` multiprocessors. `rounds` says which are looked at.
fn best(model: &Model, rounds: &[u32], usual: u32, sms: u32) -> Phase {
    let first = Phase {
        rounds: rounds[0],
        blocks: usual,
    };
    let nearby = (sms - sms / 16..=sms).rev();
    let all = rounds.iter().flat_map(|&rounds| {
        let nearby = nearby.clone();
        nearby.map(move |blocks| Phase { rounds, blocks })
    });
    let usual = rounds.iter().map(|&rounds| Phase { rounds, ..first });
    let mut chosen = (model.time(first), first);
    for other in usual.chain(all) {
        let time = model.time(other);
        // The first of those that are about as good: the usual number of blocks, and one round.
        if time < chosen.0 * GAIN {
            chosen = (time, other);
        }
    }
    chosen.1
}

/// In how many rounds tiles come.
pub(super) fn rounds(problem: &Problem, shape: &DecodeShape, usual: u32, sms: u32) -> u32 {
    let most = sequence_tiles(problem, shape, problem.longest().0);
    match most {
        ..=1 => 1,
        _ => best(&Model::of(problem, shape), &[1, most], usual, sms).rounds,
    }
}

/// Among how many blocks tiles are dealt that come in the shape's rounds.
pub(super) fn blocks(problem: &Problem, shape: &DecodeShape, usual: u32, sms: u32) -> u32 {
    match sequence_tiles(problem, shape, problem.longest().0) {
        ..=1 => usual,
        _ => best(&Model::of(problem, shape), &[shape.rounds], usual, sms).blocks,
    }
}

#[cfg(test)]
mod tests {
    use super::super::heuristics::{decode_grid, decode_shape};
    use crate::attention::cache::Cache;
    use crate::attention::problem::Problem;
    use crate::family::Target;
    use heist_builder::Arch;

    /// Rounds and blocks that are chosen for latent attention of so many sequences, queries of each and keys, with 128 heads.
    fn chosen(batch: usize, queries: u32, keys: u32) -> [u32; 2] {
        let target = Target {
            arch: Arch::SM_90A,
            sms: 132,
        };
        let mut problem = Problem::ragged(vec![(queries, keys); batch], 128, 576);
        (problem.kv_heads, problem.cache) = (1, Cache::Latent);
        (problem.value_dim, problem.page_size) = (Some(512), Some(64));
        let shape = decode_shape(&problem, target);
        [shape.rounds, decode_grid(&problem, &shape, target).blocks]
    }

    /// Blocks that have both tiles of a sequence one after the other read its keys twice; blocks with one tile, or part of one, read them with their
    /// neighbours.
    #[test]
    fn tiles_come_in_rounds_where_blocks_would_have_several_of_a_sequence() {
        for (batch, queries, keys) in [(4, 1, 32_768), (32, 2, 8192), (16, 1, 8192), (64, 1, 8192)]
        {
            assert_eq!(
                chosen(batch, queries, keys),
                [1, 128],
                "{batch} {queries} {keys}"
            );
        }
        for (batch, queries, keys) in [
            (128, 1, 4096),
            (100, 1, 4096),
            (128, 2, 2048),
            (50, 3, 3000),
        ] {
            let [rounds, _] = chosen(batch, queries, keys);
            assert_eq!(rounds, 2 * queries, "{batch} {queries} {keys}");
        }
    }

    /// With 132 blocks second tiles of 24 sequences would come a quarter of a share behind the first ones: 128 have whole shares of a round.
    #[test]
    fn blocks_are_as_many_as_bring_second_tiles_into_step() {
        assert_eq!(chosen(24, 1, 16_384), [2, 128]);
        assert_eq!(chosen(48, 2, 4096), [4, 128]);
        // A few that find their keys at once are left alone.
        assert_eq!(chosen(1, 1, 2000)[0], 1);
    }
}
