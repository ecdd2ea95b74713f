//! The epilogue: accumulators are scaled, added to C and bias, activated, rounded and stored.

use super::left::left;
use super::problem::{Activation, Epilogue, Scales, Spread};
use super::row_scales::RowScales;
use super::spread::Added;
use super::stored::Stored;
use heist_builder::{Bool, Global, Kernel, Ptr, Val, WarpTile, WgmmaResult};
use std::ops::Range;

/// How many pairs have their addends loaded before the first of them is stored.
const BATCH: usize = 8;

/// Receives a row of accumulators: the row, its first column, and its pairs.
pub(super) type EachRow<'e, 'k> = &'e dyn Fn(Val<'k, u32>, Val<'k, u32>, &[[Val<'k, f32>; 2]]);

/// The accumulators of a warp. A thread has two neighbours in every 8 columns, in several rows.
pub(crate) trait Sums<'k> {
    /// Calls `each` with every row.
    fn rows(&self, each: EachRow<'_, 'k>);
}

impl<'k> Sums<'k> for WarpTile<'k> {
    fn rows(&self, each: EachRow<'_, 'k>) {
        self.each_row(each);
    }
}

impl<'k> Sums<'k> for WgmmaResult<'k> {
    fn rows(&self, each: EachRow<'_, 'k>) {
        self.each_row(each);
    }
}

/// Where a warp's results go.
#[derive(Clone, Copy)]
pub(crate) struct To<'k, T> {
    /// The first element of the warp's tile of D.
    pub(crate) d: Ptr<'k, Global, T>,
    /// Of C.
    pub(crate) c: Added<'k, T>,
    /// The bias of the warp's first column.
    pub(crate) bias: Ptr<'k, Global, T>,
    /// Elements from one row of C and D to the next.
    pub(crate) pitch: Val<'k, u32>,
    /// Rows inside of the result, from the first on; `None` where all of the tile's are inside.
    pub(crate) rows: Option<Val<'k, u32>>,
    /// Columns likewise.
    pub(crate) cols: Option<Val<'k, u32>>,
    /// The factors.
    pub(crate) alpha: Val<'k, f32>,
    /// Of C.
    pub(crate) beta: Val<'k, f32>,
    /// Those of rows and columns, where they have any.
    pub(crate) scales: Option<RowScales<'k>>,
    /// Where each row goes instead, and its factor.
    pub(crate) placed: Option<Placed<'k>>,
}

/// Rows that go to places of their own, times factors of their own: D begins at its first place.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'k> {
    /// The place of each row, from the tile's first on.
    pub(crate) places: Ptr<'k, Global, u32>,
    /// The factor of each place.
    pub(crate) factors: Ptr<'k, Global, f32>,
}

impl<'k, T: Stored> To<'k, T> {
    /// The same from a row and column on. One address a row; from there on columns
    /// are constants.
    pub(crate) fn from(&self, row: Val<'k, u32>, col: Val<'k, u32>) -> To<'k, T> {
        let first = row.mul_add(self.pitch, col);
        let rows = self.rows.map(|rows| left(rows, row));
        if let Some(placed) = self.placed {
            return self.placed(placed, row, col, rows);
        }
        To {
            d: self.d.at(first),
            c: self.c.at([row, col], first).line(rows),
            bias: self.bias.at(col),
            rows,
            scales: self.scales.map(|scales| scales.from(row, col, rows)),
            cols: self.cols.map(|cols| left(cols, col)),
            ..*self
        }
    }

    /// The same with the factor of the thread's first or second row of 16, where it was read ahead.
    pub(super) fn half(mut self, half: usize) -> To<'k, T> {
        self.scales = self.scales.map(|scales| scales.half(half));
        self
    }

    /// The same, where the row has a place of its own. A row outside has the first place, and is not
    /// stored.
    fn placed(
        &self,
        placed: Placed<'k>,
        row: Val<'k, u32>,
        col: Val<'k, u32>,
        rows: Option<Val<'k, u32>>,
    ) -> To<'k, T> {
        let k = row.kernel();
        let (place, factor) = (k.var(0u32), k.var(0.0f32));
        let read = || {
            place.set(placed.places.at(row).load_readonly());
            factor.set(placed.factors.at(place.get()).load_readonly());
        };
        match rows {
            None => read(),
            Some(rows) => k.if_(rows.gt(0u32), read),
        }
        let first = place.get().mul_wide(self.pitch) + col.cast::<u64>();
        To {
            d: self.d.at(first),
            alpha: self.alpha * factor.get(),
            rows,
            cols: self.cols.map(|cols| left(cols, col)),
            ..*self
        }
    }
}

/// Which parts of an epilogue are emitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finish {
    pub(crate) scaled: bool,
    pub(crate) scales: Scales,
    pub(crate) adds: bool,
    /// What of C is stored.
    pub(crate) spread: Spread,
    pub(crate) bias: bool,
    pub(crate) activation: Activation,
    /// The alignment of rows of C and D in elements: 1, 2 or 8.
    pub(crate) aligned: u32,
    /// Whether there are whole eights of columns: the 16 bytes of eight lie inside or outside.
    pub(crate) eights: bool,
    /// Of how many blocks of 8 columns biases are read at a time, where there are whole pairs of columns, and registers for it; else 0.
    pub(crate) biases: u32,
}

impl Finish {
    pub(crate) fn new(epilogue: &Epilogue, scales: Scales, pitch: u32) -> Finish {
        Finish {
            scaled: epilogue.alpha != 1.0 || scales == Scales::Tensor,
            scales,
            adds: epilogue.added().is_some(),
            spread: epilogue.added().unwrap_or(Spread::Matrix),
            bias: epilogue.bias,
            activation: epilogue.activation,
            aligned: [8, 2]
                .into_iter()
                .find(|n| pitch.is_multiple_of(*n))
                .unwrap_or(1),
            eights: false,
            biases: 0,
        }
    }

    /// Whether a matrix like the result is added.
    pub(crate) fn adds_matrix(&self) -> bool {
        self.adds && self.spread == Spread::Matrix
    }

    /// Whether anything is read to be added to the sums.
    pub(crate) fn reads(&self) -> bool {
        self.adds || self.bias || self.scales == Scales::Rows
    }

    /// The factor of all products: with those of the matrices, where they have one each.
    pub(crate) fn factor<'k>(
        &self,
        alpha: Val<'k, f32>,
        scales: [Ptr<'k, Global, f32>; 2],
    ) -> Val<'k, f32> {
        match self.scales {
            Scales::Tensor => scales.iter().fold(alpha, |all, scale| all * scale.load()),
            _ => alpha,
        }
    }

    /// The factors of rows and columns, where there are any.
    pub(crate) fn of_rows<'k>(&self, scales: [Ptr<'k, Global, f32>; 2]) -> Option<RowScales<'k>> {
        let [rows, cols] = scales;
        (self.scales == Scales::Rows).then(|| RowScales::new(rows, cols))
    }

    /// The results of a pair of accumulators, `further` columns from where `to` begins. Nothing
    /// outside is read, and nothing that is known.
    pub(crate) fn pair<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sums: [Val<'k, f32>; 2],
        further: u32,
        known: Known<'k>,
        to: &To<'k, T>,
    ) -> [Val<'k, f32>; 2] {
        let own = Finish {
            adds: self.adds && known.c.is_none(),
            bias: self.bias && known.bias.is_none(),
            ..*self
        };
        let mut addends = if own.reads() {
            let mut place = ColumnPair::new(further, to);
            if let Some(rows) = to.rows {
                let [both, first] = place.inside.unwrap_or([k.c(true); 2]);
                let row = rows.gt(0u32);
                place.inside = Some([both & row, first & row]);
            }
            own.addends(k, &place, known.scale, to)
        } else {
            Addends {
                scale: None,
                c: None,
                bias: None,
            }
        };
        addends.c = addends.c.or(known.c);
        addends.bias = addends.bias.or(known.bias);
        [0, 1].map(|i| self.value(k, sums[i], addends, i, to))
    }

    /// The biases of a thread's pairs of columns, one in each of these blocks of 8 columns, as words: one wait for all of them. `None` where
    /// each is read by itself.
    pub(super) fn biases_of<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        col: Val<'k, u32>,
        blocks: Range<u32>,
        to: &To<'k, T>,
    ) -> Option<Vec<Val<'k, u32>>> {
        if !self.bias || self.biases == 0 || T::BYTES != 2 {
            return None;
        }
        let first = to.bias.at(col).cast::<u32>();
        let word = |block: u32| {
            let load = || first.at(4 * block).load();
            let Some(cols) = to.cols else {
                return load();
            };
            let word = k.var(0u32);
            k.if_((col + 8 * block).lt(cols), || word.set(load()));
            word.get()
        };
        Some(blocks.map(word).collect())
    }

    /// The result of one accumulator, with its factor and addend.
    pub(super) fn single<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sum: Val<'k, f32>,
        [scale, c, bias]: [Option<Val<'k, f32>>; 3],
        to: &To<'k, T>,
    ) -> Val<'k, f32> {
        let twice = |value: Option<Val<'k, f32>>| value.map(|value| [value; 2]);
        let addends = Addends {
            scale: twice(scale),
            c: twice(c),
            bias: twice(bias),
        };
        self.value(k, sum, addends, 0, to)
    }

    /// Stores a warp's accumulators. Addends are loaded in batches: a load may not be moved before
    /// an earlier store, so with one pair at a time every load's latency would be exposed.
    pub(crate) fn store<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sums: &impl Sums<'k>,
        to: &To<'k, T>,
    ) {
        // Whole lines of halves are stored 16 bytes at a time. For that all lanes exchange words,
        // so rows are masked only afterwards.
        let whole = to.cols.is_none() || self.eights;
        let wide = self.aligned == 8 && T::BYTES == 2 && whole;
        let exchanged = wide && (to.rows.is_none() || !self.adds);
        sums.rows(&|row, col, pairs| {
            let line = to.from(row, col);
            match line.rows {
                _ if exchanged && pairs.len().is_multiple_of(4) => {
                    self.store_wide(k, pairs, &line);
                }
                None => self.store_row(k, pairs, &line),
                Some(rows) => k.if_(rows.gt(0u32), || self.store_row(k, pairs, &line)),
            }
        });
    }

    /// Stores what four threads have of a row, each the 8 neighbours of every
    /// fourth block of columns: the pair that each has of four blocks becomes the
    /// four pairs of one block.
    fn store_wide<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        pairs: &[[Val<'k, f32>; 2]],
        to: &To<'k, T>,
    ) {
        // This thread's pair is the one of its place among the four; its block
        // begins at the first of them.
        let place = k.lane() & 3;
        let d = to.d.at(place * 8 - place * 2).cast::<u32>();
        for (number, batch) in pairs.chunks(4).enumerate() {
            let first = number as u32 * 32;
            let read: Vec<_> = (0..4)
                .map(|index| {
                    let further = first + index * 8;
                    let cols = self.columns(k, further, to);
                    self.addends(k, &ColumnPair::new(further, to), cols, to)
                })
                .collect();
            let words: Vec<_> = batch
                .iter()
                .zip(read)
                .filter_map(|(sums, addends)| {
                    T::word([0, 1].map(|i| self.value(k, sums[i], addends, i, to)))
                })
                .collect();
            let Ok(words) = <[Val<'k, u32>; 4]>::try_from(words) else {
                return k.fail("only halves are stored 16 bytes at a time");
            };
            let words = transposed(k, words);
            let store = || d.at(first / 2).store_vec(words);
            let rows = to.rows.map(|rows| rows.gt(0u32));
            // Counted from this thread's pair, as its address is.
            let cols = to.cols.map(|cols| cols.gt(place * 6 + first));
            match (rows, cols) {
                (None, None) => store(),
                (Some(there), None) | (None, Some(there)) => k.if_(there, store),
                (Some(rows), Some(cols)) => k.if_(rows & cols, store),
            }
        }
    }

    /// Stores what a thread has of a row, from the column where `to` begins.
    fn store_row<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        pairs: &[[Val<'k, f32>; 2]],
        to: &To<'k, T>,
    ) {
        // Predicates and the branches around them take registers too.
        let size = if to.cols.is_some() { BATCH / 4 } else { BATCH };
        for (number, batch) in pairs.chunks(size).enumerate() {
            let read = batch.iter().enumerate().map(|(index, &sums)| {
                let place = ColumnPair::new((number * size + index) as u32 * 8, to);
                {
                    let cols = self.columns(k, place.col, to);
                    (place, sums, self.addends(k, &place, cols, to))
                }
            });
            for (place, sums, addends) in read.collect::<Vec<_>>() {
                let [low, high] = [0, 1].map(|i| self.value(k, sums[i], addends, i, to));
                let d = to.d.at(place.col);
                place.inside(k, || self.put(d, [low, high]), || d.store(T::round(low)));
            }
        }
    }

    pub(crate) fn put<'k, T: Stored>(&self, at: Ptr<'k, Global, T>, pair: [Val<'k, f32>; 2]) {
        if self.aligned > 1 {
            T::store_pair(at, pair);
        } else {
            at.store(T::round(pair[0]));
            at.at(1).store(T::round(pair[1]));
        }
    }

    /// The factors of two columns, `further` from where `to` begins: the same for every
    /// row, so they are read once.
    pub(crate) fn columns<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        further: u32,
        to: &To<'k, T>,
    ) -> Option<[Val<'k, f32>; 2]> {
        let place = ColumnPair::new(further, to);
        to.scales.map(|scales| match scales.ahead {
            Some(ahead) => ahead.pair(k, further),
            None => {
                let cols = scales.cols.at(further);
                // Those of a group begin where the ones of an odd number of columns end.
                let both = || match self.aligned > 1 {
                    true => cols.load_vec::<2>(),
                    false => [cols.load(), cols.at(1).load()],
                };
                place.read(k, both, || cols.load())
            }
        })
    }

    /// The addends and factors of a pair in these columns.
    fn addends<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        place: &ColumnPair<'k>,
        cols: Option<[Val<'k, f32>; 2]>,
        to: &To<'k, T>,
    ) -> Addends<'k> {
        let row = to.scales.and_then(|scales| scales.row);
        let scale = cols.map(|cols| cols.map(|col| row.map_or(col, |row| row * col)));
        Addends {
            scale,
            c: self.adds.then(|| match to.c.of_row() {
                Some(same) => [same; 2],
                None => {
                    let c = to.c.first().at(place.col);
                    let both = || match to.c.has_pairs(self.aligned) {
                        true => c.load_vec::<2>(),
                        false => [c.load(), c.at(1).load()],
                    };
                    place.read(k, both, || c.load())
                }
            }),
            bias: self.bias.then(|| {
                let bias = to.bias.at(place.col);
                place.read(k, || bias.load_vec::<2>(), || bias.load())
            }),
        }
    }

    /// One result in f32: the low one of a pair, or the high one.
    fn value<'k, T: Stored>(
        &self,
        k: &Kernel<'k>,
        sum: Val<'k, f32>,
        addends: Addends<'k>,
        which: usize,
        to: &To<'k, T>,
    ) -> Val<'k, f32> {
        let mut value = sum;
        if let Some(scale) = addends.scale {
            value = value * scale[which];
        }
        if self.scaled {
            value = value * to.alpha;
        }
        if let Some(c) = addends.c {
            value = c[which].mul_add(to.beta, value);
        }
        if let Some(bias) = addends.bias {
            value = value + bias[which];
        }
        activate(k, value, self.activation)
    }
}

/// What of a pair's addends and factors was read before.
#[derive(Clone, Copy)]
pub(crate) struct Known<'k> {
    /// Factors of the columns.
    pub(crate) scale: Option<[Val<'k, f32>; 2]>,
    pub(crate) c: Option<[Val<'k, f32>; 2]>,
    pub(crate) bias: Option<[Val<'k, f32>; 2]>,
}

/// The factor and the addend of a pair of accumulators.
#[derive(Clone, Copy)]
struct Addends<'k> {
    scale: Option<[Val<'k, f32>; 2]>,
    c: Option<[Val<'k, f32>; 2]>,
    bias: Option<[Val<'k, f32>; 2]>,
}

/// Where a pair of results goes in its row, and how much of it is inside.
#[derive(Clone, Copy)]
struct ColumnPair<'k> {
    col: u32,
    /// Whether both are, and whether the first is; `None` where all are.
    inside: Option<[Bool<'k>; 2]>,
}

impl<'k> ColumnPair<'k> {
    fn new<T>(col: u32, to: &To<'k, T>) -> ColumnPair<'k> {
        let inside = to.cols.map(|cols| [cols.gt(col + 1), cols.gt(col)]);
        ColumnPair { col, inside }
    }

    /// `both` where the pair is inside, `first` where only its first element is.
    fn inside(&self, k: &Kernel<'k>, both: impl Fn(), first: impl Fn()) {
        match self.inside {
            None => both(),
            Some([all, one]) => k.if_else(all, both, || k.if_(one, &first)),
        }
    }

    /// Loads the elements that are inside.
    fn read<T: Stored>(
        &self,
        k: &Kernel<'k>,
        both: impl Fn() -> [Val<'k, T>; 2],
        first: impl Fn() -> Val<'k, T>,
    ) -> [Val<'k, f32>; 2] {
        let [low, high] = [k.var(0.0f32), k.var(0.0f32)];
        self.inside(
            k,
            || {
                let pair = both();
                low.set(pair[0].cast::<f32>());
                high.set(pair[1].cast::<f32>());
            },
            || low.set(first().cast::<f32>()),
        );
        [low.get(), high.get()]
    }
}

/// Word `i` of lane `j` becomes word `j` of lane `i`, among four neighbouring lanes.
fn transposed<'k>(k: &Kernel<'k>, mut words: [Val<'k, u32>; 4]) -> [Val<'k, u32>; 4] {
    for (bit, swapped) in [(1u32, [(0, 1), (2, 3)]), (2, [(0, 2), (1, 3)])] {
        let upper = (k.lane() & bit).ne(0u32);
        for (low, high) in swapped {
            let given = upper.select(words[low], words[high]);
            let taken = given.shuffle_xor(bit);
            words[low] = upper.select(taken, words[low]);
            words[high] = upper.select(words[high], taken);
        }
    }
    words
}

/// An activation in f32.
pub(super) fn activate<'k>(
    k: &Kernel<'k>,
    x: Val<'k, f32>,
    activation: Activation,
) -> Val<'k, f32> {
    // x / (1 + exp(-y)): for a large negative y the divisor is infinite, and
    // the result zero, as it should be.
    let gate = |y: Val<'k, f32>| {
        let divisor = (y * -std::f32::consts::LOG2_E).exp2_approx() + 1.0;
        x * divisor.recip_approx()
    };
    match activation {
        Activation::None => x,
        // A NaN is not below zero and stays, as PyTorch has it; `max` would make it zero.
        Activation::Relu => x.lt(0.0).select(0.0, x),
        Activation::Silu => gate(x),
        Activation::Gelu => {
            // tanh(u) = 2 / (1 + exp(-2u)) - 1, so x/2 * (1 + tanh(u)) is a gate.
            let root = 2.0 * (2.0 / std::f32::consts::PI).sqrt();
            let cubic = (x * x).mul_add(k.c(0.044_715 * root), k.c(root));
            gate(x * cubic)
        }
    }
}
