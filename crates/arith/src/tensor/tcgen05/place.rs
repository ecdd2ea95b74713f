//! Where things lie in tensor memory: the elements of a result, and the registers of
//! `tcgen05.ld` and `tcgen05.st`.

use super::form::Usage;

/// Columns and lanes of a block's tensor memory.
pub const COLUMNS: usize = 512;
/// Lanes of a block's tensor memory.
pub const LANES: usize = 128;

/// How the result of a product is spread over lanes and columns; the letters are those of
/// the book's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// 256 rows over a pair of blocks, a row a lane.
    A,
    /// 128 rows over a pair: the upper half of the columns in lanes 64 and up.
    B,
    /// 128 rows over a pair, sixteen in each quarter of the lanes.
    C,
    /// 128 rows, a row a lane.
    D,
    /// 64 rows of `.ws`: the upper half of the columns in lanes 64 and up.
    E,
    /// 64 rows, sixteen in each quarter of the lanes.
    F,
    /// 32 rows of `.ws`: each quarter of the columns in a quarter of the lanes.
    G,
}

impl Layout {
    /// The layout of a result with `m` rows.
    pub const fn of(m: usize, usage: Usage) -> Layout {
        match (usage.pair, usage.ws, m) {
            (true, _, 256) => Layout::A,
            (true, _, _) if usage.sparse => Layout::C,
            (true, ..) => Layout::B,
            (_, true, 32) => Layout::G,
            (_, true, 64) => Layout::E,
            (_, false, 64) => Layout::F,
            _ => Layout::D,
        }
    }

    /// Whether it may begin at lane 16.
    pub const fn has_halves(self) -> bool {
        matches!(self, Layout::C | Layout::F)
    }

    /// The block of the pair, the lane and the column, from the base, of element
    /// (`m`, `n`) of a result with `columns` columns.
    pub const fn place(self, m: usize, n: usize, columns: usize) -> (usize, usize, usize) {
        let half = columns / 2;
        let quarter = columns / 4;
        match self {
            Layout::A => (m / 128, m % 128, n),
            Layout::B => (m / 64, m % 64 + 64 * (n / half), n % half),
            Layout::C => (m / 64, m % 16 + 32 * (m % 64 / 16), n),
            Layout::D => (0, m, n),
            Layout::E => (0, m + 64 * (n / half), n % half),
            Layout::F => (0, m % 16 + 32 * (m / 16), n),
            Layout::G => (0, m + 32 * (n / quarter), n % quarter),
        }
    }

    /// The columns of tensor memory that a result takes.
    pub const fn width(self, columns: usize) -> usize {
        match self {
            Layout::B | Layout::E => columns / 2,
            Layout::G => columns / 4,
            _ => columns,
        }
    }
}

/// The shape of a `tcgen05.ld` or `tcgen05.st`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `.32x32b`.
    L32x32,
    /// `.16x64b`.
    L16x64,
    /// `.16x128b`.
    L16x128,
    /// `.16x256b`.
    L16x256,
    /// `.16x32bx2`, with the distance of the two halves in columns.
    L16x32x2(u32),
}

impl Shape {
    /// Registers of `.x1`.
    pub const fn registers(self) -> usize {
        match self {
            Shape::L16x128 => 2,
            Shape::L16x256 => 4,
            _ => 1,
        }
    }

    /// The largest count: `.x128` moves as many registers as there are.
    pub const fn most(self) -> usize {
        128 / self.registers()
    }

    /// Lanes that it reaches.
    pub const fn lanes(self) -> usize {
        match self {
            Shape::L32x32 => 32,
            _ => 16,
        }
    }

    /// The lane and the column, both from the base, of a thread's register.
    pub const fn place(self, thread: usize, register: usize) -> (usize, usize) {
        let (t, r) = (thread, register);
        match self {
            Shape::L32x32 => (t, r),
            Shape::L16x64 => (t / 4 + 8 * (t % 2), 2 * r + t / 2 % 2),
            Shape::L16x128 => (t / 4 + 8 * (r % 2), 4 * (r / 2) + t % 4),
            Shape::L16x256 => (t / 4 + 8 * (r / 2 % 2), 8 * (r / 4) + 2 * (t % 4) + r % 2),
            Shape::L16x32x2(split) => (t % 16, r + split as usize * (t / 16)),
        }
    }
}
