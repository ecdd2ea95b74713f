//! Block scales, and accumulation in two levels.
//!
//! Tensor cores accumulate products of 8-bit floats with 13 bits of fraction, so a large
//! accumulator loses small products. In *two levels* they accumulate 128 elements of the depth at a
//! time, and the threads add these partial sums in f32. Matrices with a scale for every 128
//! elements of the depth need that in any case: between the levels the sums are multiplied by the
//! scales of their blocks.

use heist_builder::{Global, Kernel, Ptr, Val, Var};

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

/// Products of scales of rows and columns.
pub(crate) struct Factors<'k> {
    /// For each scale of columns, its products with those of the rows.
    products: Vec<Vec<Val<'k, f32>>>,
    /// Columns that have one in common.
    chunk: u32,
    swapped: bool,
}

impl<'k> Factors<'k> {
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
