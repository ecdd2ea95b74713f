//! The memory footprint of a warp's access: which lines, which bytes, which lane.
//!
//! A [`Touch`] is one access of a warp to one region, already checked against its
//! bounds. It is cut into lines for the checks, with short cuts for what kernels do most:
//! lane after lane contiguously, all lanes in one line, all lanes at one place.

use super::clock::SEVERAL;
use crate::lanes::{ALL, LANES, Mask, each, first, wide};

/// An access of the lanes in `mask`, each to `size` bytes at its offset.
/// `size` is a power of two up to 32, and offsets are multiples of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch<'a> {
    pub(crate) offsets: &'a [u64; LANES],
    pub(crate) mask: Mask,
    pub(crate) size: u32,
}

/// The bytes of a line that an access of `size` bytes at an offset touches; it lies in one line.
pub(crate) fn bytes_in(line: u64, offset: u64, size: u32) -> u128 {
    let bytes = u128::MAX >> (128 - size.clamp(1, 128));
    match offset / 128 == line {
        true => bytes << (offset % 128),
        false => 0,
    }
}

/// The lanes that touch each cell of a line.
pub(crate) type Crowds = [Mask; 32];

/// The part of a touch that lies in one line.
pub(crate) struct LineTouch<'a> {
    pub(crate) line: u64,
    pub(crate) bytes: u128,
    /// See [`super::access::Access`].
    pub(crate) lanes: &'a [u8; 32],
    pub(crate) shift: u8,
    pub(crate) first: u8,
    /// Whether some cell is touched by several lanes.
    pub(crate) shared: bool,
    /// Then the lanes of each cell.
    pub(crate) crowds: Option<&'a Crowds>,
    /// The cells that are touched.
    pub(crate) cells: Mask,
    /// The table of [`IN_ORDER`] that `lanes` is, where the whole line is touched.
    pub(crate) order: Option<u8>,
}

impl Touch<'_> {
    /// Whether all lanes take part and lie one behind the other.
    #[inline]
    pub(crate) fn is_contiguous(&self) -> bool {
        self.mask == ALL && contiguous(self.offsets, self.size)
    }

    /// The line, if all lanes take part and lie in one.
    #[inline]
    pub(crate) fn only_line(&self) -> Option<u64> {
        let line = self.offsets[0] / 128;
        let same = self.mask == ALL
            && wide(
                #[inline(always)]
                || {
                    self.offsets
                        .iter()
                        .fold(0, |differ, &offset| differ | ((offset / 128) ^ line))
                        == 0
                },
            );
        same.then_some(line)
    }

    /// Calls `visit` for every line, once for each granularity group in it.
    #[inline]
    pub(crate) fn lines(&self, contiguous: bool, mut visit: impl FnMut(&LineTouch<'_>)) {
        let start = self.offsets[0];
        if contiguous && start.is_multiple_of(128) {
            let tables = match self.size {
                4 => 0..1,
                8 => 1..3,
                16 => 3..7,
                _ => 0..0,
            };
            if !tables.is_empty() {
                for (at, table) in tables.enumerate() {
                    visit(&LineTouch {
                        line: start / 128 + at as u64,
                        bytes: u128::MAX,
                        lanes: &IN_ORDER[table],
                        shift: 2,
                        first: 0,
                        shared: false,
                        crowds: None,
                        cells: ALL,
                        order: Some(table as u8),
                    });
                }
                return;
            }
        }
        self.scattered(&mut visit);
    }

    fn scattered(&self, visit: &mut dyn FnMut(&LineTouch<'_>)) {
        let shift = self.size.trailing_zeros().min(2) as u8;
        // A group of cells is 32 of them: a line of words, half a line of halves.
        let group_bits = 5 + u32::from(shift);
        let mut rest = self.mask;
        while rest != 0 {
            let group = self.offsets[first(rest)] >> group_bits;
            let here = rest & same_group(self.offsets, group_bits, group);
            rest &= !here;
            let base = group << group_bits;
            let mut lanes = [0u8; 32];
            let (mut cells, mut shared) = (0u32, 0u32);
            let width = (self.size >> shift).max(1);
            if width == 1 {
                // First the union of their cells, vectorised; sharing is computed only where there
                // is some.
                let at = cells_of(self.offsets, shift);
                cells = union_of(&at, here);
                if cells.count_ones() == here.count_ones() {
                    for lane in each(here) {
                        lanes[usize::from(at[lane]) & 31] = lane as u8;
                    }
                } else {
                    let mut seen = 0u32;
                    for lane in each(here) {
                        let cell = usize::from(at[lane]) & 31;
                        let bit = 1u32 << cell;
                        shared |= seen & bit;
                        seen |= bit;
                        lanes[cell] = lane as u8;
                    }
                }
            }
            for lane in each(if width == 1 { 0 } else { here }) {
                let cell = ((self.offsets[lane] - base) >> shift) as usize;
                for cell in cell..cell + width as usize {
                    let bit = 1u32 << (cell & 31);
                    shared |= cells & bit;
                    cells |= bit;
                    lanes[cell & 31] = lane as u8;
                }
            }
            let mut crowds = [0; 32];
            if shared != 0 {
                for lane in each(here) {
                    let cell = ((self.offsets[lane] - base) >> shift) as usize;
                    for cell in cell..cell + width as usize {
                        crowds[cell & 31] |= 1 << lane;
                    }
                }
            }
            for cell in each(shared) {
                lanes[cell] = SEVERAL;
            }
            let first = (base % 128) as u8;
            visit(&LineTouch {
                line: base / 128,
                bytes: spread(cells, shift) << first,
                lanes: &lanes,
                shift,
                first,
                shared: shared != 0,
                crowds: (shared != 0).then_some(&crowds),
                cells,
                order: None,
            });
        }
    }
}

#[inline]
fn contiguous(offsets: &[u64; LANES], size: u32) -> bool {
    wide(
        #[inline(always)]
        || {
            let start = offsets[0];
            let mut differ = 0;
            for (lane, &offset) in offsets.iter().enumerate() {
                differ |= offset ^ start.wrapping_add(lane as u64 * u64::from(size));
            }
            differ == 0
        },
    )
}

/// The cell of its group that each lane touches.
fn cells_of(offsets: &[u64; LANES], shift: u8) -> [u8; LANES] {
    wide(
        #[inline(always)]
        || {
            let mut cells = [0; LANES];
            for (cell, &offset) in cells.iter_mut().zip(offsets) {
                *cell = (offset >> shift) as u8 & 31;
            }
            cells
        },
    )
}

/// The cells that some lanes touch.
fn union_of(cells: &[u8; LANES], lanes: Mask) -> u32 {
    wide(
        #[inline(always)]
        || {
            let mut union = 0;
            for (lane, &cell) in cells.iter().enumerate() {
                union |= (lanes >> lane & 1) << cell;
            }
            union
        },
    )
}

/// Lanes whose offset lies in a group.
fn same_group(offsets: &[u64; LANES], bits: u32, group: u64) -> Mask {
    wide(
        #[inline(always)]
        || {
            let mut mask = 0;
            for (lane, &offset) in offsets.iter().enumerate() {
                mask |= u32::from(offset >> bits == group) << lane;
            }
            mask
        },
    )
}

/// One bit per cell to one bit per byte.
pub(crate) fn spread(cells: u32, shift: u8) -> u128 {
    match shift {
        0 => u128::from(cells),
        1 => {
            let mut x = u64::from(cells);
            x = (x | x << 16) & 0x0000_ffff_0000_ffff;
            x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
            x = (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f;
            x = (x | x << 2) & 0x3333_3333_3333_3333;
            x = (x | x << 1) & 0x5555_5555_5555_5555;
            u128::from(x * 3)
        }
        _ => {
            u128::from(spread_word(cells as u16))
                | u128::from(spread_word((cells >> 16) as u16)) << 64
        }
    }
}

fn spread_word(cells: u16) -> u64 {
    let mut x = u64::from(cells);
    x = (x | x << 24) & 0x0000_00ff_0000_00ff;
    x = (x | x << 12) & 0x000f_000f_000f_000f;
    x = (x | x << 6) & 0x0303_0303_0303_0303;
    x = (x | x << 3) & 0x1111_1111_1111_1111;
    x * 15
}

/// Lane numbers of words, pairs and quadruples of words that fill a line in the
/// order of the lanes; for pairs and quadruples a table for each of their lines.
pub(crate) static IN_ORDER: [[u8; 32]; 7] = {
    let mut table = [[0; 32]; 7];
    let mut cell = 0;
    while cell < 32 {
        table[0][cell] = cell as u8;
        table[1][cell] = cell as u8 / 2;
        table[2][cell] = 16 + cell as u8 / 2;
        table[3][cell] = cell as u8 / 4;
        table[4][cell] = 8 + cell as u8 / 4;
        table[5][cell] = 16 + cell as u8 / 4;
        table[6][cell] = 24 + cell as u8 / 4;
        cell += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(offsets: &[u64; 32], mask: Mask, size: u32) -> Vec<(u64, u128, [u8; 32], u8)> {
        let touch = Touch {
            offsets,
            mask,
            size,
        };
        let mut out = Vec::new();
        touch.lines(touch.is_contiguous(), |line| {
            out.push((line.line, line.bytes, *line.lanes, line.first));
        });
        out
    }

    #[test]
    fn contiguous_words_are_one_line() {
        let offsets = std::array::from_fn(|lane| 256 + 4 * lane as u64);
        let lines = collect(&offsets, ALL, 4);
        assert_eq!(lines.len(), 1);
        assert_eq!((lines[0].0, lines[0].1, lines[0].2[31]), (2, u128::MAX, 31));
    }

    #[test]
    fn the_short_cut_and_the_long_way_agree() {
        for size in [4u32, 8, 16] {
            let offsets = std::array::from_fn(|lane| 512 + u64::from(size) * lane as u64);
            let short = collect(&offsets, ALL, size);
            let touch = Touch {
                offsets: &offsets,
                mask: ALL,
                size,
            };
            let mut long = Vec::new();
            touch
                .scattered(&mut |line| long.push((line.line, line.bytes, *line.lanes, line.first)));
            assert_eq!(short, long);
        }
    }

    #[test]
    fn bytes_come_in_groups_and_sharing_is_seen() {
        let offsets = std::array::from_fn(|lane| 30 + lane as u64 / 2);
        let lines = collect(&offsets, ALL, 1);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].0, lines[0].1, lines[0].3), (0, 0b11 << 30, 0));
        assert_eq!(lines[0].2[30], SEVERAL);
        assert_eq!((lines[1].1, lines[1].3), (0x3fff << 32, 32));
    }

    #[test]
    fn spread_is_exact() {
        assert_eq!(spread(0x8000_0001, 2), 0xf | 0xf << 124);
        assert_eq!(spread(0x8000_0001, 1), 0b11 | 0b11 << 62);
        assert_eq!(spread(5, 0), 5);
    }
}
