//! The memory layout of dQ's accumulators of a block of queries: in the order of the registers that
//! hold them.
//!
//! A block's dQ is two pieces of 64 rows, one to a warpgroup: for heads of up to 64 elements one
//! below the other, for wider ones side by side, 64 columns and the rest. A thread has of every 8
//! columns of its piece four numbers: two neighbours, and the two 8 rows further down. Parts of dK and dV lie in the same way.

use crate::attention::backward::problem::Sums;
use heist_builder::{Global, IntoVal, Ptr, Shared, Val};

/// Rows of a piece.
pub(in crate::attention::backward) const ROWS: u32 = 64;
/// Columns that a thread has four numbers of.
pub(in crate::attention::backward) const COLUMNS: u32 = 8;

/// Threads of a warpgroup.
const THREADS: u32 = 128;

/// Columns of both pieces of a block, for heads of `dim`.
pub(in crate::attention::backward) fn columns(dim: u32) -> [u32; 2] {
    match dim {
        ..=64 => [dim; 2],
        _ => [64, dim - 64],
    }
}

/// The first number of a piece in its block.
pub(in crate::attention::backward) fn begin(dim: u32, piece: Val<'_, u32>) -> Val<'_, u32> {
    piece * (ROWS * columns(dim)[0])
}

/// Numbers of a block.
pub(super) fn numbers(dim: u32) -> u32 {
    columns(dim).iter().sum::<u32>() * ROWS
}

/// How a block's dQ is added to the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::attention::backward) enum Way {
    /// Floats, four in one instruction.
    Floats,
    /// Whole numbers, two in one instruction.
    Pairs,
    /// Whole numbers that the copy engine adds, a warp's at a time.
    Bulk,
}

impl Way {
    /// With heads of 64 elements a block has twice the exponentials, which wait for the unit that conversions wait for: there additions by
    /// threads, which wait for conversions, are the slower ones, by 2 to 4 in a hundred. With heads of 128 it is the other way round, by 3 to 7.
    pub(in crate::attention::backward) fn of(sums: Sums, head_dim: u32) -> Way {
        match (sums, head_dim) {
            (Sums::Float, _) => Way::Floats,
            (Sums::Fixed, ..=64) => Way::Bulk,
            (Sums::Fixed, _) => Way::Pairs,
        }
    }
}

/// Where the four numbers of thread `thread` of the columns `index` are: next to each other, to be added in one instruction.
pub(in crate::attention::backward) fn four<'k>(
    piece: Ptr<'k, Global, f32>,
    thread: Val<'k, u32>,
    index: impl IntoVal<'k, u32>,
) -> Ptr<'k, Global, f32> {
    let index = index.into_val(&thread.kernel());
    piece.at(index * (4 * THREADS)).at(thread * 4)
}

/// The first number of the first part of a piece of a tile's gradients, where tiles are cut into parts: the tile, 0 for dK and 1 for dV,
/// and the warpgroup. The piece has 64 keys and all columns, part after part, each as `four` has it.
pub(in crate::attention::backward) fn part<'k>(
    dim: u32,
    [tile, which, group]: [Val<'k, u32>; 3],
    parts: Val<'k, u32>,
) -> Val<'k, u64> {
    ((tile * 2 + which) * 2 + group).mul_wide(parts * (ROWS * dim))
}

/// The same in pairs: two and two, which are added as one number of 64 bits, so that neighbours of a warp are next to each other.
fn twos<'k>(
    piece: Ptr<'k, Global, f32>,
    thread: Val<'k, u32>,
    index: u32,
) -> [Ptr<'k, Global, u64>; 2] {
    let first = piece.at(index * 4 * THREADS).at(thread * 2);
    [0, 2 * THREADS].map(|further| first.at(further).cast())
}

/// The same for the copy engine, in a piece of so many parts: those of a warp are next to each other.
fn of_warp(thread: Val<'_, u32>, parts: u32, index: u32) -> Val<'_, u32> {
    (thread >> 5) * (parts * THREADS) + (thread & 31) * 4 + index * 128
}

/// Two whole numbers as one of 64 bits: the second times 2^32, plus the first. Sums of these are the sums of both, as long as
/// neither overflows.
fn join<'k>(low: Val<'k, i32>, high: Val<'k, i32>) -> Val<'k, u64> {
    let bits = |number: Val<'k, i32>| number.bitcast::<u32>().cast::<u64>();
    bits(low) | bits(high + (low >> 31)) << 32
}

/// The two numbers.
fn two<'k>(both: Val<'k, u64>) -> [Val<'k, i32>; 2] {
    let low = both.cast::<u32>().bitcast::<i32>();
    let high = (both >> 32).cast::<u32>().bitcast::<i32>();
    [low, high - (low >> 31)]
}

/// What whole numbers need: the steps of a thread's two rows, and where they are until the copy engine has read them, if it adds them.
pub(super) struct Fixed<'k> {
    pub(super) steps: [Val<'k, f32>; 2],
    pub(super) outbox: Option<Ptr<'k, Shared, i32>>,
}

/// Four numbers of a thread, several times.
type Fours<'a, 'k> = &'a [[Val<'k, f32>; 4]];

/// Adds what a thread has of a piece, four numbers of each part: those that both pieces have, and those that the first alone has.
pub(super) fn add<'k>(
    piece: Ptr<'k, Global, f32>,
    thread: Val<'k, u32>,
    (both, rest): (Fours<'_, 'k>, Fours<'_, 'k>),
    number: Val<'k, u32>,
    fixed: Option<Fixed<'k>>,
) {
    let k = thread.kernel();
    let each = |add: &dyn Fn(u32, [Val<'k, f32>; 4])| {
        let all = |first: usize, parts: &[_]| {
            for (index, values) in parts.iter().enumerate() {
                add((first + index) as u32, *values);
            }
        };
        all(0, both);
        if !rest.is_empty() {
            k.if_(number.eq(0), || all(both.len(), rest));
        }
    };
    let Some(Fixed { steps, outbox }) = fixed else {
        each(&|index, values| four(piece, thread, index).reduce_add_vec(values));
        return;
    };
    let whole = |[a, b, c, d]: [Val<'k, f32>; 4]| {
        let [above, below] = steps;
        [a * above, b * above, c * below, d * below].map(Val::nearest)
    };
    let Some(outbox) = outbox else {
        each(&|index, values| {
            let [a, b, c, d] = whole(values);
            let [above, below] = twos(piece, thread, index);
            above.reduce_add(join(a, b));
            below.reduce_add(join(c, d));
        });
        return;
    };
    let parts = both.len() as u32;
    let first_lane = k.lane().eq(0);
    k.if_(first_lane, || k.wait_stores_read(0));
    k.sync_warp();
    each(&|index, values| {
        outbox
            .at(of_warp(thread, parts, index))
            .store_vec(whole(values));
    });
    k.fence_async_shared();
    k.sync_warp();
    k.if_(first_lane, || {
        let (first, count) = (of_warp(thread, parts, 0), parts * THREADS);
        k.add_bulk(piece.at(first).cast(), outbox.at(first), count)
            .in_flight();
    });
}

/// What a thread has of 8 columns of a piece, as sums in f32 or still in units of their
/// rows; the piece has `parts` of these.
pub(in crate::attention::backward) fn load<'k>(
    piece: Ptr<'k, Global, f32>,
    way: Way,
    thread: Val<'k, u32>,
    (parts, index): (u32, u32),
) -> [Val<'k, f32>; 4] {
    match way {
        Way::Floats => four(piece, thread, index).load_vec_readonly(),
        Way::Pairs => {
            let pairs = twos(piece, thread, index).map(|from| two(from.load_readonly()));
            [pairs[0][0], pairs[0][1], pairs[1][0], pairs[1][1]].map(Val::cast)
        }
        Way::Bulk => {
            let four = piece.at(of_warp(thread, parts, index)).cast::<i32>();
            four.load_vec_readonly::<4>().map(Val::cast)
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
