//! Tiles in halves of their rows, for a GPU of which others hold a part.
//!
//! A launch of a few waves whose last one is nearly full takes a whole wave longer where others hold some multiprocessors: 512
//! tiles on 132 are three waves and 116, and on 124 four waves and 16. So as many tiles are handed out as two halves as the last wave
//! leaves multiprocessors idle: the first halves to the last blocks, as their first tiles, and the second ones behind all tiles. Alone nothing takes
//! longer, since a half is done within the wave that was idle; and what is left over for a wave more is as many halves.
//!
//! A half has all of the depth, so that results are the same to the bit. Blocks that find no place are those with the highest
//! numbers: what they begin at the end is a half, too.

use crate::job::HalfTiles;
use heist_builder::Val;

/// How much longer than its share of the GPU a launch has to take without halves, where others hold as many multiprocessors as make a wave more. Measured it is
/// a few percent less, since the clock goes up: 1.14 to 1.17 of 1.17 to 1.2.
const WORTH: f64 = 1.13;

/// Which tiles of a launch are halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halves {
    /// Tiles of the launch, in all.
    tiles: u32,
    /// The first that is halved.
    pub(crate) first: u32,
    /// How many are.
    count: u32,
}

impl Halves {
    /// Of so many tiles on so many multiprocessors, if any.
    pub(crate) fn new(tiles: u32, sms: u32) -> Option<Halves> {
        let first = tiles % sms;
        (tiles > sms && first > 0).then_some(Halves {
            tiles,
            first,
            count: sms - first,
        })
    }

    /// The same where they help: where the first wave more that held multiprocessors make costs much.
    pub(crate) fn worth(tiles: u32, sms: u32) -> Option<Halves> {
        let halves = Halves::new(tiles, sms)?;
        let waves = tiles.div_ceil(sms);
        // So many are held when a wave more begins, which has so many tiles.
        let held = halves.count / waves + 1;
        let more = held * waves - halves.count;
        let [waves, own, all] = [waves, sms - held, sms].map(f64::from);
        let over = (waves + 1.0) / waves * own / all;
        (more <= halves.count && over > WORTH).then_some(halves)
    }

    /// The same for whoever looks at the launch.
    pub(crate) fn told(&self) -> HalfTiles {
        HalfTiles {
            first: self.first,
            count: self.count,
        }
    }

    /// How many tiles and halves are handed out.
    pub(crate) fn units(&self) -> u32 {
        self.tiles + self.count
    }
}

/// What is handed out: a tile, or a half of one.
#[derive(Clone, Copy)]
pub(crate) struct Half<'k> {
    /// Which tile, in the order of tiles.
    pub(crate) tile: Val<'k, u32>,
    /// The first of its rows.
    pub(crate) row: Val<'k, u32>,
    /// How many rows.
    pub(crate) used: Val<'k, u32>,
}

impl<'k> Half<'k> {
    /// What is handed out at `index` of `units`, of so many `tiles` of so many rows; the halved ones begin with `first`.
    pub(crate) fn at(
        index: Val<'k, u32>,
        units: Val<'k, u32>,
        tiles: Val<'k, u32>,
        first: Val<'k, u32>,
        rows: u32,
    ) -> Half<'k> {
        let k = index.kernel();
        let second = index.ge(tiles);
        let tile = second.select(index - tiles + first, index);
        // Those before the first wrap around.
        let halved = (tile - first).lt(units - tiles);
        Half {
            tile,
            row: second.select(k.c(rows / 2), 0u32),
            used: halved.select(k.c(rows / 2), rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a tile's time that a half of its rows takes, about.
    const TIME: f64 = 0.6;

    /// How many waves so many tiles take where blocks are handed what is next, with so many multiprocessors held.
    fn waves(halves: Option<Halves>, tiles: u32, [sms, held]: [u32; 2]) -> f64 {
        let time = |index: u32| match halves {
            Some(halves) if index >= tiles || (halves.first..sms).contains(&index) => TIME,
            _ => 1.0,
        };
        let units = halves.map_or(tiles, |halves| halves.units());
        // Blocks that find no place begin with the tile of their number when others have ended.
        let rest = (sms..units).chain(sms - held..sms);
        let mut ends: Vec<f64> = (0..sms - held).map(time).collect();
        for index in rest {
            let next = ends.iter_mut().min_by(|one, other| one.total_cmp(other));
            *next.expect("a multiprocessor") += time(index);
        }
        ends.into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn halves_cost_nothing_alone_and_save_most_of_a_wave_where_some_are_held() {
        let mut worth = 0;
        for sms in [78, 132] {
            for tiles in (sms + 1..sms * 8).step_by(9) {
                let Some(halves) = Halves::worth(tiles, sms) else {
                    continue;
                };
                worth += 1;
                let with = |held| waves(Some(halves), tiles, [sms, held]);
                let without = |held| waves(None, tiles, [sms, held]);
                let what = format!("{tiles} tiles on {sms}");
                assert!(with(0) <= without(0) + 1e-9, "{what}: {}", with(0));
                let first = (1..)
                    .find(|held| without(*held) > without(0))
                    .expect("a wave more");
                assert!(
                    with(first) < without(first) - 0.3,
                    "{what} and {first} held: {}",
                    with(first)
                );
            }
        }
        assert!(worth > 20, "{worth}");
        let large = Halves::worth(512, 132).expect("four waves but for 16");
        assert_eq!((large.first, large.count, large.units()), (116, 16, 528));
        assert_eq!(waves(Some(large), 512, [132, 8]), 4.0 + TIME);
        // In many waves one more is little; without a last wave none is idle; and where it is nearly empty one more comes late.
        for tiles in [132 * 30 - 8, 132 * 4, 132 * 3 + 8, 100] {
            assert_eq!(Halves::worth(tiles, 132), None, "{tiles}");
        }
    }
}
