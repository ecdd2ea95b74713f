//! Which lane and register hold which element of a fragment.
//!
//! All but the oldest fragments are built alike: the 32 lanes are eight groups of
//! four; the group says where a lane is along one axis, the place within the group
//! along the other, and each further register adds a constant offset.

use crate::lanes::Lanes;
use std::borrow::Borrow;

/// A fragment: a matrix spread over the registers of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The group of four runs along the columns, its members along the rows.
    transposed: bool,
    /// How far apart two neighbours of a group are.
    step: u8,
    /// Elements in one register, consecutive along the members' axis.
    per: u8,
    /// How many of the offsets there are.
    registers: u8,
    /// What a register adds, as rows and columns.
    offsets: [(u8, u8); 8],
}

/// How numbers are read from a register. A trait rather than a closure, so that
/// it can be inlined into code for other instruction sets.
pub(super) trait Decode<R, T> {
    /// Element `j` of a register in every lane.
    fn decode(&self, register: &Lanes<R>, j: u32) -> Lanes<T>;
}

/// How a number is written to element `j` of a register.
pub(super) trait Encode<R, T> {
    /// `word` with the element replaced, or combined.
    fn encode(&self, word: R, j: u32, value: T) -> R;
}

/// The place of an element: row, column.
pub type Coordinate = (usize, usize);

impl Layout {
    /// A fragment whose groups are rows. `offsets` beyond eight are dropped; no
    /// fragment has more.
    pub(super) const fn by_rows(step: u8, per: u8, offsets: &[(u8, u8)]) -> Layout {
        let mut all = [(0, 0); 8];
        let registers = if offsets.len() < 8 { offsets.len() } else { 8 };
        let mut i = 0;
        while i < registers {
            all[i] = offsets[i];
            i += 1;
        }
        Layout {
            transposed: false,
            step,
            per,
            registers: registers as u8,
            offsets: all,
        }
    }

    /// A fragment whose groups are columns.
    pub(super) const fn by_columns(step: u8, per: u8, offsets: &[(u8, u8)]) -> Layout {
        let rows = Layout::by_rows(step, per, offsets);
        Layout {
            transposed: true,
            ..rows
        }
    }

    /// How many registers it takes.
    #[inline]
    pub const fn registers(&self) -> usize {
        self.registers as usize
    }

    /// How many elements a register holds.
    #[inline]
    pub const fn per_register(&self) -> usize {
        self.per as usize
    }

    /// The place of element `j` of a register of a lane.
    #[inline]
    pub const fn place(&self, lane: usize, register: usize, j: usize) -> Coordinate {
        let group = (lane >> 2) & 7;
        let member = (lane & 3) * self.step as usize + j;
        let (row, column) = self.offsets[register & 7];
        if self.transposed {
            (member + row as usize, group + column as usize)
        } else {
            (group + row as usize, member + column as usize)
        }
    }

    /// The index in a row-major matrix of `width` columns where a register's
    /// element 0 of lane 0 is, and what a step of group, member and `j` adds.
    #[inline(always)]
    const fn strides(&self, register: usize, width: usize) -> (usize, [usize; 3]) {
        let (row, column) = self.offsets[register & 7];
        let first = row as usize * width + column as usize;
        let step = self.step as usize;
        let strides = if self.transposed {
            [1, step * width, width]
        } else {
            [width, step, 1]
        };
        (first, strides)
    }

    /// Fills a row-major matrix of `width` columns from registers. A register that
    /// is not there, or has no room in `matrix`, is left out.
    #[inline(always)]
    pub(super) fn gather<R, T: Copy>(
        &self,
        registers: &[impl Borrow<Lanes<R>>],
        matrix: &mut [T],
        width: usize,
        decode: &impl Decode<R, T>,
    ) {
        for (r, register) in registers.iter().enumerate().take(self.registers()) {
            let (first, [group, member, next]) = self.strides(r, width);
            for j in 0..self.per_register() {
                let values = decode.decode(register.borrow(), j as u32);
                let first = first + j * next;
                let last = first + 7 * group + 3 * member;
                let Some(matrix) = matrix.get_mut(first..=last) else {
                    continue;
                };
                for g in 0..8 {
                    for m in 0..4 {
                        matrix[g * group + m * member] = values[4 * g + m];
                    }
                }
            }
        }
    }

    /// The reverse: writes every place to its register and lane.
    #[inline(always)]
    pub(super) fn scatter<R: Copy, T: Copy>(
        &self,
        matrix: &[T],
        width: usize,
        registers: &mut [Lanes<R>],
        encode: &impl Encode<R, T>,
    ) {
        for (r, register) in registers.iter_mut().enumerate().take(self.registers()) {
            let (first, [group, member, next]) = self.strides(r, width);
            for j in 0..self.per_register() {
                let first = first + j * next;
                let last = first + 7 * group + 3 * member;
                let Some(matrix) = matrix.get(first..=last) else {
                    continue;
                };
                for g in 0..8 {
                    for m in 0..4 {
                        let word = &mut register[4 * g + m];
                        *word = encode.encode(*word, j as u32, matrix[g * group + m * member]);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_rows_or_columns() {
        let rows = Layout::by_rows(2, 2, &[(0, 0), (8, 0), (0, 8), (8, 8)]);
        assert_eq!(rows.place(0, 0, 0), (0, 0));
        assert_eq!(rows.place(5, 0, 1), (1, 3));
        assert_eq!(rows.place(31, 3, 1), (15, 15));
        let columns = Layout::by_columns(2, 2, &[(0, 0), (8, 0)]);
        assert_eq!(columns.place(5, 0, 1), (3, 1));
        assert_eq!(columns.place(31, 1, 1), (15, 7));
    }

    struct Words;

    impl Decode<u32, u32> for Words {
        fn decode(&self, register: &Lanes<u32>, _: u32) -> Lanes<u32> {
            *register
        }
    }

    impl Encode<u32, u32> for Words {
        fn encode(&self, _: u32, _: u32, value: u32) -> u32 {
            value
        }
    }

    #[test]
    fn gather_and_scatter_are_inverse() {
        let layout = Layout::by_rows(2, 1, &[(0, 0), (0, 1), (8, 0), (8, 1)]);
        let registers: [Lanes<u32>; 4] =
            std::array::from_fn(|r| std::array::from_fn(|lane| (r * 100 + lane) as u32));
        let mut matrix = [u32::MAX; 128];
        layout.gather(&registers, &mut matrix, 8, &Words);
        assert!(matrix.iter().all(|x| *x != u32::MAX));
        let mut back = [[0; 32]; 4];
        layout.scatter(&matrix, 8, &mut back, &Words);
        assert_eq!(back, registers);
    }
}
