//! Results that leave row by row: through shared memory, where rows of the result begin at any element.
//!
//! A thread has two neighbours of every row, and eight rows of a warp lie far apart. Where they may be stored in pairs, these fill sectors of 32 bytes;
//! where a row begins at an odd element each has to be stored by itself, and L2 gets four times as many parts of sectors. Here a warp
//! puts a panel of 16 rows into memory of its own, and stores row after row of it: neighbouring threads store neighbours. Two halves leave in a
//! word, from the first that begins one, and what is left at either end by itself.

use super::epilogue::{Finish, Known, To};
use super::left::left;
use super::stored::Stored;
use heist_builder::{Bool, Global, Kernel, Ptr, Shared, Val, WarpTile, WgmmaResult};

/// Rows of accumulators that a warp has at a time.
const WARP_ROWS: u32 = 16;

/// Rows that a thread reads before it stores the first of them: they would wait for each other.
const AT_A_TIME: u32 = 4;

/// The panel of a warp in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panel {
    /// Its columns.
    width: u32,
    /// Bytes of an element of the result.
    bytes: u32,
}

impl Panel {
    /// The widest for tiles of so many columns, of which every warp has one in `room` bytes.
    pub(crate) fn new(bytes: u32, cols: u32, warps: u32, room: u32) -> Option<Panel> {
        let widths = [128, 64, 32].map(|row| row / bytes);
        let mut all = widths.into_iter().map(|width| Panel { width, bytes });
        all.find(|panel| panel.width <= cols && panel.of_all(warps) <= room)
    }

    /// Bytes that so many warps have together.
    pub(crate) fn of_all(self, warps: u32) -> u32 {
        warps * WARP_ROWS * self.pitch()
    }

    /// Bytes from row to row: what eight rows get at a time lies in different banks.
    fn pitch(self) -> u32 {
        self.width * self.bytes + 8 * self.bytes
    }
}

/// The panel inside a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'k> {
    k: Kernel<'k>,
    panel: Panel,
    /// This warp's.
    memory: Ptr<'k, Shared, u8>,
}

impl<'k> Rows<'k> {
    /// Takes memory for so many warps, of which this one is number `warp`.
    pub(crate) fn new(k: &Kernel<'k>, panel: Panel, warps: u32, warp: Val<'k, u32>) -> Rows<'k> {
        let all = k.shared::<u8>("rows", panel.of_all(warps)).ptr();
        Rows {
            k: *k,
            panel,
            memory: all.at(warp * panel.of_all(1)),
        }
    }

    /// Stores 64 rows of accumulators, of which every warp has 16.
    pub(crate) fn store<O: Stored>(&self, finish: &Finish, sums: &WgmmaResult<'k>, to: &To<'k, O>) {
        let blocks = (0..sums.blocks()).map_while(|index| sums.block(index));
        let row = (self.k.warp_uniform() & 3) * WARP_ROWS;
        self.store_band(finish, &blocks.collect::<Vec<_>>(), row, to);
    }

    /// Stores the accumulators of a warp.
    pub(crate) fn store_tile<O: Stored>(
        &self,
        finish: &Finish,
        sums: &WarpTile<'k>,
        to: &To<'k, O>,
    ) {
        for (number, blocks) in sums.bands().enumerate() {
            let row = self.k.c(number as u32 * WARP_ROWS);
            self.store_band(finish, &blocks, row, to);
        }
    }

    /// Stores a warp's 16 rows of accumulators, the first of them row `row` of those that `to` begins with.
    fn store_band<O: Stored>(
        &self,
        finish: &Finish,
        blocks: &[[Val<'k, f32>; 4]],
        row: Val<'k, u32>,
        to: &To<'k, O>,
    ) {
        let k = self.k;
        let (below, col) = (k.lane() >> 2, (k.lane() & 3) << 1);
        let lines = [0, 1].map(|half| to.from(row + below + half * 8, col).half(half as usize));
        let own = self
            .memory
            .at(below.mul_add(self.panel.pitch(), col * O::BYTES));
        for (number, panel) in blocks.chunks((self.panel.width / 8) as usize).enumerate() {
            let first = number as u32 * self.panel.width;
            for (index, sums) in panel.iter().enumerate() {
                let further = index as u32 * 8;
                let scale = finish.columns(&k, first + further, &lines[0]);
                for half in 0..2 {
                    let pair = [sums[half * 2], sums[half * 2 + 1]];
                    let known = Known {
                        scale,
                        c: None,
                        bias: None,
                    };
                    let pair = finish.pair(&k, pair, first + further, known, &lines[half]);
                    let at = half as u32 * 8 * self.panel.pitch() + further * O::BYTES;
                    O::store_pair(own.at(at).cast(), pair);
                }
            }
            k.sync_warp();
            self.leave(finish, row, [first, panel.len() as u32 * 8], to);
            k.sync_warp();
        }
    }

    /// Stores the panel's rows, which have these columns: the first and how many.
    fn leave<O: Stored>(
        &self,
        finish: &Finish,
        row: Val<'k, u32>,
        [first, wide]: [u32; 2],
        to: &To<'k, O>,
    ) {
        let k = self.k;
        // Of panels whose words are no power of two some lanes have none.
        let lanes = (wide * O::BYTES / 4).next_power_of_two();
        let (below, word) = (k.lane() / lanes, k.lane() % lanes);
        let all = || k.c(wide);
        let inside = to
            .cols
            .map_or_else(all, |cols| left(cols, k.c(first)).min(wide));
        let line = |down: Val<'k, u32>| to.d.at(down.mul_add(to.pitch, first)).cast::<u8>();
        let line_words = Line { word, wide, inside };
        let pieces = |next: bool| match (O::BYTES, finish.aligned) {
            (4, _) => line_words.words(),
            (_, 1) => {
                // An odd number of elements lies between rows.
                let odd = (line(row + below).address().cast::<u32>() >> 1) & 1;
                line_words.halves(if next { 1 - odd } else { odd })
            }
            _ => line_words.pairs(),
        };
        let at_once = 32 / lanes;
        let together = AT_A_TIME.min(WARP_ROWS / at_once);
        let both = [pieces(false), pieces(at_once == 1)];
        k.for_step(0, WARP_ROWS, together * at_once, |from| {
            let turns = (0..together).map(|turn| {
                let own = below + from + turn * at_once;
                let memory = self.memory.at(own * self.panel.pitch());
                let pieces = &both[turn as usize % 2];
                let read = pieces.iter().map(|piece| piece.read(memory));
                (row + own, pieces, read.collect::<Vec<_>>())
            });
            for (down, pieces, read) in turns.collect::<Vec<_>>() {
                let there = to.rows.map(|rows| down.lt(rows));
                let d = line(down);
                for (piece, read) in pieces.iter().zip(read) {
                    let inside = there.map_or(piece.inside, |there| there & piece.inside);
                    k.if_(inside, || piece.store(read, d));
                }
            }
        });
    }
}

/// What a thread stores of a row, from the same place in the panel's row.
struct Piece<'k> {
    /// Whether it has it, and whether it is inside.
    inside: Bool<'k>,
    /// Bytes from the first of the row.
    at: Val<'k, u32>,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Word,
    Half,
    /// Two halves that are no word of the panel.
    Halves,
}

impl<'k> Piece<'k> {
    fn read(&self, row: Ptr<'k, Shared, u8>) -> Val<'k, u32> {
        let from = row.at(self.at);
        let half = |at: u32| from.cast::<u16>().at(at).load().cast::<u32>();
        match self.what {
            What::Word => from.cast().load(),
            What::Half => half(0),
            What::Halves => half(0) | (half(1) << 16),
        }
    }

    fn store(&self, value: Val<'k, u32>, row: Ptr<'k, Global, u8>) {
        let to = row.at(self.at);
        match self.what {
            What::Half => to.cast().store(value.cast::<u16>()),
            _ => to.cast().store(value),
        }
    }
}

/// What a thread has of a panel's row: the word of that number.
#[derive(Clone, Copy)]
struct Line<'k> {
    word: Val<'k, u32>,
    /// Elements of the row, and how many of them are inside.
    wide: u32,
    inside: Val<'k, u32>,
}

impl<'k> Line<'k> {
    /// An element in each word.
    fn words(self) -> Vec<Piece<'k>> {
        vec![Piece {
            inside: self.word.lt(self.inside),
            at: self.word.min(self.wide - 1) * 4,
            what: What::Word,
        }]
    }

    /// Halves in pairs, where the row begins with a word; the last one may be alone.
    fn pairs(self) -> Vec<Piece<'k>> {
        let next = self.word * 2 + 1;
        let at = self.word.min(self.wide / 2 - 1) * 4;
        [
            (next.lt(self.inside), What::Word),
            (next.eq(self.inside), What::Half),
        ]
        .map(|(inside, what)| Piece { inside, at, what })
        .into()
    }

    /// Halves, where the row may begin with the second one of a word: then the first is stored by itself, and so is a last one that has no other.
    fn halves(self, odd: Val<'k, u32>) -> Vec<Piece<'k>> {
        let Line { word, wide, inside } = self;
        let col = word * 2 + odd;
        // The first thread has the first element, the second one the last.
        let first = word.eq(0u32);
        let end = first.select(word, left(inside, word));
        let alone = first.select(odd, (inside ^ odd) & 1).ne(0u32);
        vec![
            Piece {
                inside: (col + 1).lt(inside),
                // The last thread may have no pair, and reads another.
                at: col.min(wide - 2) * 2,
                what: What::Halves,
            },
            Piece {
                inside: alone & word.lt(2u32) & inside.gt(0u32),
                at: end.min(wide - 1) * 2,
                what: What::Half,
            },
        ]
    }
}
