//! The memory layout of dQ's accumulators of a block of queries: in the order of the registers that
//! hold them.
//!
//! A block's dQ is two pieces of 64 x 64, one to a warpgroup: for heads of 64 one below
//! the other, for heads of 128 side by side. A thread has of every 8 columns of its piece
//! four numbers: two neighbours, and the two 8 rows further down.

use crate::attention::backward::problem::Sums;
use heist_builder::{Global, Ptr, Val};

/// Numbers of a piece.
pub(in crate::attention::backward) const PIECE: u32 = 64 * 64;
/// Columns that a thread has four numbers of.
const COLUMNS: u32 = 8;
/// Threads of a warpgroup.
const THREADS: u32 = 128;

/// The four numbers of thread `thread` of the columns `index`, and how far apart they
/// are: next to each other, to be added in one instruction; fixed-point numbers, which
/// are added one by one, so that neighbours of a warp are next to each other.
fn place<'k>(
    piece: Ptr<'k, Global, f32>,
    sums: Sums,
    thread: Val<'k, u32>,
    index: u32,
) -> (Ptr<'k, Global, f32>, u32) {
    let first = piece.at(index * 4 * THREADS);
    match sums {
        Sums::Float => (first.at(thread * 4), 1),
        Sums::Fixed => (first.at(thread), THREADS),
    }
}

/// Adds what a thread has of 8 columns of a piece. `steps` are those of its two rows.
pub(super) fn add<'k>(
    piece: Ptr<'k, Global, f32>,
    thread: Val<'k, u32>,
    index: u32,
    values: [Val<'k, f32>; 4],
    steps: Option<[Val<'k, f32>; 2]>,
) {
    match steps {
        None => {
            let (to, _) = place(piece, Sums::Float, thread, index);
            to.reduce_add_vec(values);
        }
        Some([up, down]) => {
            let (to, apart) = place(piece, Sums::Fixed, thread, index);
            let steps = [up, up, down, down];
            for (at, (value, step)) in values.into_iter().zip(steps).enumerate() {
                let to = to.at(at as u32 * apart).cast::<i32>();
                to.reduce_add((value * step).nearest());
            }
        }
    }
}

/// What a thread has of 8 columns of a piece, as sums in f32 or still in units of their
/// rows.
pub(in crate::attention::backward) fn load<'k>(
    piece: Ptr<'k, Global, f32>,
    sums: Sums,
    thread: Val<'k, u32>,
    index: u32,
) -> [Val<'k, f32>; 4] {
    let (from, apart) = place(piece, sums, thread, index);
    match sums {
        Sums::Float => from.load_vec_readonly(),
        Sums::Fixed => [0, 1, 2, 3].map(|at| {
            let whole = from.at(at * apart).cast::<i32>().load_readonly();
            whole.cast()
        }),
    }
}

/// The first row and column of a piece's part that a thread has, and the first row and
/// column of the piece: in a block of heads of `dim`.
pub(in crate::attention::backward) fn corner<'k>(
    dim: u32,
    piece: Val<'k, u32>,
    thread: Val<'k, u32>,
) -> [Val<'k, u32>; 2] {
    let (warp, lane) = (thread / 32, thread % 32);
    let row = warp * 16 + (lane >> 2);
    let col = (lane & 3) << 1;
    if dim <= 64 {
        [row + piece * 64, col]
    } else {
        [row, col + piece * 64]
    }
}

/// Parts of 8 columns of a piece.
pub(in crate::attention::backward) const PARTS: u32 = 64 / COLUMNS;
