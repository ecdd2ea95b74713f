//! Edge-case operands, and pseudo-random ones, for the tests.

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

/// Zeros, subnormals, ends of the range, ties, infinities, NaNs, random bits, and
/// both signs of each.
pub(crate) fn floats64() -> Vec<u64> {
    let mut all = vec![
        0,
        1,
        2,
        0x000f_ffff_ffff_ffff,
        0x0010_0000_0000_0000,
        0x0010_0000_0000_0001,
    ];
    all.extend(
        [
            1.0,
            1.5,
            2.0,
            3.0,
            0.1,
            1.0 + f64::EPSILON,
            1.0 - f64::EPSILON / 2.0,
        ]
        .map(f64::to_bits),
    );
    all.extend(
        [
            1e300,
            1e-300,
            1e16,
            0.5,
            f64::MAX,
            f64::from(f32::MAX),
            1e-40,
            65504.0,
        ]
        .map(f64::to_bits),
    );
    all.extend([
        0x7ff0_0000_0000_0000,
        0x7ff8_0000_0000_0000,
        0x7ff0_0000_0000_0001,
        0x7fff_dead_beef_0000,
    ]);
    let mut random = Random(4);
    all.extend((0..24).map(|_| random.next() >> 1));
    // Near one another, so that sums cancel.
    all.extend((0..24).map(|_| 0x3fe0_0000_0000_0000 + (random.next() >> 10)));
    let negative: Vec<u64> = all.iter().map(|x| x | 1 << 63).collect();
    all.extend(negative);
    all
}

/// As [`floats64`], of 32 bits.
pub(crate) fn floats32() -> Vec<u32> {
    let mut all = vec![
        0,
        1,
        2,
        0x007f_ffff,
        0x0080_0000,
        0x0080_0001,
        0x0100_0000,
        0x7f7f_ffff,
    ];
    all.extend(
        [
            1.0f32,
            1.5,
            2.0,
            3.0,
            0.1,
            0.5,
            1.0 + f32::EPSILON,
            1.0 - f32::EPSILON / 2.0,
        ]
        .map(f32::to_bits),
    );
    all.extend(
        [
            1e38f32, 1e-38, 1e10, 1e-10, 65504.0, 8388609.0, 16777217.0, 1e-45,
        ]
        .map(f32::to_bits),
    );
    all.extend([0x7f80_0000, 0x7fc0_0000, 0x7f80_0001, 0x7fff_ffff]);
    let mut random = Random(5);
    all.extend((0..24).map(|_| random.next() as u32 >> 1));
    all.extend((0..24).map(|_| 0x3f00_0000 + (random.next() as u32 >> 8)));
    let negative: Vec<u32> = all.iter().map(|x| x | 1 << 31).collect();
    all.extend(negative);
    all
}
