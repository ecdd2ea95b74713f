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

/// The four numbers of thread `thread` of the columns `index`, next to each other, to be added in one instruction.
fn four<'k>(piece: Ptr<'k, Global, f32>, thread: Val<'k, u32>, index: u32) -> Ptr<'k, Global, f32> {
    piece.at(index * 4 * THREADS).at(thread * 4)
}

/// The same in fixed point: two and two, which are added as one number of 64 bits, so that neighbours of a warp are next to each other.
fn twos<'k>(
    piece: Ptr<'k, Global, f32>,
    thread: Val<'k, u32>,
    index: u32,
) -> [Ptr<'k, Global, u64>; 2] {
    let first = piece.at(index * 4 * THREADS).at(thread * 2);
    [0, 2 * THREADS].map(|further| first.at(further).cast())
}

/// Two whole numbers as one of 64 bits: the second times 2^32, plus the first. Sums of these are the sums of both, as long as
/// neither overflows.
fn join<'k>(low: Val<'k, i32>, high: Val<'k, i32>) -> Val<'k, u64> {
    let bits = |number: Val<'k, i32>| number.bitcast::<u32>().cast::<u64>();
    bits(low) | bits(high + (low >> 31)) << 32
}

/// The two numbers.
fn part<'k>(both: Val<'k, u64>) -> [Val<'k, i32>; 2] {
    let low = both.cast::<u32>().bitcast::<i32>();
    let high = (both >> 32).cast::<u32>().bitcast::<i32>();
    [low, high - (low >> 31)]
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
            four(piece, thread, index).reduce_add_vec(values);
        }
        Some(steps) => {
            let pairs = values.chunks_exact(2).zip(steps);
            for (to, (pair, step)) in twos(piece, thread, index).into_iter().zip(pairs) {
                let whole = |value: Val<'k, f32>| (value * step).nearest();
                to.reduce_add(join(whole(pair[0]), whole(pair[1])));
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
    match sums {
        Sums::Float => four(piece, thread, index).load_vec_readonly(),
        Sums::Fixed => {
            let pairs = twos(piece, thread, index).map(|from| part(from.load_readonly()));
            [pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]].map(Val::cast)
        }
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
