//! The launch that writes operands anew: blocks up to some number write the first of them, the others the second.

use crate::error::KernelError;
use crate::family::Target;
use crate::job::{Step, buffer};
use crate::overlap::overlap;
use heist_builder::{BuildError, BuiltKernel, Global, Kernel, KernelSpec, Ptr, Val, kernel_params};
use heist_launch::Dim3;

kernel_params! {
    /// The kernel's parameters: of each operand what is read and written, and its numbers.
    pub(crate) struct AnewArgs {
        /// The first operand.
        from: Global<u8>,
        /// Where it is written to.
        to: Global<u8>,
        /// Rows that are read.
        rows: u32,
        /// Words of such a row as they are written, or its elements where they are turned.
        row: u32,
        /// Elements from one to the next, or words where these are copied.
        pitch: u32,
        /// Words from one row that is written to the next.
        written: u32,
        /// Elements of a row that is read.
        elements: u32,
        /// Blocks that write it.
        blocks: u32,
        /// The second operand.
        other_from: Global<u8>,
        /// Where it is written to.
        other_to: Global<u8>,
        /// Rows that are read.
        other_rows: u32,
        /// As above.
        other_row: u32,
        /// As above.
        other_pitch: u32,
        /// As above.
        other_written: u32,
        /// As above.
        other_elements: u32,
    }
}

/// How an operand is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In pairs of halves that are read one by one.
    Halves,
    /// In words that are read whole.
    Words,
    /// In words, rows as columns.
    Turn,
}

/// An operand that is written, and by how many blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rewrite {
    way: Way,
    names: [&'static str; 2],
    rows: u32,
    row: u32,
    pitch: u32,
    written: u32,
    elements: u32,
    blocks: u32,
}

/// Threads of a block.
const THREADS: u32 = 256;
/// Words that a thread writes. It reads all of them before it writes the first.
const EACH: u32 = 8;
/// Rows and columns of the square that a block turns.
const SIDE: u32 = 32;
/// Rows that it reads at a time.
const ROWS: u32 = THREADS / SIDE;

impl Rewrite {
    /// Of rows of so many bytes that are copied; `None` where their words can't be counted in 32 bits.
    pub(super) fn copy(
        way: Way,
        names: [&'static str; 2],
        rows: u32,
        row_bytes: u32,
    ) -> Option<Rewrite> {
        let row = row_bytes.div_ceil(4);
        let own = THREADS * EACH;
        let words = u64::from(rows) * u64::from(row);
        // The threads of the last block count a little further.
        u32::try_from(words + u64::from(own)).ok()?;
        Some(Rewrite {
            way,
            names,
            rows,
            row,
            pitch: 0,
            written: 0,
            elements: row_bytes / 2,
            blocks: words.div_ceil(own.into()) as u32,
        })
    }

    /// Of so many matrices of words whose rows become columns.
    pub(super) fn turn(
        names: [&'static str; 2],
        [rows, row]: [u32; 2],
        count: u32,
    ) -> Option<Rewrite> {
        let squares = rows.div_ceil(SIDE).checked_mul(row.div_ceil(SIDE))?;
        Some(Rewrite {
            way: Way::Turn,
            names,
            rows,
            row,
            pitch: 0,
            written: 0,
            elements: row,
            blocks: squares.checked_mul(count)?,
        })
    }

    /// The same with rows so far apart where it is read, in elements or in the words that are copied, and where it is written, in words.
    pub(super) fn pitches(self, [pitch, written]: [u32; 2]) -> Rewrite {
        Rewrite {
            pitch,
            written,
            ..self
        }
    }
}

/// The most blocks along the first axis of a grid.
const MOST_BLOCKS: u32 = (1 << 31) - 1;

/// The launch that writes these operands, one or two.
///
/// # Errors
/// What could not be built.
pub(super) fn step(all: &[Rewrite], target: Target) -> Result<Step, KernelError> {
    let Some(&first) = all.first() else {
        return Err(KernelError::unfit("nothing is written anew"));
    };
    let second = all.get(1).copied();
    let blocks = first
        .blocks
        .checked_add(second.map_or(0, |second| second.blocks));
    let Some(blocks) = blocks.filter(|blocks| *blocks <= MOST_BLOCKS) else {
        return Err(KernelError::unfit(format!(
            "{} and its other operand have too many elements to be written anew first",
            first.names[0]
        )));
    };
    let kernel = build(first.way, second.map(|second| second.way), target)?;
    // Parameters of an operand that there is not are not looked at.
    let other = second.unwrap_or(first);
    let args = AnewArgs {
        from: buffer(first.names[0]),
        to: buffer(first.names[1]),
        rows: first.rows,
        row: first.row,
        pitch: first.pitch,
        written: first.written,
        elements: first.elements,
        blocks: first.blocks,
        other_from: buffer(other.names[0]),
        other_to: buffer(other.names[1]),
        other_rows: other.rows,
        other_row: other.row,
        other_pitch: other.pitch,
        other_written: other.written,
        other_elements: other.elements,
    };
    Ok(Step::plain(&kernel, Dim3::new(blocks, 1, 1), args))
}

fn build(
    first: Way,
    second: Option<Way>,
    target: Target,
) -> Result<BuiltKernel<AnewArgs>, BuildError> {
    KernelSpec::<AnewArgs>::new("gemm_anew")
        .block(THREADS)
        .build(target.arch, |k, args| {
            overlap(k);
            let one = Matrix {
                from: args.from,
                to: args.to,
                rows: args.rows,
                row: args.row,
                pitch: args.pitch,
                written: args.written,
                elements: args.elements,
            };
            let block = k.block().x;
            let Some(second) = second else {
                one.write(k, first, block);
                return;
            };
            let other = Matrix {
                from: args.other_from,
                to: args.other_to,
                rows: args.other_rows,
                row: args.other_row,
                pitch: args.other_pitch,
                written: args.other_written,
                elements: args.other_elements,
            };
            k.if_else(
                block.lt(args.blocks),
                || one.write(k, first, block),
                || other.write(k, second, block - args.blocks),
            );
        })
}

/// An operand inside the kernel.
#[derive(Clone, Copy)]
struct Matrix<'k> {
    from: Ptr<'k, Global, u8>,
    to: Ptr<'k, Global, u8>,
    rows: Val<'k, u32>,
    row: Val<'k, u32>,
    pitch: Val<'k, u32>,
    written: Val<'k, u32>,
    elements: Val<'k, u32>,
}

impl<'k> Matrix<'k> {
    fn write(&self, k: &Kernel<'k>, way: Way, block: Val<'k, u32>) {
        match way {
            Way::Halves => self.copy(k, block, |row, word| self.halves(row, word)),
            Way::Words => self.copy(k, block, |row, word| self.word(row, word)),
            Way::Turn => self.turn(k, block),
        }
    }

    /// Copies rows one after the other, without regard to where they end: neighbours write neighbouring words, and every thread has as many, however
    /// long rows are.
    fn copy(
        &self,
        k: &Kernel<'k>,
        block: Val<'k, u32>,
        read: impl Fn(Val<'k, u32>, Val<'k, u32>) -> Val<'k, u32>,
    ) {
        let first = block * (THREADS * EACH) + k.thread_index();
        // From a thread's word to its next one: so many rows down, and so many words along.
        let (down, along) = (k.c(THREADS) / self.row, k.c(THREADS) % self.row);
        let (mut row, mut word) = (first / self.row, first % self.row);
        let mut found = Vec::new();
        for _ in 0..EACH {
            found.push((row, word, read(row, word)));
            word = word + along;
            let over = word.ge(self.row);
            word = over.select(word - self.row, word);
            row = row + down + over.to_u32();
        }
        let to = self.to.cast::<u32>();
        for (row, word, value) in found {
            k.if_(row.lt(self.rows), || {
                to.at(row.mul_wide(self.written) + word.cast::<u64>())
                    .store(value);
            });
        }
    }

    /// A word of a row, or any behind the last row.
    fn word(&self, row: Val<'k, u32>, word: Val<'k, u32>) -> Val<'k, u32> {
        let at = row.mul_wide(self.pitch) + word.cast::<u64>();
        // The first one is always there, so that no load waits for a branch.
        let at = row.lt(self.rows).select(at, 0u64);
        self.from.cast::<u32>().at(at).load()
    }

    /// The same of two halves, of which the second may be behind the row's last.
    fn halves(&self, row: Val<'k, u32>, word: Val<'k, u32>) -> Val<'k, u32> {
        let from = self.from.cast::<u16>();
        let at = row.mul_wide(self.pitch) + (word * 2).cast::<u64>();
        let inside = row.lt(self.rows);
        let both = inside & (word * 2 + 1).lt(self.elements);
        let low = from.at(inside.select(at, 0u64)).load();
        let high = from.at(both.select(at + 1u64, 0u64)).load();
        low.cast::<u32>() | (high.cast::<u32>() << 16)
    }

    /// Writes a square turned: rows are read and written whole.
    fn turn(&self, k: &Kernel<'k>, block: Val<'k, u32>) {
        // Columns of the square lie in different banks.
        let square = k.shared::<u32>("square", SIDE * (SIDE + 1));
        let (x, y) = (k.thread_index() % SIDE, k.thread_index() / SIDE);
        let [wide, high] = [self.row, self.rows].map(|all| (all + (SIDE - 1)) / SIDE);
        let (number, place) = (block / (wide * high), block % (wide * high));
        let (row0, col0) = (place / wide * SIDE, place % wide * SIDE);
        let from = self.from.cast::<u32>();
        let from = from.at(number.mul_wide(self.rows) * self.pitch.cast::<u64>());
        let to = self.to.cast::<u32>();
        let to = to.at(number.mul_wide(self.row) * self.written.cast::<u64>());
        let found: Vec<_> = (0..SIDE / ROWS)
            .map(|part| {
                let (row, col) = (row0 + y + part * ROWS, col0 + x);
                let inside = row.lt(self.rows) & col.lt(self.row);
                let at = row.mul_wide(self.pitch) + col.cast::<u64>();
                from.at(inside.select(at, 0u64)).load()
            })
            .collect();
        for (part, word) in (0..).zip(found) {
            square.at((y + part * ROWS) * (SIDE + 1) + x).store(word);
        }
        k.sync();
        for part in 0..SIDE / ROWS {
            let own = y + part * ROWS;
            let (row, col) = (row0 + x, col0 + own);
            k.if_(row.lt(self.rows) & col.lt(self.row), || {
                let word = square.at(x * (SIDE + 1) + own).load();
                to.at(col.mul_wide(self.written) + row.cast::<u64>())
                    .store(word);
            });
        }
    }
}
