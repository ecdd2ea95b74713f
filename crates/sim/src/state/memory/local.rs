//! The memory that each thread has for itself.
//!
//! It is interleaved as on the hardware: the words at one offset of all lanes lie
//! side by side, so that the usual access, every lane at the same offset, is one
//! row. The parameters of device functions live here too, on the same stack.

use crate::lanes::{ALL, LANES, Mask, Row, each, first};
use crate::state::follow::Origin;
use rustc_hash::FxHashMap;

/// The local memories of a warp's lanes.
#[derive(Debug, Default)]
pub(crate) struct Local {
    rows: Vec<Row>,
    /// Bit `4 * lane + byte` of a row: whether that byte was written.
    written: Vec<u128>,
    /// Words that bytes of undefined values were stored to, and where those came from.
    pub(crate) undefined: FxHashMap<u64, Origin>,
}

impl Local {
    /// Room for `bytes` a lane; what is added is unwritten.
    pub(crate) fn grow(&mut self, bytes: u32) {
        let rows = bytes.div_ceil(4) as usize;
        if rows > self.rows.len() {
            self.rows.resize(rows, Row::splat(0));
            self.written.resize(rows, 0);
        }
    }

    /// Bytes a lane.
    pub(crate) fn len(&self) -> u64 {
        self.rows.len() as u64 * 4
    }

    /// Makes a stretch unwritten for some lanes: a new stack frame.
    pub(crate) fn fresh(&mut self, start: u32, bytes: u32, mask: Mask) {
        let lanes = spread(mask);
        for row in start / 4..(start + bytes).div_ceil(4) {
            if let Some(written) = self.written.get_mut(row as usize) {
                *written &= !lanes;
            }
        }
    }

    /// Which of up to 16 bytes of a lane nobody has written, a bit each.
    pub(crate) fn unwritten_of(&self, lane: usize, offset: u64, len: usize) -> u16 {
        let missing = |at: &usize| {
            let at = offset as usize + at;
            let written = self.written.get(at / 4);
            written.is_some_and(|written| written >> (4 * lane + at % 4) & 1 == 0)
        };
        (0..len.min(16))
            .filter(missing)
            .fold(0, |bytes, at| bytes | 1 << at)
    }

    /// Makes a byte of a lane unwritten.
    pub(crate) fn unmark(&mut self, lane: usize, offset: u64) {
        if let Some(written) = self.written.get_mut(offset as usize / 4) {
            *written &= !(1 << (4 * lane + offset as usize % 4));
        }
    }

    /// Reads `size` bytes (up to 8) of each lane; the second result is the lanes
    /// that read a byte nobody wrote.
    pub(crate) fn load(
        &self,
        offsets: &[u64; LANES],
        mask: Mask,
        size: u32,
    ) -> ([u64; LANES], Mask) {
        let mut out = [0; LANES];
        let mut unwritten = 0;
        let start = offsets[first(mask)];
        if size == 4
            && mask == ALL
            && start.is_multiple_of(4)
            && offsets.iter().all(|&at| at == start)
        {
            let row = start as usize / 4;
            if let (Some(values), Some(&written)) = (self.rows.get(row), self.written.get(row)) {
                out = values.0.map(u64::from);
                if written == u128::MAX {
                    return (out, 0);
                }
            }
        }
        for lane in each(mask) {
            let mut value = [0u8; 8];
            for (at, byte) in value.iter_mut().enumerate().take(size as usize) {
                let offset = offsets[lane] as usize + at;
                let Some(row) = self.rows.get(offset / 4) else {
                    continue;
                };
                *byte = row.0[lane].to_le_bytes()[offset % 4];
                if self.written[offset / 4] >> (4 * lane + offset % 4) & 1 == 0 {
                    unwritten |= 1 << lane;
                }
            }
            out[lane] = u64::from_le_bytes(value);
        }
        (out, unwritten)
    }

    /// Writes the low `size` bytes (up to 8) of each lane's value.
    pub(crate) fn store(
        &mut self,
        offsets: &[u64; LANES],
        mask: Mask,
        size: u32,
        values: &[u64; LANES],
    ) {
        for lane in each(mask) {
            let bytes = values[lane].to_le_bytes();
            let offset = offsets[lane] as usize;
            if size == 4 && offset.is_multiple_of(4) {
                if let Some(row) = self.rows.get_mut(offset / 4) {
                    row.0[lane] = values[lane] as u32;
                    self.written[offset / 4] |= 15 << (4 * lane);
                }
                continue;
            }
            for (at, &byte) in bytes.iter().enumerate().take(size as usize) {
                let offset = offset + at;
                if let Some(row) = self.rows.get_mut(offset / 4) {
                    let shift = 8 * (offset % 4) as u32;
                    row.0[lane] = row.0[lane] & !(0xff << shift) | u32::from(byte) << shift;
                    self.written[offset / 4] |= 1 << (4 * lane + offset % 4);
                }
            }
        }
    }
}

/// Four bits for each lane.
fn spread(mask: Mask) -> u128 {
    each(mask).fold(0, |bits, lane| bits | 15 << (4 * lane))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_do_not_see_each_other() {
        let mut local = Local::default();
        local.grow(16);
        let offsets = [4; LANES];
        local.store(&offsets, 0b10, 8, &[0x1122_3344_5566_7788; LANES]);
        let (values, unwritten) = local.load(&offsets, 0b11, 8);
        assert_eq!((values[1], values[0]), (0x1122_3344_5566_7788, 0));
        assert_eq!(unwritten, 0b01);
        local.fresh(4, 8, 0b10);
        assert_eq!(local.load(&offsets, 0b10, 4).1, 0b10);
    }

    #[test]
    fn bytes_share_a_word() {
        let mut local = Local::default();
        local.grow(4);
        local.store(&[1; LANES], ALL, 1, &[0xab; LANES]);
        local.store(&[2; LANES], ALL, 2, &[0xcdef; LANES]);
        assert_eq!(local.load(&[0; LANES], ALL, 4).0[9], 0xcdef_ab00);
    }
}
