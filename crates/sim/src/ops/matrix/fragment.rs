//! Registers of a fragment, copied out of the warp and back.

use crate::access::context::Cx;
use crate::code::Slot;
use crate::lanes::LANES;

/// No fragment of `mma` or `wmma` has more registers.
pub(super) const MOST: usize = 8;

/// Up to [`MOST`] registers of 32 bits.
pub(super) struct Words {
    registers: [[u32; LANES]; MOST],
    len: usize,
}

impl Words {
    /// `len` registers of zeros.
    pub(super) fn zeros(len: usize) -> Words {
        Words {
            registers: [[0; LANES]; MOST],
            len: len.min(MOST),
        }
    }

    /// The present values of some registers.
    #[inline]
    pub(super) fn of(cx: &Cx<'_>, slots: &[Slot]) -> Words {
        let mut words = Words::zeros(slots.len());
        for (register, &slot) in words.registers.iter_mut().zip(slots) {
            *register = *cx.row(slot);
        }
        words
    }

    pub(super) fn get(&self) -> &[[u32; LANES]] {
        &self.registers[..self.len]
    }

    pub(super) fn get_mut(&mut self) -> &mut [[u32; LANES]] {
        &mut self.registers[..self.len]
    }

    /// Writes them to registers.
    #[inline]
    pub(super) fn write(&self, cx: &mut Cx<'_>, slots: &[Slot]) {
        for (register, &slot) in self.get().iter().zip(slots) {
            cx.write(slot, register);
        }
    }
}

/// Some registers where they lie; of those that are no part of the fragment, zeros.
#[inline]
pub(super) fn views<'c>(cx: &'c Cx<'_>, slots: &[Slot]) -> [&'c [u32; LANES]; MOST] {
    static ZEROS: [u32; LANES] = [0; LANES];
    let mut views = [&ZEROS; MOST];
    for (view, &slot) in views.iter_mut().zip(slots) {
        *view = cx.row(slot);
    }
    views
}

/// The present values of some registers of 64 bits.
pub(super) fn longs(cx: &Cx<'_>, slots: &[Slot]) -> Vec<[u64; LANES]> {
    slots.iter().map(|&slot| cx.read(slot)).collect()
}
