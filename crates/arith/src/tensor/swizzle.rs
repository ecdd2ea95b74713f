//! How shared memory is swizzled by tensor copies and read by `wgmma`.
//!
//! A swizzle permutes the 16-byte chunks (or larger atoms) of the lines of a tile
//! by exclusive-or with the number of the line, both taken from the address, so
//! that a column of a tile lies in different banks. It is its own inverse.

/// A swizzle mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// None.
    None,
    /// Lines of 32 bytes, repeating every 256.
    B32,
    /// Lines of 64 bytes, repeating every 512.
    B64,
    /// Lines of 96 bytes in the pattern of [`Swizzle::B32`] (sm_100 and up).
    B96,
    /// Lines of 128 bytes, repeating every 1024.
    B128,
    /// Lines of 128 bytes in atoms of 32, repeating every 512 (sm_100 and up).
    B128Atom32,
    /// As [`Swizzle::B128Atom32`], and with the two halves of every 16 bytes
    /// exchanged in every other 128 bytes of shared memory (sm_100 and up).
    B128Atom32Flip8,
    /// Lines of 128 bytes in atoms of 64, repeating every 256 (sm_100 and up).
    B128Atom64,
}

impl Swizzle {
    /// Which address bits change, and how far below their source they are.
    const fn fields(self) -> (u64, u32) {
        match self {
            Swizzle::None => (0, 3),
            Swizzle::B32 | Swizzle::B96 => (0x10, 3),
            Swizzle::B64 => (0x30, 3),
            Swizzle::B128 => (0x70, 3),
            Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 => (0x60, 2),
            Swizzle::B128Atom64 => (0x40, 1),
        }
    }

    /// Where the byte at `address` of the plain tile is. Both are addresses in
    /// shared memory, not offsets: the pattern is fixed in the address space.
    ///
    /// ```
    /// use heist_arith::tensor::swizzle::Swizzle;
    /// // Row 3 of a tile of 128-byte lines: chunk 0 goes where chunk 3 was.
    /// assert_eq!(Swizzle::B128.apply(3 * 128), 3 * 128 + 3 * 16);
    /// ```
    #[inline(always)]
    pub const fn apply(self, address: u64) -> u64 {
        self.apply_from(address, 0)
    }

    /// As [`Swizzle::apply`], of a pattern that begins at `origin` instead of at
    /// zero; only its place within the pattern counts.
    #[inline(always)]
    pub const fn apply_from(self, address: u64, origin: u64) -> u64 {
        let (mask, shift) = self.fields();
        let line = address.wrapping_sub(origin);
        let flip = match self {
            Swizzle::B128Atom32Flip8 => (line >> 4) & 8,
            _ => 0,
        };
        address ^ ((line >> shift) & mask) ^ flip
    }

    /// The bytes after which the pattern repeats; tiles begin at a multiple of it.
    pub const fn period(self) -> u64 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 | Swizzle::B96 | Swizzle::B128Atom64 => 256,
            Swizzle::B64 | Swizzle::B128Atom32 | Swizzle::B128Atom32Flip8 => 512,
            Swizzle::B128 => 1024,
        }
    }

    /// The bytes of a line: the widest inner box of a tensor copy with this mode.
    /// `None` has no such limit.
    pub const fn line(self) -> Option<u64> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B96 => Some(96),
            Swizzle::B128
            | Swizzle::B128Atom32
            | Swizzle::B128Atom32Flip8
            | Swizzle::B128Atom64 => Some(128),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Swizzle; 8] = [
        Swizzle::None,
        Swizzle::B32,
        Swizzle::B64,
        Swizzle::B96,
        Swizzle::B128,
        Swizzle::B128Atom32,
        Swizzle::B128Atom32Flip8,
        Swizzle::B128Atom64,
    ];

    /// The order of the 16-byte chunks of a 128-byte row of shared memory.
    fn row(mode: Swizzle, row: u64) -> [u64; 8] {
        std::array::from_fn(|chunk| mode.apply(row * 128 + 16 * chunk as u64) / 16 % 8)
    }

    #[test]
    fn the_patterns_of_the_isa() {
        assert_eq!(row(Swizzle::B128, 0), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(row(Swizzle::B128, 1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(row(Swizzle::B128, 5), [5, 4, 7, 6, 1, 0, 3, 2]);
        assert_eq!(row(Swizzle::B128, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(row(Swizzle::B64, 1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(row(Swizzle::B64, 3), [3, 2, 1, 0, 7, 6, 5, 4]);
        assert_eq!(row(Swizzle::B64, 4), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(row(Swizzle::B32, 1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(row(Swizzle::B32, 2), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(row(Swizzle::B128Atom32, 1), [2, 3, 0, 1, 6, 7, 4, 5]);
        assert_eq!(row(Swizzle::B128Atom32, 3), [6, 7, 4, 5, 2, 3, 0, 1]);
        assert_eq!(row(Swizzle::B128Atom64, 1), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(row(Swizzle::B96, 1), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(row(Swizzle::B128Atom32Flip8, 2), [4, 5, 6, 7, 0, 1, 2, 3]);
        assert_eq!(Swizzle::B128Atom32Flip8.apply(128), 128 + 32 + 8);
        assert_eq!(Swizzle::B128Atom32Flip8.apply(256), 256 + 64);
    }

    #[test]
    fn a_swizzle_undoes_itself_and_repeats() {
        for mode in ALL {
            let mut seen = vec![false; 4096];
            for address in 0..4096 {
                let there = mode.apply(address);
                assert_eq!(mode.apply(there), address);
                assert_eq!(mode.apply(address + mode.period()), there + mode.period());
                if mode != Swizzle::B128Atom32Flip8 {
                    assert_eq!(there % 16, address % 16);
                }
                assert!(!std::mem::replace(&mut seen[there as usize], true));
            }
        }
        assert_eq!(Swizzle::B128.apply_from(5 * 128, 5 * 128), 5 * 128);
        assert_eq!(Swizzle::B64.line(), Some(64));
    }
}
