//! Descriptors against layouts that were written out by hand, and products of
//! operands that were laid out in a model of shared memory.

use super::*;
use crate::float::{bf16, f16};
use crate::sample::Random;
use Accumulator as Acc;
use Element::*;

impl Wgmma {
    fn number(&self, word: u32, j: usize) -> f64 {
        match self.d {
            Acc::F16 => F16.float(word >> (16 * j)).into(),
            _ => f32::from_bits(word).into(),
        }
    }

    /// Every element of D with its index in a matrix of n columns.
    fn each_place(&self, d: &mut [Lanes<u32>], mut f: impl FnMut(&mut u32, usize, usize)) {
        let halves = if self.d == Acc::F16 { 2 } else { 1 };
        for (r, register) in d.iter_mut().enumerate().take(self.d_registers()) {
            for (lane, word) in register.iter_mut().enumerate() {
                for j in 0..halves {
                    let (row, column) = self.d_place(lane, r, j);
                    f(word, j, row * self.n + column);
                }
            }
        }
    }
}

fn descriptor(leading: u32, stride: u32, swizzle: Swizzle) -> Descriptor {
    Descriptor {
        start: 0x800,
        leading,
        stride,
        base_offset: 0,
        swizzle,
    }
}

#[test]
fn fields_are_where_the_isa_puts_them() {
    let bits = 0x4000_0040_0001_0000 | 0x123;
    let got = Descriptor::decode(bits);
    let expect = Descriptor {
        start: 0x1230,
        leading: 16,
        stride: 1024,
        base_offset: 0,
        swizzle: Swizzle::B128,
    };
    assert_eq!(got, expect);
    assert_eq!(expect.encode(), Some(bits));
    for (mode, swizzle) in [
        (0, Swizzle::None),
        (1, Swizzle::B128),
        (2, Swizzle::B64),
        (3, Swizzle::B32),
    ] {
        let bits = mode << 62 | 5 << 49 | 0x3fff << 32 | 0x3fff << 16 | 0x3fff;
        let got = Descriptor::decode(bits);
        assert_eq!(
            (got.swizzle, got.base_offset, got.start),
            (swizzle, 5, 0x3fff0)
        );
        assert_eq!(got.encode(), Some(bits));
    }
    assert_eq!(descriptor(8, 0, Swizzle::None).encode(), None);
    assert_eq!(descriptor(0, 1 << 18, Swizzle::None).encode(), None);
    assert_eq!(descriptor(0, 0, Swizzle::B128Atom32).encode(), None);
}

#[test]
fn k_major_addresses() {
    let operand = |leading, stride, swizzle| SharedOperand {
        descriptor: descriptor(leading, stride, swizzle),
        major: Major::K,
        element: Bf16,
        mn: 64,
        k: 16,
    };
    // Core matrices of 8 rows of 16 bytes: k at the leading offset, rows at the stride.
    let plain = operand(128, 256, Swizzle::None);
    assert_eq!(plain.element_address(0, 0), 0x800);
    assert_eq!(plain.element_address(3, 5), 0x800 + 3 * 16 + 10);
    assert_eq!(plain.element_address(3, 8), 0x800 + 3 * 16 + 128);
    assert_eq!(plain.element_address(9, 15), 0x800 + 256 + 16 + 128 + 14);
    // Rows of 128 bytes, chunk 1 of row 5 at place 1 ^ 5.
    let swizzled = operand(0, 1024, Swizzle::B128);
    assert_eq!(swizzled.element_address(5, 8), 0x800 + 5 * 128 + 4 * 16);
    assert_eq!(
        swizzled.element_address(13, 8),
        0x800 + 1024 + 5 * 128 + 4 * 16
    );
    // The next sixteen of k: 32 bytes further, before the swizzle.
    let mut next = swizzled;
    next.descriptor.start += 32;
    assert_eq!(next.element_address(5, 0), 0x800 + 5 * 128 + (2 ^ 5) * 16);
    let narrow = operand(0, 512, Swizzle::B64);
    assert_eq!(narrow.element_address(2, 0), 0x800 + 128 + 16);
    assert_eq!(narrow.element_address(8, 0), 0x800 + 512);
    let narrower = operand(0, 256, Swizzle::B32);
    assert_eq!(narrower.element_address(4, 8), 0x800 + 128);
    // A pattern that begins at line 2 of its period.
    let mut shifted = swizzled;
    shifted.descriptor.start = 0x900;
    shifted.descriptor.base_offset = 2;
    assert_eq!(shifted.element_address(0, 0), 0x900);
    assert_eq!(shifted.element_address(1, 0), 0x900 + 128 + 16);
}

#[test]
fn mn_major_addresses() {
    let operand = |leading, stride, swizzle| SharedOperand {
        descriptor: descriptor(leading, stride, swizzle),
        major: Major::Mn,
        element: F16,
        mn: 128,
        k: 16,
    };
    // 64 of n in a line of 128 bytes, a line for each k; the next 64 at the leading
    // offset, the next 8 of k at the stride.
    let wide = operand(8192, 1024, Swizzle::B128);
    assert_eq!(wide.element_address(0, 0), 0x800);
    assert_eq!(wide.element_address(9, 0), 0x800 + 18);
    assert_eq!(
        wide.element_address(9, 3),
        0x800 + 3 * 128 + (1 ^ 3) * 16 + 2
    );
    assert_eq!(wide.element_address(64, 0), 0x800 + 8192);
    assert_eq!(wide.element_address(0, 8), 0x800 + 1024);
    let middle = operand(4096, 512, Swizzle::B64);
    assert_eq!(middle.element_address(32, 2), 0x800 + 4096 + 128 + 16);
    // Without a swizzle the roles are exchanged: n at the stride, k at the leading offset.
    let plain = operand(2048, 128, Swizzle::None);
    assert_eq!(plain.element_address(8, 0), 0x800 + 128);
    assert_eq!(plain.element_address(0, 8), 0x800 + 2048);
    assert_eq!(plain.element_address(3, 2), 0x800 + 32 + 6);
}

#[test]
fn the_accumulator_covers_its_tile() {
    for (n, d) in [
        (8, Acc::F32),
        (8, Acc::F16),
        (256, Acc::F32),
        (24, Acc::F16),
    ] {
        let wgmma = Wgmma::new(n, F16, F16, d).unwrap();
        let mut seen = vec![0; 16 * n];
        let mut registers = vec![[0; 32]; wgmma.d_registers()];
        wgmma.each_place(&mut registers, |_, _, at| seen[at] += 1);
        assert!(seen.iter().all(|x| *x == 1));
    }
    let f32 = Wgmma::new(16, F16, F16, Acc::F32).unwrap();
    assert_eq!(f32.d_place(5, 0, 0), (1, 2));
    assert_eq!(f32.d_place(5, 3, 0), (9, 3));
    assert_eq!(f32.d_place(5, 4, 0), (1, 10));
    let f16 = Wgmma::new(16, F16, F16, Acc::F16).unwrap();
    assert_eq!(f16.d_place(5, 1, 1), (9, 3));
    assert_eq!(f16.d_place(5, 2, 0), (1, 10));
}

fn bits(of: Element, x: i32) -> u32 {
    let single = (x as f32).to_bits();
    match of {
        F16 => f16::from_f32(single).into(),
        Bf16 => bf16::from_f32(single).into(),
        Tf32 => single | 0x1fff,
        E4m3 => crate::cvt::tiny::from_f32(crate::cvt::tiny::Tiny::E4m3, false, single).into(),
        B1 => x as u32 & 1,
        _ => x as u8 as u32,
    }
}

/// Puts an operand into memory, element by element.
fn place(operand: &SharedOperand, memory: &mut [u8], element: impl Fn(usize, usize) -> i32) {
    for mn in 0..operand.mn {
        for k in 0..operand.k {
            let at = operand.element_address(mn, k) as usize;
            let word = bits(operand.element, element(mn, k));
            if operand.element == B1 {
                memory[at] |= (word as u8) << (k % 8);
            } else {
                let bytes = operand.element.bits() as usize / 8;
                memory[at..at + bytes].copy_from_slice(&word.to_le_bytes()[..bytes]);
            }
        }
    }
}

fn load(memory: &[u8]) -> impl FnMut(u32) -> [u8; 16] {
    |at| memory[at as usize..at as usize + 16].try_into().unwrap()
}

#[test]
fn products_of_operands_in_shared_memory() {
    let mut random = Random(101);
    let layouts = [
        (Major::K, Swizzle::None, 128, 256),
        (Major::K, Swizzle::B128, 16, 1024),
        (Major::K, Swizzle::B64, 16, 512),
        (Major::K, Swizzle::B32, 16, 256),
        (Major::Mn, Swizzle::B128, 2048, 1024),
        (Major::Mn, Swizzle::B64, 1024, 512),
        (Major::Mn, Swizzle::B32, 512, 256),
        (Major::Mn, Swizzle::None, 2048, 128),
    ];
    for (of, d) in [
        (F16, Acc::F32),
        (Bf16, Acc::F32),
        (F16, Acc::F16),
        (Tf32, Acc::F32),
        (E4m3, Acc::F32),
        (S8, Acc::S32),
        (B1, Acc::S32),
    ] {
        let n = 24;
        let wgmma = Wgmma::new(n, of, of, d).unwrap();
        let k = wgmma.k();
        for (major, swizzle, leading, stride) in layouts {
            if major == Major::Mn && of.bits() != 16 {
                continue;
            }
            let mut draw = |len: usize| -> Vec<i32> {
                (0..len)
                    .map(|_| {
                        if of == B1 {
                            (random.next() & 1) as i32
                        } else {
                            (random.next() % 7) as i32 - 3
                        }
                    })
                    .collect()
            };
            let (a, b) = (draw(64 * k), draw(n * k));
            let mut memory = vec![0; 1 << 16];
            let word = |start| {
                Descriptor {
                    start,
                    leading,
                    stride,
                    base_offset: 0,
                    swizzle,
                }
                .encode()
                .unwrap()
            };
            let in_a = wgmma.a_operand(word(0), major);
            let in_b = wgmma.b_operand(word(0x8000), major);
            place(&in_a, &mut memory, |m, s| a[m * k + s]);
            place(&in_b, &mut memory, |j, s| b[j * k + s]);
            let left = in_a.read_rows(load(&memory));
            let right = in_b.read_columns(load(&memory));
            for warp in 0..4 {
                let rows = left.rows(16 * warp..16 * warp + 16, k);
                let one = match d {
                    Acc::F16 => 0x3c00_3c00,
                    Acc::F32 => 1f32.to_bits(),
                    _ => 1,
                };
                for (accumulate, base) in [(true, 1), (false, 0)] {
                    let mut registers = vec![[one; 32]; wgmma.d_registers()];
                    wgmma.run_warp(&rows, &right, accumulate, &mut registers);
                    wgmma.each_place(&mut registers, |word, j, at| {
                        let (row, column) = (at / n + 16 * warp, at % n);
                        let sum = base
                            + (0..k)
                                .map(|s| a[row * k + s] * b[column * k + s])
                                .sum::<i32>();
                        let got = match d {
                            Acc::S32 => f64::from(*word as i32),
                            _ => wgmma.number(*word, j),
                        };
                        assert_eq!(got, f64::from(sum), "{of:?} {major:?} {swizzle:?}");
                    });
                }
            }
        }
    }
}

#[test]
fn registers_signs_and_saturation() {
    let wgmma = Wgmma::new(8, F16, F16, Acc::F32).unwrap();
    let a = wgmma.read_a(&[[0x3c00_3c00; 32]; 4]);
    assert_eq!(a, Numbers::Floats(vec![1.0; 256]));
    let b = Numbers::Floats(vec![2.0; 128]);
    let mut d = [[1f32.to_bits(); 32]; 4];
    wgmma.negate(true, false).run_warp(&a, &b, true, &mut d);
    assert_eq!(d, [[(-31f32).to_bits(); 32]; 4]);
    wgmma.negate(true, true).run_warp(&a, &b, false, &mut d);
    assert_eq!(d, [[32f32.to_bits(); 32]; 4]);
    let bytes = Wgmma::new(8, U8, S8, Acc::S32).unwrap();
    let a = bytes.read_a(&[[u32::MAX; 32]; 4]);
    assert_eq!(a, Numbers::Integers(vec![255; 512]));
    let b = Numbers::Integers(vec![127; 256]);
    let mut d = [[0x7fff_fff0; 32]; 4];
    bytes.satfinite(true).run_warp(&a, &b, true, &mut d);
    assert_eq!(d, [[0x7fff_ffff; 32]; 4]);
    let bits = Wgmma::new(8, B1, B1, Acc::S32).unwrap();
    assert_eq!(
        bits.read_a(&[[u32::MAX; 32]; 4]),
        Numbers::Integers(vec![1; 16 * 256])
    );
    // Operands that do not fit leave D alone, or add nothing.
    wgmma.run_warp(&a, &b, true, &mut []);
}

#[test]
fn sizes_and_types() {
    assert!(Wgmma::new(256, Bf16, Bf16, Acc::F32).is_ok());
    assert!(Wgmma::new(40, F16, F16, Acc::F32).is_ok());
    assert!(Wgmma::new(40, S8, S8, Acc::S32).is_err());
    assert!(Wgmma::new(264, F16, F16, Acc::F32).is_err());
    assert!(Wgmma::new(12, F16, F16, Acc::F32).is_err());
    let refused = Wgmma::new(16, Bf16, Bf16, Acc::F16)
        .unwrap_err()
        .to_string();
    assert_eq!(
        refused,
        "there is no m64n16 wgmma of Bf16 and Bf16 into F16"
    );
    let k = |of, d| Wgmma::new(16, of, of, d).unwrap().k();
    assert_eq!(
        [
            k(F16, Acc::F32),
            k(Tf32, Acc::F32),
            k(E5m2, Acc::F16),
            k(U8, Acc::S32),
            k(B1, Acc::S32)
        ],
        [16, 8, 32, 32, 256]
    );
}

#[test]
fn sparse_operands_are_spread_by_their_metadata() {
    for (of, d, k) in [
        (F16, Acc::F32, 32),
        (Tf32, Acc::F32, 16),
        (S8, Acc::S32, 64),
        (E4m3, Acc::F16, 64),
    ] {
        let wgmma = Wgmma::new(8, of, of, d).unwrap().sparse().unwrap();
        assert_eq!(wgmma.k(), k);
        assert_eq!(
            (
                wgmma.a_operand(0, Major::K).k,
                wgmma.b_operand(0, Major::K).k
            ),
            (k / 2, k)
        );
        let one = bits(of, 1);
        let word = (0..of.per_register()).fold(0, |w, j| w | one << (j * (of.bits() & 31)));
        let stored = wgmma.read_a(&[[word; 32]; 4]);
        // The last of every group, and the one before where two are stored.
        let a = wgmma.expand(&stored, &[0xeeee_eeee; 32], 0);
        let group = if of == Tf32 { 2 } else { 4 };
        let expect = |at: usize| if at % group >= group / 2 { 1.0 } else { 0.0 };
        let got: Vec<f64> = match &a {
            Numbers::Floats(all) => all.clone(),
            Numbers::Integers(all) => all.iter().map(|x| f64::from(*x)).collect(),
        };
        assert_eq!(got, (0..16 * k).map(expect).collect::<Vec<_>>(), "{of:?}");
        // Against a B that is one in the columns that A has not.
        let other = |at: usize| 1.0 - expect(at / 8);
        let b = if of.is_float() {
            Numbers::Floats((0..8 * k).map(other).collect())
        } else {
            Numbers::Integers((0..8 * k).map(|at| other(at) as i32).collect())
        };
        let mut registers = vec![[u32::MAX; 32]; wgmma.d_registers()];
        wgmma.run_warp(&a, &b, false, &mut registers);
        assert!(registers.iter().all(|r| *r == [0; 32]));
        wgmma.run_warp(&a, &a_as_b(&a, k), false, &mut registers);
        let half = (k / 2) as f64;
        wgmma.each_place(&mut registers, |word, j, _| {
            let got = if d == Acc::S32 {
                f64::from(*word)
            } else {
                wgmma.number(*word, j)
            };
            assert_eq!(got, half);
        });
    }
    assert!(Wgmma::new(8, B1, B1, Acc::S32).unwrap().sparse().is_none());
}

/// The first row of A in every column of B.
fn a_as_b(a: &Numbers, k: usize) -> Numbers {
    match a {
        Numbers::Floats(all) => Numbers::Floats((0..8 * k).map(|at| all[at / 8]).collect()),
        Numbers::Integers(all) => Numbers::Integers((0..8 * k).map(|at| all[at / 8]).collect()),
    }
}
