//! Products of matrices in groups of different heights, the last rows of each
//! partial: the workload that field reports name for clusters of two blocks.
//!
//! Group `g` has `rows[g]` rows of A and a matrix B of its own. Tiles lie in a
//! grid: x counts columns of tiles, y counts the row tiles of all groups one
//! after the other, so that a cluster's neighbours in y may belong to different
//! groups. Whole numbers are used, so the result is the same on every device.
//! It is for tests, not for speed.

use heist_builder::{Arch, BuildError, Global, Kernel, Val, With, kernel_params};
use heist_launch::{Arg, Dim3};
use heist_sched::{Schedule, Tiled, TiledKernel};

/// Rows and columns of a tile.
const SIDE: u32 = 32;
/// Steps along the inner axis between two barriers of the block.
const DEPTH: u32 = 8;
/// Threads of a block; each makes elements of one column.
const THREADS: u32 = 128;
const ROWS_APART: u32 = THREADS / SIDE;
/// Words of the table of row tiles for each: first row, rows, group.
const WORDS: u32 = 3;

kernel_params! {
    /// The kernel's parameters.
    pub struct GroupedArgs {
        /// All rows of all groups.
        a: Global<u32>,
        /// The groups' matrices, one after the other.
        b: Global<u32>,
        /// The product.
        c: Global<u32>,
        /// First row, number of rows and group of each row tile.
        row_tiles: Global<u32>,
        /// Columns of B and C.
        n: u32,
        /// Columns of A.
        k: u32,
    }
}

/// Sizes and data of a grouped product.
///
/// ```
/// use heist_kernels::synthetic::Grouped;
/// let grouped = Grouped::new(&[40, 96, 1], 64, 32, 1);
/// assert_eq!(grouped.tiles().to_array(), [2, 2 + 3 + 1, 1]);
/// let product = grouped.reference();
/// assert!(grouped.verify(&product).is_ok());
/// assert!(grouped.verify(&product[1..]).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Grouped {
    rows: Vec<u32>,
    n: u32,
    k: u32,
    a: Vec<u32>,
    b: Vec<u32>,
}

/// An element of the product that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {row}, column {column}: {found:#010x} instead of {expected:#010x}; {wrong} elements are wrong"
)]
pub struct WrongElement {
    /// Row of C.
    pub row: usize,
    /// Column.
    pub column: usize,
    /// What is there.
    pub found: u32,
    /// What should be there.
    pub expected: u32,
    /// How many are wrong.
    pub wrong: usize,
}

impl Grouped {
    /// Groups of these heights, with random numbers.
    pub fn new(rows: &[u32], n: u32, k: u32, seed: u64) -> Grouped {
        let mut rng = fastrand::Rng::with_seed(seed);
        let all: u64 = rows.iter().map(|&rows| u64::from(rows)).sum();
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let mut numbers = |number| (0..count(number)).map(|_| rng.u32(..)).collect();
        Grouped {
            a: numbers(all * u64::from(k)),
            b: numbers(rows.len() as u64 * u64::from(n) * u64::from(k)),
            rows: rows.to_vec(),
            n,
            k,
        }
    }

    /// Groups of 40 rows among larger and smaller ones, with odd numbers of
    /// tiles along both axes.
    pub fn forty_among_larger() -> Grouped {
        Grouped::new(&[40, 170, 96, 40, 17, 40, 1], 96, 24, 11)
    }

    /// The grid of tiles.
    pub fn tiles(&self) -> Dim3 {
        let down = self.row_tiles().len() as u32 / WORDS;
        Dim3::new(self.n.div_ceil(SIDE), down, 1)
    }

    fn row_tiles(&self) -> Vec<u32> {
        let mut tiles = Vec::new();
        let mut first = 0;
        for (group, &rows) in self.rows.iter().enumerate() {
            for at in (0..rows).step_by(SIDE as usize) {
                tiles.extend([first + at, SIDE.min(rows - at), group as u32]);
            }
            first += rows;
        }
        tiles
    }

    /// The field of the product among the arguments.
    pub const OUTPUT: &str = "c";

    /// The kernel's own arguments.
    pub fn arguments(&self) -> GroupedArgs<With<Arg>> {
        GroupedArgs {
            a: Arg::input(&self.a),
            b: Arg::input(&self.b),
            c: Arg::output::<u32>(self.elements()),
            row_tiles: Arg::input(&self.row_tiles()),
            n: self.n,
            k: self.k,
        }
    }

    fn elements(&self) -> usize {
        self.rows.iter().map(|&rows| rows as usize).sum::<usize>() * self.n as usize
    }

    /// The product, on the host.
    pub fn reference(&self) -> Vec<u32> {
        let (n, k) = (self.n as usize, self.k as usize);
        let mut product = vec![0u32; self.elements()];
        let mut row = 0;
        for (group, &rows) in self.rows.iter().enumerate() {
            let b = &self.b[group * n * k..(group + 1) * n * k];
            for _ in 0..rows {
                let a = &self.a[row * k..(row + 1) * k];
                let c = &mut product[row * n..(row + 1) * n];
                for (a, b) in a.iter().zip(b.chunks_exact(n)) {
                    for (c, b) in c.iter_mut().zip(b) {
                        *c = c.wrapping_add(a.wrapping_mul(*b));
                    }
                }
                row += 1;
            }
        }
        product
    }

    /// Compares a product with the reference.
    ///
    /// # Errors
    /// The first element that is wrong or missing.
    pub fn verify(&self, product: &[u32]) -> Result<(), WrongElement> {
        let reference = self.reference();
        let found = |at: usize| product.get(at).copied().unwrap_or(!reference[at]);
        let mut wrong = (0..reference.len()).filter(|&at| found(at) != reference[at]);
        let Some(at) = wrong.next() else {
            return Ok(());
        };
        Err(WrongElement {
            row: at / self.n as usize,
            column: at % self.n as usize,
            found: found(at),
            expected: reference[at],
            wrong: 1 + wrong.count(),
        })
    }

    /// Builds its kernel.
    ///
    /// # Errors
    /// Why the schedule is not possible on `arch`.
    pub fn build(
        &self,
        schedule: &Schedule,
        arch: Arch,
    ) -> Result<TiledKernel<GroupedArgs>, BuildError> {
        Tiled::<GroupedArgs>::new("grouped", self.tiles())
            .schedule(schedule)
            .block(THREADS)
            .build(arch, |k, args, tiles| {
                let a = k.shared::<u32>("a_tile", SIDE * DEPTH);
                let b = k.shared::<u32>("b_tile", SIDE * DEPTH);
                let thread = k.thread().x;
                let (column, row) = (thread % SIDE, thread / SIDE);
                tiles.each(|tile| {
                    let entry = args.row_tiles.at(tile.y * WORDS);
                    let first = entry.at(0).load_readonly().named("first_row");
                    let rows = entry.at(1).load_readonly().named("rows");
                    let group = entry.at(2).load_readonly().named("group");
                    let x = (tile.x * SIDE + column).named("x");
                    let sums: Vec<_> = (0..SIDE / ROWS_APART).map(|_| k.var(0u32)).collect();
                    let steps = (args.k + (DEPTH - 1)) / DEPTH;
                    k.for_range(0u32, steps, |step| {
                        let at = (step * DEPTH).named("depth");
                        // A and B in pieces of the same size, outside of which
                        // there are zeros.
                        for piece in 0..SIDE * DEPTH / THREADS {
                            let slot = thread + piece * THREADS;
                            let (i, d) = (slot / DEPTH, at + slot % DEPTH);
                            let value = guarded(k, i.lt(rows) & d.lt(args.k), || {
                                args.a.at((first + i) * args.k + d).load_readonly()
                            });
                            a.at(slot).store(value);
                            let (d, j) = (at + slot / SIDE, tile.x * SIDE + slot % SIDE);
                            let value = guarded(k, d.lt(args.k) & j.lt(args.n), || {
                                let row = group * args.k + d;
                                args.b.at(row * args.n + j).load_readonly()
                            });
                            b.at(slot).store(value);
                        }
                        k.sync();
                        for d in 0..DEPTH {
                            let right = b.at(column + d * SIDE).load();
                            for (step, sum) in sums.iter().enumerate() {
                                let i = row + step as u32 * ROWS_APART;
                                let left = a.at(i * DEPTH + d).load();
                                sum.set(left.mul_add(right, sum.get()));
                            }
                        }
                        k.sync();
                    });
                    for (step, sum) in sums.iter().enumerate() {
                        let i = row + step as u32 * ROWS_APART;
                        k.if_(i.lt(rows) & x.lt(args.n), || {
                            args.c.at((first + i) * args.n + x).store(sum.get());
                        });
                    }
                })
            })
    }
}

/// A value where a condition holds, and zero elsewhere.
fn guarded<'k>(
    k: &Kernel<'k>,
    condition: heist_builder::Bool<'k>,
    value: impl Fn() -> Val<'k, u32>,
) -> Val<'k, u32> {
    let held = k.var(0u32);
    k.if_(condition, || held.set(value()));
    held.get()
}
