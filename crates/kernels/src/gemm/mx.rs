//! Where the powers of two of `scales=mx` lie: as cuBLAS and `torch._scaled_mm` have them.
//!
//! 128 rows of A, or columns of B, by four blocks of 32 elements of the depth are 512 bytes: as many
//! as a copy to tensor memory takes. Such tiles follow each other along the depth, then down. Where
//! rows or the depth end inside of one, the rest of it is there and is not looked at.

/// Elements of the depth that have a power of two in common.
pub(crate) const MX_BLOCK: u32 = 32;
/// Rows of a tile; also elements of its depth.
pub(crate) const MX_ROWS: u32 = 128;
/// Powers of two of a row in a tile.
const DEEP: u32 = MX_ROWS / MX_BLOCK;

/// How many there are of `outer` rows of A, or columns of B, with those of unfinished tiles.
pub(crate) fn mx_count(outer: u32, depth: u32) -> usize {
    let tiles = outer.div_ceil(MX_ROWS) as usize * depth.div_ceil(MX_ROWS) as usize;
    tiles * (MX_ROWS * DEEP) as usize
}

/// The place of the one that element `at` of the depth has in row `outer` of A, or column of B, of so
/// much `depth`.
pub fn mx_place(outer: usize, at: usize, depth: usize) -> usize {
    let [rows, deep, block] = [MX_ROWS, DEEP, MX_BLOCK].map(|extent| extent as usize);
    let tile = outer / rows * depth.div_ceil(rows) + at / rows;
    let (row, column) = (outer % rows, at % rows / block);
    tile * rows * deep + row % 32 * 16 + row / 32 * deep + column
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row and block of whole tiles has its own byte.
    #[test]
    fn places_are_all_bytes_once() {
        let (outer, depth) = (256u32, 384u32);
        let mut places: Vec<usize> = (0..outer as usize)
            .flat_map(|row| (0..depth as usize).step_by(32).map(move |at| (row, at)))
            .map(|(row, at)| mx_place(row, at, depth as usize))
            .collect();
        places.sort_unstable();
        assert!(places.into_iter().eq(0..mx_count(outer, depth)));
        // The second row, the 33rd, the second block, the next tile along the depth and down.
        let place = |row, at| mx_place(row, at, 384);
        let found = [
            place(1, 0),
            place(32, 31),
            place(0, 32),
            place(0, 128),
            place(128, 0),
        ];
        assert_eq!(found, [16, 4, 1, 512, 3 * 512]);
        assert_eq!(mx_count(129, 33), 2 * 512);
    }
}
