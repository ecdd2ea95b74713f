//! Operands that break things, and pseudo-random ones, for the tests.

/// A small generator (splitmix64), so that tests repeat.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

pub(crate) fn ints64() -> Vec<u64> {
    let mut all = vec![
        0, 1, 2, 3, 7, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, 0x1_0000,
    ];
    all.extend([
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 32,
        (1 << 63) - 1,
        1 << 63,
    ]);
    all.extend([
        u64::MAX,
        u64::MAX - 1,
        0xffff_ffff_0000_0000,
        0x1234_5678_9abc_def0,
    ]);
    let mut random = Random(1);
    all.extend((0..20).map(|i| random.next() >> (3 * i)));
    all
}

pub(crate) fn ints32() -> Vec<u32> {
    let mut all = vec![
        0, 1, 2, 3, 7, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x1_0000,
    ];
    all.extend([
        0x007f_ffff,
        0x0080_0000,
        0x00ff_ffff,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
    ]);
    all.extend([
        0xffff_ffff,
        0xffff_fffe,
        0xffff_8000,
        0x1234_5678,
        0x9abc_def0,
    ]);
    let mut random = Random(2);
    all.extend((0..20).map(|i| (random.next() as u32) >> i));
    all
}

pub(crate) fn ints16() -> Vec<u16> {
    let mut all = vec![
        0, 1, 2, 3, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x8001, 0xffff, 0xfffe,
    ];
    let mut random = Random(3);
    all.extend((0..20).map(|_| random.next() as u16));
    all
}
