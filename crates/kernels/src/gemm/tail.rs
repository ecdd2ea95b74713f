//! Stream-K for the last wave: its tiles in pieces of their depth, so that no multiprocessor is idle while
//! others have a whole tile to do.
//!
//! The first tiles are whole. Those of the last wave (and of the one before, where the last is nearly empty) are cut at
//! steps that depend on the problem and the number of multiprocessors alone, and handed out longest first. Each
//! piece but the last to arrive saves its sums; that one adds all of them up, **in the order of the depth**, and stores the tile.
//! So nobody waits, and a result does not depend on who was done first, nor on who else had the GPU.
//!
//! Each warp meets the same warp of the other pieces: they have the same rows, so a tile needs no barrier.

use super::pieces::fours;
use super::tiling::Tiling;
use heist_builder::{Bool, Global, IntoVal, Kernel, Order, Ptr, Scope, Val, WgmmaResult};
use std::cmp::Reverse;

/// Steps that a piece has at least.
const LEAST: u32 = 8;
/// Steps that a piece takes longer than its own: its first copies, and what it saves or adds.
const BESIDES: u32 = 10;
/// Pieces that a tile has at most.
const PARTS: u32 = 3;
/// Words of a piece in the table.
const WORDS: u32 = 4;

/// What is handed out in place of tiles: whole ones, then pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// How many tiles are whole.
    pub(crate) whole: u32,
    /// The longest first.
    pieces: Vec<Piece>,
    /// Steps after which all pieces are done, where a whole wave takes as many as a tile has.
    pub(crate) steps: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// Which tile, in the order of tiles.
    tile: u32,
    from: u32,
    steps: u32,
    /// Which of the tile's pieces it is.
    part: u32,
    /// How many it has.
    parts: u32,
    /// The number of the first of them among all.
    first: u32,
}

/// Deals the steps of so many tiles to so many multiprocessors, each as many as fit in `most`: pieces as tile, first step
/// and steps, or nothing if some are left over.
fn deal(tiles: u32, steps: u32, sms: u32, most: u32) -> Option<Vec<[u32; 3]>> {
    let mut pieces = Vec::new();
    let (mut tile, mut from) = (0, 0);
    for _ in 0..sms {
        let mut room = most;
        while tile < tiles && room >= LEAST + BESIDES {
            let (left, fits) = (steps - from, room - BESIDES);
            // What is left of a tile is no piece if it is too short.
            let take = if left < fits + LEAST { left } else { fits };
            pieces.push([tile, from, take]);
            from += take;
            if from == steps {
                (tile, from) = (tile + 1, 0);
            }
            room = room.saturating_sub(take + BESIDES);
        }
    }
    (tile == tiles).then_some(pieces)
}

impl Tail {
    /// The tail of a launch of so many tiles of so many steps, if cutting it gains anything.
    pub(crate) fn new(tiles: u32, steps: u32, sms: u32) -> Option<Tail> {
        let rest = tiles % sms;
        if tiles < sms || rest == 0 || steps >= 1 << 16 {
            return None;
        }
        // Pieces of less than half a tile would be many.
        let waves = if rest * 2 >= sms { 1 } else { 2 };
        let cut = rest + (waves - 1) * sms;
        let whole_waves = waves * (steps + BESIDES);
        let even = (cut * steps).div_ceil(sms) + BESIDES;
        let (most, dealt) =
            (even..whole_waves).find_map(|most| Some((most, deal(cut, steps, sms, most)?)))?;
        let whole = tiles - cut;
        let mut pieces = Vec::new();
        for tile in 0..cut {
            let own: Vec<_> = dealt.iter().filter(|piece| piece[0] == tile).collect();
            let (first, parts) = (pieces.len() as u32, own.len() as u32);
            if parts > PARTS {
                return None;
            }
            pieces.extend(own.iter().enumerate().map(|(part, piece)| Piece {
                tile: whole + tile,
                from: piece[1],
                steps: piece[2],
                part: part as u32,
                parts,
                first,
            }));
        }
        pieces.sort_by_key(|piece| Reverse(piece.steps));
        if pieces.iter().all(|piece| piece.parts == 1) {
            return None;
        }
        Some(Tail {
            whole,
            pieces,
            steps: most,
        })
    }

    /// How many tiles and pieces are handed out.
    pub(crate) fn units(&self) -> u32 {
        self.whole + self.pieces.len() as u32
    }

    /// The table of pieces.
    pub(crate) fn table(&self) -> Vec<u32> {
        let words = self.pieces.iter().flat_map(|piece| {
            let place = piece.part | piece.parts << 4 | piece.first << 8;
            [piece.tile, piece.from, piece.steps, place]
        });
        words.collect()
    }

    /// How many pieces of a tile have arrived, for each of their warps: zeros before a launch, which leaves them so.
    pub(crate) fn arrived(&self, tiling: &Tiling) -> Vec<u32> {
        vec![0; self.pieces.len() * warps(tiling) as usize]
    }

    /// Sums that pieces save, in all.
    pub(crate) fn sums(&self, tiling: &Tiling) -> usize {
        self.pieces.len() * (tiling.rows * tiling.cols) as usize
    }
}

/// Warps that multiply.
fn warps(tiling: &Tiling) -> u32 {
    tiling.groups() * 4
}

/// The tail inside a kernel.
#[derive(Clone, Copy)]
pub(crate) struct TailOn<'k> {
    k: Kernel<'k>,
    tiling: Tiling,
    table: Ptr<'k, Global, u32>,
    arrived: Ptr<'k, Global, u32>,
    sums: Ptr<'k, Global, f32>,
    /// How many tiles are whole.
    whole: Val<'k, u32>,
}

/// A tile, or a piece of one.
#[derive(Clone, Copy)]
pub(crate) struct Unit<'k> {
    /// Which tile, in the order of tiles.
    pub(crate) tile: Val<'k, u32>,
    /// The first step.
    pub(crate) from: Val<'k, u32>,
    /// How many.
    pub(crate) steps: Val<'k, u32>,
    place: Val<'k, u32>,
}

impl<'k> Unit<'k> {
    fn part(&self) -> Val<'k, u32> {
        self.place & 15
    }

    fn parts(&self) -> Val<'k, u32> {
        (self.place >> 4) & 15
    }

    fn first(&self) -> Val<'k, u32> {
        self.place >> 8
    }
}

impl<'k> TailOn<'k> {
    pub(crate) fn new(
        k: &Kernel<'k>,
        tiling: &Tiling,
        [table, arrived]: [Ptr<'k, Global, u32>; 2],
        sums: Ptr<'k, Global, f32>,
        whole: Val<'k, u32>,
    ) -> TailOn<'k> {
        TailOn {
            k: *k,
            tiling: *tiling,
            table,
            arrived,
            sums,
            whole,
        }
    }

    /// What is handed out at `index`; `steps` are those of a whole tile. In one thread or in all of a warp.
    pub(crate) fn unit(&self, index: Val<'k, u32>, steps: Val<'k, u32>) -> Unit<'k> {
        let k = self.k;
        let words = [index, k.c(0), steps, k.c(0)].map(|word| k.var(word));
        k.if_(index.ge(self.whole), || {
            let piece = self.table.at((index - self.whole) * WORDS);
            let piece = piece.load_vec_readonly::<4>();
            words
                .iter()
                .zip(piece)
                .for_each(|(word, new)| word.set(new));
        });
        let [tile, from, steps, place] = words.map(|word| word.get());
        Unit {
            tile,
            from,
            steps,
            place,
        }
    }

    /// In a warp that has multiplied: stores the tile, unless pieces of it are still to come. Then it saves these
    /// sums for the last of them.
    pub(crate) fn store(&self, unit: &Unit<'k>, sums: &WgmmaResult<'k>, store: impl Fn()) {
        let k = self.k;
        let place = unit.place.shuffle_from(0u32);
        let unit = Unit { place, ..*unit };
        let stores = k.var(true).named("stores");
        k.if_(place.ne(0), || {
            k.if_(unit.parts().gt(1), || {
                stores.set(self.is_last(&unit, sums));
                k.if_(stores.get(), || self.add(&unit, sums));
            });
        });
        k.if_(stores.get(), store);
    }

    /// Whether the other pieces of the tile have saved their sums; if not, this one does.
    fn is_last(&self, unit: &Unit<'k>, sums: &WgmmaResult<'k>) -> Bool<'k> {
        let k = self.k;
        let warp = k.warp_uniform() - 4;
        let arrived = self.arrived.at(unit.first() * warps(&self.tiling) + warp);
        let others = unit.parts() - 1;
        let before = k.var(0u32).named("arrived");
        let first_lane = k.lane().eq(0);
        k.if_(first_lane, || before.set(arrived.load_acquire(Scope::Gpu)));
        k.if_(before.get().shuffle_from(0u32).ne(others), || {
            k.comment("sums of a piece");
            let own = self.saved(unit.first() + unit.part());
            for (index, four) in fours(sums.vars()).into_iter().enumerate() {
                own.at(self.place(index))
                    .store_vec(four.map(|sum| sum.get()));
            }
            k.sync_warp();
            k.if_(first_lane, || {
                before.set(arrived.atomic_add_with(Order::AcquireRelease, Scope::Gpu, 1u32));
            });
        });
        let last = before.get().shuffle_from(0u32).eq(others);
        // For the next launch.
        k.if_(last & first_lane, || {
            arrived.store_relaxed(Scope::Gpu, 0u32);
        });
        k.sync_warp();
        last
    }

    /// Adds up the sums of a tile's two or three pieces, of which this warp has one.
    fn add(&self, unit: &Unit<'k>, sums: &WgmmaResult<'k>) {
        let k = self.k;
        k.comment("sums of all pieces, in the order of the depth");
        let (part, first) = (unit.part(), unit.first());
        let one = self.saved(first + part.eq(0).select(1u32.into_val(&k), 0u32));
        let all = fours(sums.vars());
        k.if_else(
            unit.parts().eq(2),
            || {
                for (index, four) in all.iter().enumerate() {
                    let theirs = one.at(self.place(index)).load_vec::<4>();
                    for (sum, other) in four.iter().zip(theirs) {
                        sum.set(sum.get() + other);
                    }
                }
            },
            || {
                let last = part.eq(2);
                let two = self.saved(first + last.select(1u32.into_val(&k), 2u32));
                for (index, four) in all.iter().enumerate() {
                    let at = self.place(index);
                    let theirs = [one, two].map(|saved| saved.at(at).load_vec::<4>());
                    for (at, sum) in four.iter().enumerate() {
                        let (own, second) = (sum.get(), theirs[1][at]);
                        let both = theirs[0][at] + last.select(second, own);
                        sum.set(both + last.select(own, second));
                    }
                }
            },
        );
    }

    /// Where this thread's first four sums of a piece are: neighbours have neighbouring words.
    fn saved(&self, piece: Val<'k, u32>) -> Ptr<'k, Global, f32> {
        let words = self.tiling.rows * self.tiling.cols;
        // The warpgroup that copies has no sums.
        let thread = self.k.thread_index() - 128;
        self.sums
            .at(piece.mul_wide(words) + (thread * 4).cast::<u64>())
    }

    /// How many words behind those a thread's `index`-th four are.
    fn place(&self, index: usize) -> u32 {
        index as u32 * warps(&self.tiling) * 32 * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(tail: &Tail, [tiles, steps, sms]: [u32; 3]) {
        let what = format!("{tiles} tiles of {steps} steps on {sms}: {tail:?}");
        assert!(
            tail.whole.is_multiple_of(sms) && tail.whole < tiles,
            "{what}"
        );
        let longest_first = tail.pieces.is_sorted_by_key(|piece| Reverse(piece.steps));
        assert!(longest_first, "{what}");
        let mut pieces = tail.pieces.clone();
        pieces.sort_by_key(|piece| (piece.tile, piece.from));
        for (number, piece) in pieces.iter().enumerate() {
            assert!(piece.steps >= LEAST && piece.parts <= PARTS, "{what}");
            // A place of its own for its sums.
            assert_eq!(piece.first + piece.part, number as u32, "{what}");
        }
        let tiles_of_pieces = pieces.chunk_by(|one, other| one.tile == other.tile);
        let mut tile = tail.whole;
        for own in tiles_of_pieces {
            assert_eq!(
                (own[0].tile, own[0].parts as usize),
                (tile, own.len()),
                "{what}"
            );
            let end = own.iter().fold(0, |at, piece| {
                assert_eq!(piece.from, at, "{what}");
                at + piece.steps
            });
            assert_eq!(end, steps, "{what}");
            tile += 1;
        }
        assert_eq!(tile, tiles, "{what}");
    }

    #[test]
    fn every_step_of_every_tile_is_in_one_piece() {
        let mut cut = 0;
        for sms in [1, 2, 3, 7, 78, 132, 148] {
            for steps in [1, 17, 64, 128, 200] {
                for tiles in (1..sms * 4).step_by(1 + sms as usize / 20) {
                    if let Some(tail) = Tail::new(tiles, steps, sms) {
                        is_whole(&tail, [tiles, steps, sms]);
                        cut += 1;
                    }
                }
            }
        }
        assert!(cut > 300, "{cut}");
    }

    /// 2048 tiles on 132 multiprocessors are 15 waves and 68 tiles.
    #[test]
    fn a_last_wave_that_is_half_full_takes_little_more_than_half_a_wave() {
        let tail = Tail::new(2048, 128, 132).expect("it gains");
        assert_eq!(tail.whole, 15 * 132);
        assert!(tail.steps < 100, "{}", tail.steps);
        assert_eq!(Tail::new(15 * 132, 128, 132), None, "no last wave");
        assert_eq!(Tail::new(100, 128, 132), None, "no wave before it");
        assert_eq!(Tail::new(15 * 132 + 131, 128, 132), None, "nothing to gain");
    }
}
