//! What a launch moves between DRAM and L2, sector by sector.
//!
//! A sector is 32 bytes, the unit in which L2 asks for data. One that a launch reads comes from DRAM
//! once, and one that it writes goes back once. So L2 is empty when a launch starts and has room for
//! whatever the launch touches: what it has no room for, what an earlier launch left there, and what
//! is read while it is still there from being written are not modelled. The sum does not depend on
//! the order of the accesses.

use crate::lanes::each;
use crate::race::access::LINE;
use crate::race::touch::Touch;

/// Bytes of a sector.
const SECTOR: u64 = 32;
/// The sectors of a line that were read; those that were written are in the other four bits.
const READ: u8 = 0x0f;

/// The sectors that were touched; of memory that is not global, nothing is counted.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    lines: Vec<u8>,
    sectors: u64,
}

impl Traffic {
    /// Of this many lines, none of them touched.
    pub(crate) fn new(lines: usize) -> Traffic {
        Traffic {
            lines: vec![0; lines],
            sectors: 0,
        }
    }

    /// The same, untouched.
    pub(crate) fn fork(&self) -> Traffic {
        Traffic::new(self.lines.len())
    }

    /// Bytes that came or went.
    pub(crate) fn bytes(&self) -> u64 {
        self.sectors * SECTOR
    }

    /// An access to some bytes of a line.
    #[inline(always)]
    pub(crate) fn touch(&mut self, line: u64, bytes: u128, write: bool) {
        let shift = if write { 4 } else { 0 };
        if let Some(state) = self.lines.get_mut(line as usize)
            && *state >> shift & READ != READ
        {
            self.sectors += add(state, sectors_of(bytes) << shift);
        }
    }

    /// A read of a warp.
    #[inline]
    pub(crate) fn read(&mut self, touch: &Touch<'_>, contiguous: bool) {
        if self.lines.is_empty() {
            return;
        }
        if contiguous {
            let len = u64::from(touch.size) * touch.offsets.len() as u64;
            return self.range(touch.offsets[0], len, false);
        }
        // No lane's access leaves its sector.
        for lane in each(touch.mask) {
            let sector = touch.offsets[lane] / SECTOR;
            if let Some(state) = self.lines.get_mut((sector / 4) as usize) {
                self.sectors += add(state, 1 << (sector % 4));
            }
        }
    }

    /// An access to bytes in a row.
    pub(crate) fn range(&mut self, offset: u64, len: u64, write: bool) {
        let shift = if write { 4 } else { 0 };
        let (mut at, end) = (offset / SECTOR, (offset + len).div_ceil(SECTOR));
        while at < end {
            let stop = end.min((at / 4 + 1) * 4);
            let here = READ >> (4 - (stop - at)) << (at % 4);
            if let Some(state) = self.lines.get_mut((at / 4) as usize) {
                self.sectors += add(state, here << shift);
            }
            at = stop;
        }
    }

    /// Bytes that came or went in some forks together.
    pub(crate) fn of_all<'t>(forks: impl Iterator<Item = &'t Traffic>) -> u64 {
        let mut all = Traffic::default();
        for fork in forks {
            if all.lines.is_empty() {
                all = fork.fork();
            }
            for (state, &theirs) in all.lines.iter_mut().zip(&fork.lines) {
                all.sectors += add(state, theirs);
            }
        }
        all.bytes()
    }
}

/// Marks sectors; how many were not.
#[inline(always)]
fn add(state: &mut u8, touched: u8) -> u64 {
    let new = touched & !*state;
    *state |= new;
    u64::from(new.count_ones())
}

/// The sectors that some bytes of a line lie in.
fn sectors_of(bytes: u128) -> u8 {
    const { assert!(LINE as u64 == 4 * SECTOR) };
    (0..4).fold(0, |all, at| {
        let touched = (bytes >> (32 * at)) as u32 != 0;
        all | u8::from(touched) << at
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_comes_once_and_goes_back_once() {
        let mut one = Traffic::new(3);
        one.touch(0, u128::MAX, false);
        one.touch(0, u128::MAX, false);
        assert_eq!(one.bytes(), 128);
        one.touch(0, 1 << 40, true);
        one.touch(0, 1 << 63, true);
        assert_eq!(one.bytes(), 160);
        one.range(200, 60, false);
        assert_eq!(one.bytes(), 256, "sectors 6 to 8");
        one.range(128, 256, false);
        assert_eq!(one.bytes(), 160 + 256);
        one.range(0, 4096, true);
        assert_eq!(one.bytes(), 2 * 3 * 128, "what lies outside is not counted");
    }

    #[test]
    fn lanes_count_their_sectors() {
        let offsets = std::array::from_fn(|lane| lane as u64 * 16);
        let touch = |mask| Touch {
            offsets: &offsets,
            mask,
            size: 4,
        };
        let mut one = Traffic::new(4);
        one.read(&touch(0b111), false);
        assert_eq!(one.bytes(), 64);
        one.read(&touch(u32::MAX), false);
        assert_eq!(one.bytes(), 512);
        let mut other = Traffic::new(4);
        other.read(&touch(u32::MAX), true);
        assert_eq!(other.bytes(), 128, "32 words in a row");
        let mut none = Traffic::default();
        none.read(&touch(u32::MAX), false);
        none.touch(0, 1, true);
        assert_eq!(none.bytes(), 0);
    }

    #[test]
    fn forks_have_touched_what_one_would_have() {
        let (mut a, mut b) = (Traffic::new(2), Traffic::new(2));
        a.range(0, 96, false);
        b.range(64, 128, false);
        b.range(0, 32, true);
        assert_eq!(Traffic::of_all([&a, &b].into_iter()), 192 + 32);
        assert_eq!(Traffic::of_all(std::iter::empty()), 0);
    }
}
