//! Products against three loops over matrices that were packed by the ISA's own
//! formulas for each fragment.

use super::*;
use crate::cvt::tiny::{Tiny, from_f32};
use crate::float::{bf16, f16};
use crate::sample::Random;
use Accumulator as Acc;
use Element::*;

/// Row and column of element `i` (counted over all registers) of a lane, written
/// out as the ISA's section on each shape does.
fn isa_a(shape: (u16, u16), bits: u32, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane & 3);
    match (shape, bits) {
        ((16, 8), 16) => (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1)),
        ((16, 16), 16) => {
            let row = if i < 2 || (4..6).contains(&i) {
                g
            } else {
                g + 8
            };
            (row, t * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
        }
        ((16, 4), 32) => (if i == 0 { g } else { g + 8 }, t),
        ((16, 8), 32) => (
            if i == 0 || i == 2 { g } else { g + 8 },
            if i < 2 { t } else { t + 4 },
        ),
        ((8, 16), 8) => (g, t * 4 + i),
        ((16, 16), 8) => (if i < 4 { g } else { g + 8 }, t * 4 + (i & 3)),
        ((16, 32), 8) => {
            let row = if i < 4 || (8..12).contains(&i) {
                g
            } else {
                g + 8
            };
            (row, t * 4 + (i & 3) + if i < 8 { 0 } else { 16 })
        }
        ((8, 32), 4) => (g, t * 8 + i),
        ((16, 32), 4) => (if i < 8 { g } else { g + 8 }, t * 8 + (i & 7)),
        ((16, 64), 4) => {
            let row = if i < 8 || (16..24).contains(&i) {
                g
            } else {
                g + 8
            };
            (row, t * 8 + (i & 7) + if i < 16 { 0 } else { 32 })
        }
        ((8, 128), 1) => (g, t * 32 + i),
        ((16, 128), 1) => (if i < 32 { g } else { g + 8 }, t * 32 + (i & 31)),
        ((16, 256), 1) => {
            let row = if i < 32 || (64..96).contains(&i) {
                g
            } else {
                g + 8
            };
            (row, t * 32 + (i & 31) + if i < 64 { 0 } else { 128 })
        }
        ((8, 4), 64) => (g, t),
        ((16, 4), 64) => (if i == 0 { g } else { g + 8 }, t),
        ((16, 8), 64) | ((16, 16), 64) => (g + 8 * (i % 2), (i / 2) * 4 + t),
        other => panic!("{other:?}"),
    }
}

fn isa_b(k: u16, bits: u32, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane & 3);
    let row = match (k, bits) {
        (8, 16) => t * 2 + i,
        (16, 16) => t * 2 + (i & 1) + if i < 2 { 0 } else { 8 },
        (4, 32) => t,
        (8, 32) => {
            if i == 0 {
                t
            } else {
                t + 4
            }
        }
        (16, 8) => t * 4 + i,
        (32, 8) => t * 4 + (i & 3) + if i < 4 { 0 } else { 16 },
        (32, 4) => t * 8 + i,
        (64, 4) => t * 8 + (i & 7) + if i < 8 { 0 } else { 32 },
        (128, 1) => t * 32 + i,
        (256, 1) => t * 32 + (i & 31) + if i < 32 { 0 } else { 128 },
        (_, 64) => t + 4 * i,
        other => panic!("{other:?}"),
    };
    (row, g)
}

fn isa_c(m: u16, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane >> 2, lane & 3);
    (if m == 16 && i >= 2 { g + 8 } else { g }, t * 2 + (i & 1))
}

const ALL: [(u16, u16, Element); 22] = [
    (16, 8, F16),
    (16, 16, F16),
    (16, 8, Bf16),
    (16, 16, Bf16),
    (16, 4, Tf32),
    (16, 8, Tf32),
    (16, 16, E4m3),
    (16, 32, E4m3),
    (16, 32, E5m2),
    (8, 16, S8),
    (16, 16, U8),
    (16, 32, S8),
    (8, 32, S4),
    (16, 32, U4),
    (16, 64, S4),
    (8, 128, B1),
    (16, 128, B1),
    (16, 256, B1),
    (8, 4, F64),
    (16, 4, F64),
    (16, 8, F64),
    (16, 16, F64),
];

fn default_accumulator(of: Element) -> Acc {
    match of {
        F64 => Acc::F64,
        B1 => Acc::S32,
        e if e.is_integer() => Acc::S32,
        _ => Acc::F32,
    }
}

fn kind(m: u16, k: u16, of: Element) -> Mma {
    let acc = default_accumulator(of);
    Mma::new(Shape::new(m, 8, k), of, of, acc, acc).expect("a shape of PTX")
}

#[test]
fn fragments_are_where_the_isa_puts_them() {
    for (m, k, of) in ALL {
        let mma = kind(m, k, of);
        let (a, b, c) = (mma.a_layout(), mma.b_layout(), mma.c_layout());
        let elements = |layout: &Layout| layout.registers() * layout.per_register();
        assert_eq!(elements(&a) * 32, usize::from(m * k), "{m} {k} {of:?}");
        assert_eq!(elements(&b) * 32, usize::from(8 * k));
        assert_eq!(elements(&c) * 32, usize::from(8 * m));
        for lane in 0..32 {
            for i in 0..elements(&a) {
                let place = a.place(lane, i / a.per_register(), i % a.per_register());
                assert_eq!(
                    place,
                    isa_a((m, k), of.bits(), lane, i),
                    "{m} {k} {of:?} {lane} {i}"
                );
            }
            for i in 0..elements(&b) {
                let place = b.place(lane, i / b.per_register(), i % b.per_register());
                assert_eq!(place, isa_b(k, of.bits(), lane, i), "{k} {of:?} {lane} {i}");
            }
            for i in 0..elements(&c) {
                assert_eq!(c.place(lane, i, 0), isa_c(m, lane, i));
            }
        }
    }
    let half = Mma::new(Shape::new(16, 8, 16), F16, F16, Acc::F16, Acc::F16)
        .unwrap()
        .d_layout();
    assert_eq!((half.registers(), half.per_register()), (2, 2));
    assert_eq!(half.place(6, 1, 1), (9, 5));
}

/// A small integer as bits of the type.
fn encode(of: Element, x: i32) -> u64 {
    let single = (x as f32).to_bits();
    match of {
        F16 => f16::from_f32(single).into(),
        Bf16 => bf16::from_f32(single).into(),
        // The bits that do not take part are set.
        Tf32 => (single | 0x1fff).into(),
        E4m3 => from_f32(Tiny::E4m3, false, single).into(),
        E5m2 => from_f32(Tiny::E5m2, false, single).into(),
        F64 => f64::from(x).to_bits(),
        S8 | U8 => (x as u8).into(),
        S4 | U4 => (x as u8 & 0xf).into(),
        B1 => (x & 1) as u64,
    }
}

fn draw(random: &mut Random, of: Element) -> i32 {
    let x = random.next();
    match of {
        S8 => x as i8 as i32,
        U8 => x as u8 as i32,
        S4 => ((x as i32) << 28) >> 28,
        U4 => (x & 15) as i32,
        B1 => (x & 1) as i32,
        // Exact in every format.
        _ => (x % 9) as i32 - 4,
    }
}

/// Packs elements into words by the ISA's formula.
fn pack(of: Element, registers: usize, element: impl Fn(usize, usize) -> i32) -> Vec<Lanes<u64>> {
    let per = of.per_register() as usize;
    (0..registers)
        .map(|r| {
            std::array::from_fn(|lane| {
                (0..per).fold(0, |word, j| {
                    let shift = if of.bits() >= 32 {
                        0
                    } else {
                        j * of.bits() as usize
                    };
                    word | encode(of, element(lane, r * per + j)) << shift
                })
            })
        })
        .collect()
}

fn narrow(registers: &[Lanes<u64>]) -> Vec<Lanes<u32>> {
    registers.iter().map(|r| r.map(|w| w as u32)).collect()
}

#[test]
fn products_are_those_of_the_matrices() {
    let mut random = Random(71);
    for (m, k, of) in ALL {
        let mma = kind(m, k, of).bit_op(BitOp::And);
        let (rows, depth) = (usize::from(m), usize::from(k));
        let a: Vec<i32> = (0..rows * depth).map(|_| draw(&mut random, of)).collect();
        let b: Vec<i32> = (0..8 * depth).map(|_| draw(&mut random, of)).collect();
        let c: Vec<i32> = (0..8 * rows).map(|_| random.next() as i8 as i32).collect();
        let left = pack(of, mma.a_layout().registers(), |lane, i| {
            let (row, column) = isa_a((m, k), of.bits(), lane, i);
            a[row * depth + column]
        });
        let right = pack(of, mma.b_layout().registers(), |lane, i| {
            let (row, column) = isa_b(k, of.bits(), lane, i);
            b[row * 8 + column]
        });
        let acc = default_accumulator(of);
        let bits = |x: i32| match acc {
            Acc::F64 => f64::from(x).to_bits(),
            Acc::S32 => (x as u32).into(),
            _ => (x as f32).to_bits().into(),
        };
        let count = mma.c_layout().registers();
        let fill = |values: &[i32]| -> Vec<Lanes<u64>> {
            (0..count)
                .map(|i| {
                    std::array::from_fn(|lane| {
                        let (row, column) = isa_c(m, lane, i);
                        bits(values[row * 8 + column])
                    })
                })
                .collect()
        };
        let before = fill(&c);
        let product: Vec<i32> = (0..rows * 8)
            .map(|at| {
                let (row, column) = (at / 8, at % 8);
                c[at]
                    + (0..depth)
                        .map(|s| a[row * depth + s] * b[s * 8 + column])
                        .sum::<i32>()
            })
            .collect();
        if of == F64 {
            let mut d = vec![[0; 32]; count];
            mma.run_f64(&left, &right, &before, &mut d);
            assert_eq!(d, fill(&product), "{m} {k} {of:?}");
        } else {
            let mut d = vec![[0xdead_beef; 32]; count];
            mma.run(&narrow(&left), &narrow(&right), &narrow(&before), &mut d);
            assert_eq!(d, narrow(&fill(&product)), "{m} {k} {of:?}");
        }
    }
}

#[test]
fn doubles_round_each_step_as_told() {
    let tiny = [[f64::EPSILON.to_bits() - (3 << 52); 32]];
    let one = [[1f64.to_bits(); 32]];
    let run = |rounding| {
        let mut d = [[0; 32]; 2];
        kind(8, 4, F64)
            .rounding(rounding)
            .run_f64(&tiny, &one, &[one[0]; 2], &mut d);
        f64::from_bits(d[1][31])
    };
    assert_eq!(run(Rounding::Nearest), 1.0);
    assert_eq!(run(Rounding::Zero), 1.0);
    // Four steps, each up by one place.
    assert_eq!(run(Rounding::Up), 1.0 + 4.0 * f64::EPSILON);
}

#[test]
fn half_accumulators_round_into_pairs() {
    let mma = Mma::new(Shape::new(16, 8, 16), F16, F16, Acc::F16, Acc::F16).unwrap();
    let ones = [[0x3c00_3c00; 32]; 4];
    let c = [[0x6800_3c00; 32]; 2];
    let mut d = [[0; 32]; 2];
    mma.run(&ones, &ones[..2], &c, &mut d);
    // 1 + 16 = 17; 2048 + 16 = 2064.
    assert_eq!(d, [[0x6808_4c40; 32]; 2]);
    let mixed = Mma::new(Shape::new(16, 8, 16), F16, F16, Acc::F16, Acc::F32).unwrap();
    let mut wide = [[0; 32]; 4];
    mixed.run(&ones, &ones[..2], &c, &mut wide);
    assert_eq!(f32::from_bits(wide[0][0]), 17.0);
    assert_eq!(f32::from_bits(wide[3][31]), 2064.0);
}

#[test]
fn integers_wrap_or_clamp() {
    let mma = kind(16, 32, U8);
    let full = [[u32::MAX; 32]; 4];
    let c = [[0x7fff_ffff; 32]; 4];
    let mut d = [[0; 32]; 4];
    mma.run(&full, &full[..2], &c, &mut d);
    assert_eq!(d[0][0], 0x7fff_ffff + 32 * 255 * 255);
    mma.satfinite(true).run(&full, &full[..2], &c, &mut d);
    assert_eq!(d[3][31], 0x7fff_ffff);
    let mixed = Mma::new(Shape::new(16, 8, 32), U8, S8, Acc::S32, Acc::S32).unwrap();
    mixed.run(&full, &full[..2], &[[0; 32]; 4], &mut d);
    assert_eq!(d[0][0] as i32, -32 * 255);
}

#[test]
fn bits_count_agreement_or_difference() {
    let mma = kind(16, 256, B1);
    let (a, b) = ([[0xffff_0000; 32]; 4], [[0xff00_ff00; 32]; 2]);
    let mut d = [[0; 32]; 4];
    mma.bit_op(BitOp::And).run(&a, &b, &[[1; 32]; 4], &mut d);
    assert_eq!(d[0][0], 1 + 8 * 8);
    mma.bit_op(BitOp::Xor).run(&a, &b, &[[0; 32]; 4], &mut d);
    assert_eq!(d[0][0], 16 * 8);
}

#[test]
fn not_a_number_is_canonical_and_infinity_passes() {
    let mma = kind(16, 8, F16);
    let mut d = [[0; 32]; 4];
    let (inf, one) = ([[0x0000_7c00; 32]; 2], [[0x0000_3c00; 32]; 1]);
    mma.run(&inf, &one, &[[0; 32]; 4], &mut d);
    assert_eq!(d[0][0], 0x7f80_0000);
    mma.run(&inf, &[[0; 32]], &[[0; 32]; 4], &mut d);
    assert_eq!(d[0][0], crate::float::NAN32);
    mma.run::<Lanes<u32>>(&[], &[], &[], &mut d);
    assert_eq!(d, [[0; 32]; 4]);
}

#[test]
fn other_combinations_do_not_exist() {
    let refuse = |m, k, a, b, c| {
        Mma::new(Shape::new(m, 8, k), a, b, c, c)
            .expect_err("not in PTX")
            .to_string()
    };
    assert_eq!(
        refuse(16, 32, F16, F16, Acc::F32),
        "there is no m16n8k32 product of F16 and F16 into F32"
    );
    refuse(16, 16, F16, Bf16, Acc::F32);
    refuse(16, 16, Bf16, Bf16, Acc::F16);
    refuse(8, 16, F16, F16, Acc::F32);
    refuse(16, 32, S8, S4, Acc::S32);
    refuse(16, 8, F64, F64, Acc::F32);
    assert!(Mma::new(Shape::new(16, 16, 16), F16, F16, Acc::F32, Acc::F32).is_err());
    assert!(Mma::new(Shape::new(16, 8, 32), E4m3, E5m2, Acc::F16, Acc::F16).is_ok());
}
