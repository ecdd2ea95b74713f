//! Block scales, and accumulation in two levels.
//!
//! Tensor cores accumulate products of 8-bit floats with 13 bits of fraction, so a large
//! accumulator loses small products. In *two levels* they accumulate 128 elements of the depth at a
//! time, and the threads add these partial sums in f32. Matrices with a scale for every 128
//! elements of the depth need that in any case: between the levels the sums are multiplied by the
//! scales of their blocks.

use heist_builder::{Global, Kernel, Landing, Ptr, Shared, TensorMapRef, Transaction, Val, Var};
use heist_launch::{Arg, BufferRef, TensorElement, TensorMap};

/// Elements of the depth, and of B's columns, that have a scale in common.
pub(crate) const BLOCK: u32 = 128;

/// Columns of a tile that always have a scale of B in common: tiles of whole blocks begin with one.
const fn chunk(cols: u32) -> u32 {
    if cols.is_multiple_of(BLOCK) {
        BLOCK
    } else {
        64
    }
}

/// How many scales of B a tile has for each block of the depth.
const fn across(cols: u32) -> u32 {
    cols.div_ceil(chunk(cols))
}

/// Scales for each row of A and block of the depth, and for each block of B of 128
/// columns by 128 elements of the depth.
#[derive(Clone, Copy)]
pub(crate) struct BlockScales<'k> {
    /// Block after block of the depth, a scale for each row of A.
    pub(crate) a: Ptr<'k, Global, f32>,
    /// From one block of the depth to the next.
    pub(crate) pitch: Val<'k, u32>,
    /// Block after block of columns, a scale for each of the `depth` blocks.
    pub(crate) b: Ptr<'k, Global, f32>,
    /// Where the rows end that have scales.
    pub(crate) m: Val<'k, u32>,
    /// Where the columns do.
    pub(crate) n: Val<'k, u32>,
    /// Blocks of the depth.
    pub(crate) depth: Val<'k, u32>,
    /// Whether the tile's rows are columns of the result.
    pub(crate) swapped: bool,
    /// How they come with each stage, where they do.
    pub(crate) copied: Option<CopiedScales<'k>>,
}

/// Scales that the copy engine brings with the stage of their block. A thread that loads them from memory waits for them
/// between its products: where every multiprocessor copies, a load takes longer than a block, and launches took 1.15 times as long.
///
/// Both maps are of all scales one after the other, so that rows may begin anywhere: a copy begins up to three scales before them, at a
/// multiple of 16 bytes. Rows outside get the scales of others, or zero: their sums are not stored.
#[derive(Clone, Copy)]
pub(crate) struct CopiedScales<'k> {
    pub(crate) maps: [TensorMapRef<'k, f32, 1>; 2],
    /// Scales of A, and of B, before those that [`BlockScales`] counts from.
    pub(crate) before: [Val<'k, u32>; 2],
}

/// Scales in 16 bytes.
const LEAST: u32 = 4;
/// Scales in 128 bytes: the copies of a stage begin at multiples of them.
const APART: u32 = 32;

/// Rows of A whose scales one copy brings, of a tile of so many: a box has at most 256 elements.
const fn copied_rows(rows: u32) -> u32 {
    if rows + LEAST > 256 { rows / 2 } else { rows }
}

/// From where one copy begins to where the next one does, in a stage.
const fn copied_apart(rows: u32) -> u32 {
    (copied_rows(rows) + LEAST).next_multiple_of(APART)
}

/// Where the scales of B begin behind those of A's rows in a stage.
const fn behind(rows: u32) -> u32 {
    rows / copied_rows(rows) * copied_apart(rows)
}

/// Floats that a stage of such tiles has room for, for their scales.
pub(crate) const fn floats(rows: u32, cols: u32) -> u32 {
    behind(rows) + across(cols) * APART
}

/// The maps of scales that are copied: of `counts` in all, for tiles of so many rows.
pub(crate) fn maps(counts: [usize; 2], rows: u32) -> [Arg; 2] {
    let map = |name: &str, count: usize, boxed: u32| {
        let buffer = BufferRef::Named(name.to_owned());
        let dims = [count as u64];
        Arg::TensorMap(TensorMap::dense(
            buffer,
            TensorElement::F32,
            &dims,
            &[boxed],
        ))
    };
    [
        map("scale_a", counts[0], copied_rows(rows) + LEAST),
        map("scale_b", counts[1], LEAST),
    ]
}

/// What a thread needs of the scales of one block of the depth, for 64 rows of sums. It is
/// read while the block before is multiplied.
pub(crate) struct Fetched<'k> {
    /// Of its two rows, 8 apart.
    rows: Vec<Scale<'k>>,
    /// Of its columns: two neighbours of every 8, or one for every [`chunk`].
    cols: Vec<Scale<'k>>,
    /// Columns that have one in common.
    chunk: u32,
}

/// A scale, and where those of its row, or of its block of columns, begin.
struct Scale<'k> {
    from: Ptr<'k, Global, f32>,
    value: Var<'k, f32>,
    of_a: bool,
}

impl<'k> BlockScales<'k> {
    /// The scales for 64 rows from `row` on and `cols` columns from `col` on. Rows and columns
    /// outside take the scale of the last one inside: their products are zero.
    pub(crate) fn room(
        &self,
        k: &Kernel<'k>,
        [row, col]: [Val<'k, u32>; 2],
        cols: u32,
    ) -> Fetched<'k> {
        let lane = k.lane();
        let of_a = |row: Val<'k, u32>| Scale {
            from: self.a.at(row.min(self.m - 1)),
            value: k.var(0.0f32),
            of_a: true,
        };
        let of_b = |col: Val<'k, u32>| Scale {
            from: self
                .b
                .at((col.min(self.n - 1) / BLOCK).mul_wide(self.depth)),
            value: k.var(0.0f32),
            of_a: false,
        };
        let chunk = chunk(cols);
        match self.swapped {
            false => {
                let down = row + (k.warp_uniform() & 3) * 16 + (lane >> 2);
                Fetched {
                    rows: [0, 8].map(|further| of_a(down + further)).into(),
                    cols: (0..cols.div_ceil(chunk))
                        .map(|number| of_b(col + number * chunk))
                        .collect(),
                    chunk,
                }
            }
            true => {
                let across = col + ((lane & 3) << 1);
                Fetched {
                    // Blocks of 128 begin at multiples of the 64 rows.
                    rows: vec![of_b(row)],
                    cols: (0..cols / 4)
                        .map(|number| of_a(across + (number / 2 * 8 + number % 2)))
                        .collect(),
                    chunk,
                }
            }
        }
    }

    /// Reads the scales of a block of the depth, or of the last one.
    pub(crate) fn fetch(&self, to: &Fetched<'k>, block: Val<'k, u32>) {
        let block = block.min(self.depth - 1);
        let below = block.mul_wide(self.pitch);
        for scale in to.rows.iter().chain(&to.cols) {
            let at = match scale.of_a {
                true => scale.from.at(below),
                false => scale.from.at(block),
            };
            scale.value.set(at.load());
        }
    }

    /// Where the scales of a tile's rows begin in a block, among all of A's.
    fn of_a(
        &self,
        copied: &CopiedScales<'k>,
        row: Val<'k, u32>,
        block: Val<'k, u32>,
    ) -> Val<'k, u32> {
        copied.before[0] + row + block * self.pitch
    }

    /// Where those of columns of B do.
    fn of_b(
        &self,
        copied: &CopiedScales<'k>,
        col: Val<'k, u32>,
        block: Val<'k, u32>,
    ) -> Val<'k, u32> {
        copied.before[1] + (col.min(self.n - 1) / BLOCK) * self.depth + block
    }

    /// Issues the copies of a block's scales, for a tile of so many rows and columns that begins there.
    pub(crate) fn copy(
        &self,
        copied: &CopiedScales<'k>,
        copies: &Transaction<'k>,
        to: Landing<'k, f32>,
        [row, col]: [Val<'k, u32>; 2],
        [rows, cols]: [u32; 2],
        block: Val<'k, u32>,
    ) {
        let [a, b] = copied.maps;
        let whole = |at: Val<'k, u32>| [(at & !(LEAST - 1)).cast::<i32>()];
        let each = copied_rows(rows);
        for part in 0..rows / each {
            let from = whole(self.of_a(copied, row + part * each, block));
            let to = to.part(part * copied_apart(rows), each + LEAST);
            copies.copy_tensor(to, a, from);
        }
        for number in 0..across(cols) {
            let from = whole(self.of_b(copied, col + number * chunk(cols), block));
            let to = to.part(behind(rows) + number * APART, LEAST);
            copies.copy_tensor(to, b, from);
        }
    }

    /// The factors of a thread's sums of 64 rows from `down` in the tile on, from the scales that came with its stage.
    pub(crate) fn copied_factors(
        &self,
        copied: &CopiedScales<'k>,
        from: Ptr<'k, Shared, f32>,
        [row, col]: [Val<'k, u32>; 2],
        down: Val<'k, u32>,
        [rows, cols]: [u32; 2],
        block: Val<'k, u32>,
    ) -> Factors<'k> {
        let k = down.kernel();
        let within = |at: Val<'k, u32>| at & (LEAST - 1);
        let own = down + (k.warp_uniform() & 3) * 16 + (k.lane() >> 2);
        let each = copied_rows(rows);
        let own = match rows == each {
            true => own,
            false => own + down / each * (copied_apart(rows) - each),
        };
        let own = from.at(own + within(self.of_a(copied, row, block)));
        let of_a = [0, 8].map(|further| own.at(further).load());
        let of_b = (0..across(cols)).map(|number| {
            let at = within(self.of_b(copied, col + number * chunk(cols), block));
            from.at(at + (behind(rows) + number * APART)).load()
        });
        let products = of_b.map(|col| of_a.iter().map(|row| *row * col).collect());
        Factors {
            products: products.collect(),
            chunk: chunk(cols),
            swapped: false,
        }
    }

    /// The factors of a thread's four sums of each 8 columns, from what was fetched.
    pub(crate) fn factors(&self, from: &Fetched<'k>) -> Factors<'k> {
        let rows: Vec<_> = from.rows.iter().map(|scale| scale.value.get()).collect();
        let cols = from.cols.iter().map(|scale| scale.value.get());
        let products = cols.map(|col| rows.iter().map(|row| *row * col).collect());
        Factors {
            products: products.collect(),
            chunk: from.chunk,
            swapped: self.swapped,
        }
    }
}

/// Factors that came with a stage which is multiplied meanwhile.
pub(crate) struct Kept<'k> {
    values: Vec<[Var<'k, f32>; 2]>,
    chunk: u32,
}

impl<'k> Kept<'k> {
    /// For tiles of so many columns.
    pub(crate) fn new(k: &Kernel<'k>, cols: u32) -> Kept<'k> {
        let each = (0..across(cols)).map(|_| [0, 1].map(|_| k.var(0.0f32)));
        Kept {
            values: each.collect(),
            chunk: chunk(cols),
        }
    }

    /// What was kept.
    pub(crate) fn factors(&self) -> Factors<'k> {
        let of = |rows: &[Var<'k, f32>; 2]| rows.map(Var::get).into();
        Factors {
            products: self.values.iter().map(of).collect(),
            chunk: self.chunk,
            swapped: false,
        }
    }
}

/// Products of scales of rows and columns.
pub(crate) struct Factors<'k> {
    /// For each scale of columns, its products with those of the rows.
    products: Vec<Vec<Val<'k, f32>>>,
    /// Columns that have one in common.
    chunk: u32,
    swapped: bool,
}

impl<'k> Factors<'k> {
    /// Keeps them until the next are.
    pub(crate) fn keep(&self, to: &Kept<'k>) {
        let all = self.products.iter().flatten();
        to.values
            .iter()
            .flatten()
            .zip(all)
            .for_each(|(kept, new)| kept.set(*new));
    }

    /// Those of block `index` of 8 columns.
    pub(crate) fn block(&self, index: usize) -> [Val<'k, f32>; 4] {
        match self.swapped {
            false => {
                let of = &self.products[index * 8 / self.chunk as usize];
                [of[0], of[0], of[1], of[1]]
            }
            true => {
                let [left, right] = [0, 1].map(|next| self.products[index * 2 + next][0]);
                [left, right, left, right]
            }
        }
    }
}
