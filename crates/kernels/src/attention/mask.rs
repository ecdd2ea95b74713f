//! The mask of a tile: its rows, the keys that they see, and which of those every row sees.

use super::problem::MaskKind;
use heist_builder::{Accumulator, Bool, Global, Ptr, Val, WarpTile};

/// The rows of a tile and the keys of their sequence.
#[derive(Clone, Copy)]
pub(crate) struct TileMask<'k> {
    /// Query rows of the sequence from the tile's first on: none, where the
    /// tile lies past the end of a shorter sequence.
    pub(crate) rows: Val<'k, u32>,
    /// The tile's first query row, in its sequence.
    first_row: Val<'k, u32>,
    /// Keys of the sequence.
    keys: Val<'k, u32>,
    /// How many more keys than queries there are: row `i` has the place of key
    /// `i + shift`.
    shift: Val<'k, i32>,
    /// Which part of the keys.
    pub(crate) split: Val<'k, u32>,
    mask: MaskArgs<'k>,
}

/// Which keys a query sees.
#[derive(Clone, Copy)]
pub(crate) struct MaskArgs<'k> {
    pub(crate) kind: MaskKind,
    /// How many before its own, in a window.
    pub(crate) left: Val<'k, i32>,
    /// How many after its own.
    pub(crate) right: Val<'k, i32>,
    /// How many keys from the first on every query sees besides.
    pub(crate) prefix: Option<Val<'k, u32>>,
}

/// The blocks of keys that a tile goes through, `width` keys each, from the last
/// to the first.
///
/// Those at an edge of the mask come before the others, most of them, which run
/// in a loop that tests nothing. A block is known by a number that counts up:
/// minus its place, so that the loop holds one register and no bounds.
#[derive(Clone, Copy)]
pub(crate) struct Blocks<'k> {
    /// The first number.
    pub(crate) begin: Val<'k, i32>,
    /// One past the last number of a block at an edge.
    masked: Val<'k, i32>,
    /// One past the last number.
    end: Val<'k, i32>,
    left: Option<LeftEdge<'k>>,
    /// The first key of each, where they were listed before.
    listed: Option<Ptr<'k, Global, u32>>,
    width: u32,
}

impl<'k> Blocks<'k> {
    /// Those of a line of a list: how many there are, how many of them at an edge of the mask, which are the first ones,
    /// and the first key of each.
    pub(crate) fn listed(line: Ptr<'k, Global, u32>, width: u32) -> Blocks<'k> {
        let [count, edges] = [0u32, 1].map(|at| line.at(at).load_readonly().cast::<i32>());
        Blocks {
            begin: line.kernel().c(0),
            masked: edges,
            end: count,
            left: None,
            listed: Some(line.at(LINE_HEAD)),
            width,
        }
    }

    /// Whether a block is at an edge of the mask.
    pub(crate) fn at_edge(&self, number: Val<'k, i32>) -> Bool<'k> {
        number.lt(self.masked)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> Val<'k, u32> {
        (self.end - self.begin).cast()
    }
}

/// Words of a line of listed blocks before the keys.
pub(crate) const LINE_HEAD: u32 = 2;

/// Where a window begins, some blocks at the left edge are masked too: their
/// numbers follow those at the right edge.
#[derive(Clone, Copy)]
struct LeftEdge<'k> {
    /// The number of the first of them.
    begin: Val<'k, i32>,
    /// How many they are.
    count: Val<'k, i32>,
    /// The first block's place.
    first: Val<'k, i32>,
    /// Behind them come as many blocks from the first key on, the last of them first.
    prefix: Option<Val<'k, i32>>,
}

impl<'k> LeftEdge<'k> {
    /// How many numbers they take.
    fn numbers(&self) -> Val<'k, i32> {
        match self.prefix {
            None => self.count,
            Some(prefix) => self.count + prefix,
        }
    }

    /// The place of one of them.
    fn block(&self, number: Val<'k, i32>) -> Val<'k, i32> {
        let at = number - self.begin;
        let in_window = self.first + at;
        match self.prefix {
            None => in_window,
            Some(prefix) => at
                .lt(self.count)
                .select(in_window, self.count + prefix - 1 - at),
        }
    }
}

impl<'k> TileMask<'k> {
    /// From row `first_row` of `queries` on, over `keys` keys or a part of them.
    pub(crate) fn new(
        first_row: Val<'k, u32>,
        queries: Val<'k, u32>,
        keys: Val<'k, u32>,
        split: Val<'k, u32>,
        mask: MaskArgs<'k>,
    ) -> TileMask<'k> {
        TileMask {
            rows: queries.max(first_row) - first_row,
            first_row,
            keys,
            shift: keys.cast::<i32>() - queries.cast::<i32>(),
            split,
            mask: MaskArgs {
                prefix: mask.prefix.map(|prefix| prefix.min(keys)),
                ..mask
            },
        }
    }

    /// The position of row `row` of the tile among the keys.
    pub(crate) fn position(&self, row: Val<'k, u32>) -> Val<'k, i32> {
        (self.first_row + row).cast::<i32>() + self.shift
    }

    /// How many more keys than queries there are.
    pub(crate) fn shift(&self) -> Val<'k, i32> {
        self.shift
    }

    /// Keys of the sequence.
    pub(crate) fn keys(&self) -> Val<'k, u32> {
        self.keys
    }

    /// The keys that every row sees besides what a causal mask shows: with a window they are
    /// a stretch of their own.
    fn prefix_of(&self, kind: MaskKind) -> Option<Val<'k, u32>> {
        self.mask.prefix.filter(|_| self.mask.kind == kind)
    }

    /// The blocks of `width` keys that a tile of `height` rows goes through.
    pub(crate) fn blocks(&self, height: u32, width: u32, splits: u32) -> Blocks<'k> {
        let k = self.rows.kernel();
        let keys = self.keys.cast::<i32>();
        let top = self.first_row.cast::<i32>() + self.shift;
        let bottom = top + self.rows.min(height).cast::<i32>();
        let clamp = |key: Val<'k, i32>| key.max(0).min(keys).cast::<u32>();
        // What some row sees, and what every row sees.
        let (seen, by_all) = match self.mask.kind {
            MaskKind::Full => (self.keys, self.keys),
            _ => (
                clamp(bottom + self.mask.right),
                clamp(top + self.mask.right + 1),
            ),
        };
        let seen = self.mask.prefix.map_or(seen, |prefix| seen.max(prefix));
        let by_all = match self.prefix_of(MaskKind::Causal) {
            None => by_all,
            Some(prefix) => by_all.max(prefix),
        };
        let (from, from_all) = match self.mask.kind {
            MaskKind::Window => (
                clamp(top - self.mask.left),
                Some(clamp(bottom - 1 - self.mask.left)),
            ),
            _ => (k.c(0), None),
        };
        let (mut first, mut last) = (from / width, seen.div_ceil(width));
        last = seen.gt(from).select(last, first);
        let prefix = self.prefix_of(MaskKind::Window).map(|prefix| {
            // Those before the window. Where keys are shared out, the first share has them.
            let own = prefix.div_ceil(width).min(first);
            match splits {
                2.. => self.split.eq(0).select(own, 0),
                _ => own,
            }
        });
        if splits > 1 {
            // The shares differ by one block at most.
            let (from, all) = (first, last - first);
            first = from + (self.split * all).div_ceil(splits);
            last = from + ((self.split + 1) * all).div_ceil(splits);
        }
        let inside = (by_all / width).max(first).min(last);
        let place = |block: Val<'k, u32>| k.c(1) - block.cast::<i32>();
        let left = from_all.map(|from| LeftEdge {
            begin: place(inside),
            count: (from.div_ceil(width).max(first).min(inside) - first).cast(),
            first: first.cast(),
            prefix: prefix.map(|blocks| blocks.cast()),
        });
        let at_left = left.as_ref().map_or(k.c(0), LeftEdge::numbers);
        let behind = left.as_ref().and_then(|left| left.prefix);
        Blocks {
            begin: place(last),
            masked: place(inside) + at_left,
            end: behind.map_or(place(first), |blocks| place(first) + blocks),
            left,
            listed: None,
            width,
        }
    }

    /// Keys of the sequence from `first` on.
    pub(crate) fn keys_from(&self, first: Val<'k, u32>) -> Val<'k, u32> {
        self.keys - first
    }

    /// One past the last key that row `row` of the tile sees, and its first.
    pub(crate) fn seen_by(&self, row: Val<'k, u32>) -> KeyRange<'k> {
        let keys = self.keys.cast::<i32>();
        let own = (self.first_row + row).cast::<i32>() + self.shift;
        KeyRange {
            end: match (self.mask.kind, self.prefix_of(MaskKind::Causal)) {
                (MaskKind::Full, _) => keys,
                (_, None) => keys.min(own + self.mask.right + 1),
                (_, Some(prefix)) => keys.min((own + self.mask.right + 1).max(prefix.cast())),
            },
            start: (self.mask.kind == MaskKind::Window).then(|| own - self.mask.left),
            prefix: self.prefix_of(MaskKind::Window).map(|prefix| prefix.cast()),
        }
    }

    /// The keys that every row sees, where there are as many as `rows` from the first
    /// on.
    pub(crate) fn seen_by_all(&self, rows: Val<'k, u32>) -> KeyRange<'k> {
        let k = rows.kernel();
        KeyRange {
            end: self.seen_by(k.c(0)).end,
            start: self.seen_by(rows - 1).start,
            prefix: self.prefix_of(MaskKind::Window).map(|prefix| prefix.cast()),
        }
    }
}

impl<'k> Blocks<'k> {
    /// Loops over the blocks: `body` is given a block's number, and whether it is
    /// at an edge.
    pub(crate) fn each(&self, body: impl Fn(Val<'k, i32>, bool)) {
        let k = self.begin.kernel();
        k.comment("blocks at an edge of the mask");
        k.for_range(self.begin, self.masked, |number| body(number, true));
        k.comment("blocks that every row sees");
        k.for_range(self.masked, self.end, |number| body(number, false));
    }

    /// The same for all but the first block, which is to be taken for one at an
    /// edge.
    pub(crate) fn each_after_first(&self, body: impl Fn(Val<'k, i32>, bool)) {
        let k = self.begin.kernel();
        let second = self.begin + 1;
        k.comment("more blocks at an edge of the mask");
        k.for_range(second, self.masked, |number| body(number, true));
        k.comment("blocks that every row sees");
        k.for_range(second.max(self.masked), self.end, |number| {
            body(number, false)
        });
    }

    /// What is left of them, once the first `done` were gone through.
    pub(crate) fn after(self, done: Val<'k, u32>) -> Blocks<'k> {
        Blocks {
            begin: self.begin + done.cast::<i32>(),
            ..self
        }
    }

    /// The same as [`each_after_first`](Self::each_after_first), and every so many blocks, where
    /// [`ends_piece`](Self::ends_piece) holds for the block before, `stops` says whether to stop.
    pub(crate) fn each_piece_after_first(
        &self,
        piece: i32,
        body: impl Fn(Val<'k, i32>, bool),
        stops: impl Fn() -> Bool<'k>,
    ) {
        let k = self.begin.kernel();
        k.comment("more blocks at an edge of the mask");
        k.for_range(self.begin + 1, self.masked, |number| body(number, true));
        k.comment("pieces of the blocks that every row sees");
        let number = k.var((self.begin + 1).max(self.masked)).named("number");
        k.while_(
            || number.get().lt(self.end),
            || {
                let next = ((number.get() | (piece - 1)) + 1).min(self.end);
                k.for_range(number.get(), next, |number| body(number, false));
                number.set(stops().select(self.end, next));
            },
        );
    }

    /// Whether a piece ends behind the block of that number, and another follows.
    pub(crate) fn ends_piece(&self, piece: i32, number: Val<'k, i32>) -> Bool<'k> {
        let next = number + 1;
        let inside = number.ge((self.begin + 1).max(self.masked)) & next.lt(self.end);
        (next & (piece - 1)).eq(0) & inside
    }

    /// Calls `body` with the first key of every block. Of listed ones it is loaded while the block before is worked on.
    pub(crate) fn each_first_key(&self, body: impl Fn(Val<'k, u32>)) {
        let k = self.begin.kernel();
        if self.listed.is_none() {
            return k.for_range(self.begin, self.end, |number| body(self.first_key(number)));
        }
        k.if_(self.any(), || {
            let next = k.var(self.first_key(self.begin)).named("next_key");
            k.for_range(self.begin, self.end, |number| {
                let own = next.get();
                next.set(self.first_key((number + 1).min(self.end - 1)));
                body(own);
            });
        });
    }

    /// Whether there is any.
    pub(crate) fn any(&self) -> Bool<'k> {
        self.has(self.begin)
    }

    /// The same with a block's first key.
    pub(crate) fn each_with_first_key(&self, body: impl Fn(Val<'k, u32>, bool)) {
        self.each(|number, masked| body(self.first_key(number), masked));
    }

    /// Whether there is a block of that number, which is not below the first.
    pub(crate) fn has(&self, number: Val<'k, i32>) -> Bool<'k> {
        number.lt(self.end)
    }

    /// The first key of a block.
    pub(crate) fn first_key(&self, number: Val<'k, i32>) -> Val<'k, u32> {
        if let Some(keys) = self.listed {
            return keys.at(number.cast::<u32>()).load_readonly();
        }
        let down = -number;
        let block = match &self.left {
            None => down,
            Some(left) => {
                let at_left = number.ge(left.begin) & number.lt(self.masked);
                let later = number.ge(self.masked).select(down + left.numbers(), down);
                at_left.select(left.block(number), later)
            }
        };
        block.cast::<u32>() * self.width
    }
}

/// The keys that one row sees.
#[derive(Clone, Copy)]
pub(crate) struct KeyRange<'k> {
    end: Val<'k, i32>,
    start: Option<Val<'k, i32>>,
    /// And all before this one.
    prefix: Option<Val<'k, i32>>,
}

impl<'k> KeyRange<'k> {
    /// Whether `key` is one of them.
    pub(crate) fn has(&self, key: Val<'k, i32>) -> Bool<'k> {
        let before = key.lt(self.end);
        let inside = self.start.map_or(before, |start| before & key.ge(start));
        self.prefix.map_or(inside, |prefix| inside | key.lt(prefix))
    }

    /// Whether the `count` keys from `first` on are all of them.
    pub(crate) fn has_all(&self, first: Val<'k, u32>, count: u32) -> Bool<'k> {
        let first = first.cast::<i32>();
        let end = first + count as i32;
        let before = end.le(self.end);
        let inside = self.start.map_or(before, |start| before & first.ge(start));
        self.prefix.map_or(inside, |prefix| inside | end.le(prefix))
    }

    /// The score of `key`, or minus infinity where it is not seen.
    pub(crate) fn or_hidden(&self, key: Val<'k, i32>, score: Val<'k, f32>) -> Val<'k, f32> {
        self.has(key).select(score, f32::NEG_INFINITY)
    }

    /// Hides the scores of keys, from `first` on, that are not seen.
    pub(crate) fn hide(&self, scores: &mut [Val<'k, f32>], first: Val<'k, u32>) {
        let first = first.cast::<i32>();
        for (at, score) in scores.iter_mut().enumerate() {
            *score = self.or_hidden(first + at as i32, *score);
        }
    }
}

/// Hides the scores of keys that their rows do not see. `seen` has two rows for
/// each 16 of the tile of scores, whose first column is key `first`.
pub(crate) fn hide_masked<'k>(
    scores: &WarpTile<'k>,
    seen: &[[KeyRange<'k>; 2]],
    first: Val<'k, u32>,
) {
    hide_masked_in(scores, seen, first, KeyOrder::Rising);
}

/// The order of the keys of a warp's scores, along their columns.
#[derive(Clone, Copy)]
pub(crate) enum KeyOrder {
    Rising,
    /// Of 32 at a time the even ones, then the odd ones.
    EvenThenOdd,
}

impl KeyOrder {
    /// The first key of 8 columns and of the first lane, how much further the next key of that lane is, and the
    /// first one of the next lane.
    fn of_block(self, number: usize) -> (usize, [u32; 2]) {
        match self {
            KeyOrder::Rising => (8 * number, [1, 2]),
            KeyOrder::EvenThenOdd => {
                let within = number % 4;
                (number / 4 * 32 + within / 2 + within % 2 * 16, [2, 4])
            }
        }
    }
}

/// The same for scores whose keys have some order.
pub(crate) fn hide_masked_in<'k>(
    scores: &WarpTile<'k>,
    seen: &[[KeyRange<'k>; 2]],
    first: Val<'k, u32>,
    order: KeyOrder,
) {
    let (_, cols) = scores.shape();
    let (_, [next, lane]) = order.of_block(0);
    let first = (first + Accumulator::col(&first.kernel()) * (lane / 2)).cast::<i32>();
    for (m, rows) in seen.iter().enumerate() {
        for n in 0..cols {
            let Some(block) = scores.block(m, n) else {
                continue;
            };
            let key = first + order.of_block(n).0 as i32;
            let [a, b, c, d] = block.get();
            block.set([
                rows[0].or_hidden(key, a),
                rows[0].or_hidden(key + next as i32, b),
                rows[1].or_hidden(key, c),
                rows[1].or_hidden(key + next as i32, d),
            ]);
        }
    }
}
