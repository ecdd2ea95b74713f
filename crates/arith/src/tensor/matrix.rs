//! `ldmatrix`, `stmatrix` and `movmatrix`: eight rows of sixteen bytes a matrix.
//!
//! Lanes `8j` to `8j + 7` give the addresses of the rows of matrix `j`, and matrix
//! `j` is register `j` of the result; what follows is one matrix at a time.

use crate::lanes::Lanes;

/// Eight rows of eight 16-bit elements.
pub type Rows = [[u16; 8]; 8];

/// The bytes of a row, as memory has them.
#[inline]
pub fn row_from_bytes(bytes: [u8; 16]) -> [u16; 8] {
    std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

/// The bytes of a row, as memory has them.
pub fn row_to_bytes(row: [u16; 8]) -> [u8; 16] {
    std::array::from_fn(|i| row[i / 2].to_le_bytes()[i % 2])
}

/// `ldmatrix.m8n8.b16`: lane `4r + c` gets elements `2c` and `2c + 1` of row `r`,
/// or with `TRANS`, of column `r`.
#[inline]
pub fn load<const TRANS: bool>(rows: &Rows) -> Lanes<u32> {
    std::array::from_fn(|lane| {
        let (r, c) = (lane / 4, 2 * (lane % 4));
        let pair = if TRANS {
            [rows[c][r], rows[c + 1][r]]
        } else {
            [rows[r][c], rows[r][c + 1]]
        };
        pair[0] as u32 | (pair[1] as u32) << 16
    })
}

/// `stmatrix.m8n8.b16`: the reverse of [`load`].
#[inline]
pub fn store<const TRANS: bool>(register: &Lanes<u32>) -> Rows {
    let mut rows = [[0; 8]; 8];
    for (lane, word) in register.iter().enumerate() {
        let (r, c) = (lane / 4, 2 * (lane % 4));
        for (j, half) in [*word as u16, (*word >> 16) as u16].into_iter().enumerate() {
            if TRANS {
                rows[c + j][r] = half;
            } else {
                rows[r][c + j] = half;
            }
        }
    }
    rows
}

/// `movmatrix.trans.m8n8.b16`: transposes across the lanes.
#[inline]
pub fn transpose(register: &Lanes<u32>) -> Lanes<u32> {
    load::<true>(&store::<false>(register))
}

/// `ldmatrix.m16n16.trans.b8`: sixteen rows of sixteen bytes, whose addresses come
/// from lanes `16j` to `16j + 15`, into two registers. Lane `4g + t` gets rows `4t`
/// to `4t + 3` of columns `g` and `g + 8`.
pub fn load_m16n16_b8(rows: &[[u8; 16]; 16]) -> [Lanes<u32>; 2] {
    std::array::from_fn(|r| {
        std::array::from_fn(|lane| {
            let (column, row) = (lane / 4 + 8 * r, 4 * (lane % 4));
            u32::from_le_bytes(std::array::from_fn(|j| rows[row + j][column]))
        })
    })
}

/// `stmatrix.m16n8.trans.b8`: the fragment is that of a sum of `mma`. Lane `4g + c` holds columns
/// `2c` and `2c + 1` of row `g`, then those of row `g + 8`. The result is eight rows of
/// sixteen bytes, each a column of the fragment.
pub fn store_m16n8_b8(register: &Lanes<u32>) -> [[u8; 16]; 8] {
    std::array::from_fn(|column| {
        std::array::from_fn(|row| {
            let lane = 4 * (row % 8) + column / 2;
            register[lane].to_le_bytes()[column % 2 + 2 * (row / 8)]
        })
    })
}

/// A row of `.b6x16_p32`: sixteen 6-bit elements in twelve bytes, and padding. Each
/// is widened to a byte, with zeros above.
pub fn widen_b6(row: &[u8; 16]) -> [u8; 16] {
    std::array::from_fn(|i| {
        let bit = 6 * i;
        let two = u16::from_le_bytes([row[bit / 8], row[bit / 8 + 1]]);
        (two >> (bit % 8)) as u8 & 0x3f
    })
}

/// A row of `.b4x16_p64`: sixteen 4-bit elements in eight bytes, and padding. Each is
/// widened to a byte, with zeros above.
pub fn widen_b4(row: &[u8; 16]) -> [u8; 16] {
    std::array::from_fn(|i| (row[i / 2] >> (4 * (i % 2))) & 0xf)
}

/// `ldmatrix.m8n16`, of rows that [`widen_b6`] or [`widen_b4`] made (as the same may
/// be done for [`load_m16n16_b8`]): lane `4r + c` gets elements `4c` to `4c + 3` of
/// row `r`.
pub fn load_m8n16_b8(rows: &[[u8; 16]; 8]) -> Lanes<u32> {
    std::array::from_fn(|lane| {
        let first = 4 * (lane % 4);
        u32::from_le_bytes(std::array::from_fn(|j| rows[lane / 4][first + j]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted() -> Rows {
        std::array::from_fn(|r| std::array::from_fn(|c| (100 * r + c) as u16))
    }

    #[test]
    fn lanes_hold_pairs_of_a_row_or_a_column() {
        let plain = load::<false>(&counted());
        assert_eq!(plain[0], 0x0001_0000);
        assert_eq!(plain[5], 103 << 16 | 102);
        assert_eq!(plain[31], 707 << 16 | 706);
        let transposed = load::<true>(&counted());
        assert_eq!(transposed[0], 100 << 16);
        assert_eq!(transposed[5], 301 << 16 | 201);
        assert_eq!(transposed[31], 707 << 16 | 607);
    }

    #[test]
    fn storing_undoes_loading() {
        let rows = counted();
        assert_eq!(store::<false>(&load::<false>(&rows)), rows);
        assert_eq!(store::<true>(&load::<true>(&rows)), rows);
        assert_eq!(transpose(&load::<false>(&rows)), load::<true>(&rows));
        assert_eq!(
            transpose(&transpose(&load::<false>(&rows))),
            load::<false>(&rows)
        );
        let bytes: [u8; 16] = std::array::from_fn(|i| i as u8);
        assert_eq!(row_from_bytes(bytes)[1], 0x0302);
        assert_eq!(row_to_bytes(row_from_bytes(bytes)), bytes);
    }

    #[test]
    fn a_loaded_matrix_is_a_fragment_of_mma() {
        use crate::tensor::{Accumulator, Element, mma};
        let shape = mma::Shape::new(16, 8, 8);
        let f32 = Accumulator::F32;
        let mma = mma::Mma::new(shape, Element::F16, Element::F16, f32, f32).unwrap();
        let register = load::<false>(&counted());
        for (lane, word) in register.iter().enumerate() {
            for j in 0..2 {
                let (row, column) = mma.a_layout().place(lane, 0, j);
                assert_eq!((word >> (16 * j)) as u16, counted()[row][column]);
                // B is k by n, so its rows in memory are columns.
                let (k, n) = mma.b_layout().place(lane, 0, j);
                assert_eq!((word >> (16 * j)) as u16, counted()[n][k]);
            }
        }
    }

    #[test]
    fn a_sum_of_mma_is_stored_by_its_columns() {
        // Row `r` and column `c` hold 8r + c, in the lanes and bytes that an `mma` leaves them in.
        let register: Lanes<u32> = std::array::from_fn(|lane| {
            let place = |j: usize| 8 * (lane / 4 + 8 * (j / 2)) + 2 * (lane % 4) + j % 2;
            u32::from_le_bytes(std::array::from_fn(|j| place(j) as u8))
        });
        for (column, stored) in store_m16n8_b8(&register).iter().enumerate() {
            let expected: [u8; 16] = std::array::from_fn(|row| (8 * row + column) as u8);
            assert_eq!(*stored, expected, "column {column}");
        }
    }

    #[test]
    fn bytes_and_less() {
        let rows: [[u8; 16]; 16] =
            std::array::from_fn(|r| std::array::from_fn(|c| (16 * r + c) as u8));
        let [low, high] = load_m16n16_b8(&rows);
        assert_eq!(low[0], 0x3020_1000);
        assert_eq!(low[5], 0x7161_5141);
        assert_eq!(high[31], 0xffef_dfcf);
        let mut rows = [[0; 16]; 8];
        rows[1] = [0x41, 0x20, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0xfc, 9, 9, 9, 9];
        let six = load_m8n16_b8(&rows.map(|row| widen_b6(&row)));
        assert_eq!(six[4], 0x0302_0101);
        assert_eq!(six[7], 0x3f00_0000);
        let mut rows = [[0; 16]; 8];
        rows[2] = [0x21, 0x43, 0, 0, 0, 0, 0, 0xf0, 9, 9, 9, 9, 9, 9, 9, 9];
        let four = load_m8n16_b8(&rows.map(|row| widen_b4(&row)));
        assert_eq!(four[8], 0x0403_0201);
        assert_eq!(four[11], 0x0f00_0000);
    }
}
