//! Both formats against exact integer arithmetic.

use super::*;
use crate::float::compare::{FloatCmp, Test};
use crate::float::soft::{BF16, F16, F32, Format, Value};
use crate::float::{NAN16, NAN32, Rounding};
use crate::sample::{Random, floats32};

type Binary = fn(u16, u16) -> u16;
type Ternary = fn(u16, u16, u16) -> u16;

struct Half {
    format: Format,
    add: Binary,
    sub: Binary,
    mul: Binary,
    fma: Ternary,
    to_f32: fn(u16) -> u32,
    from_f32: fn(u32) -> u16,
}

const HALVES: [Half; 2] = [
    Half {
        format: F16,
        add: f16::add::<false, false>,
        sub: f16::sub::<false, false>,
        mul: f16::mul::<false, false>,
        fma: f16::fma::<false, false>,
        to_f32: f16::to_f32,
        from_f32: f16::from_f32,
    },
    Half {
        format: BF16,
        add: bf16::add::<false, false>,
        sub: bf16::sub::<false, false>,
        mul: bf16::mul::<false, false>,
        fma: bf16::fma::<false, false>,
        to_f32: bf16::to_f32,
        from_f32: bf16::from_f32,
    },
];

fn pack(format: Format, value: Value) -> u16 {
    format
        .pack(value, Rounding::Nearest)
        .map_or(NAN16, |bits| bits as u16)
}

fn sum(a: Value, b: Value) -> Value {
    use Value::*;
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Finite(x), Finite(y)) => Finite(x.plus(y, Rounding::Nearest)),
        (Infinite { negative: s }, Infinite { negative: t }) if s != t => Nan,
        (Infinite { negative }, _) | (_, Infinite { negative }) => Infinite { negative },
    }
}

fn product(format: Format, a: u16, b: u16) -> Value {
    use Value::*;
    match (format.unpack(a.into()), format.unpack(b.into())) {
        (Nan, _) | (_, Nan) => Nan,
        (Finite(x), Finite(y)) => Finite(x.times(y)),
        (Finite(x), Infinite { .. }) | (Infinite { .. }, Finite(x)) if x.mantissa == 0 => Nan,
        _ => Infinite {
            negative: (a ^ b) & 0x8000 != 0,
        },
    }
}

fn samples(format: Format) -> Vec<u16> {
    let inf = format.infinity() as u16;
    let ulp = 1 << format.fraction;
    let one = (inf / 2) & inf;
    let mut all = vec![
        0,
        1,
        2,
        3,
        ulp - 1,
        ulp,
        ulp + 1,
        one,
        one + 1,
        one - 1,
        inf - 1,
        inf,
        inf + 1,
    ];
    all.push(NAN16);
    let mut random = Random(31);
    all.extend((0..40).map(|_| random.next() as u16 & 0x7fff));
    let negative: Vec<u16> = all.iter().map(|x| x | 0x8000).collect();
    all.extend(negative);
    all
}

#[test]
fn every_value_widens_and_narrows_back() {
    for half in &HALVES {
        for a in 0..=u16::MAX {
            let wide = (half.to_f32)(a);
            match half.format.unpack(a.into()) {
                Value::Nan => {
                    assert!(f32::from_bits(wide).is_nan());
                    assert_eq!((half.from_f32)(wide), NAN16);
                }
                value => {
                    let expect = F32.pack(value, Rounding::Zero);
                    assert_eq!(expect, Some(wide.into()), "{a:#x}");
                    assert_eq!((half.from_f32)(wide), a);
                }
            }
        }
    }
    assert_eq!(f16::to_f32(0xfe00), NAN32);
    assert_eq!(bf16::to_f32(0xffc1), 0xffc1_0000);
}

#[test]
fn narrowing_is_correctly_rounded() {
    let mut random = Random(32);
    let mut all = floats32();
    for _ in 0..200_000 {
        let bits = random.next() as u32;
        all.push(bits);
        // Near the ties and the ends of f16.
        all.push((bits & 0x8fff_ffff) | 0x3000_0000);
        all.push((bits & 0x83ff_e001) | 0x3400_0000 | (bits & 1) << 12);
        all.push((bits & 0x8fff_8001) | 0x4000_0000);
    }
    all.extend((0x4770_0000..0x4790_0000).step_by(0x800));
    for a in all {
        for half in &HALVES {
            let expect = pack(half.format, F32.unpack(a.into()));
            assert_eq!((half.from_f32)(a), expect, "{a:#x}");
        }
    }
}

#[test]
fn arithmetic_is_correctly_rounded() {
    for half in &HALVES {
        let all = samples(half.format);
        let unpack = |a: u16| half.format.unpack(a.into());
        for (i, &a) in all.iter().enumerate() {
            for &b in &all {
                let check =
                    |got: u16, value| assert_eq!(got, pack(half.format, value), "{a:#x} {b:#x}");
                check((half.add)(a, b), sum(unpack(a), unpack(b)));
                check((half.sub)(a, b), sum(unpack(a), unpack(b ^ 0x8000)));
                check((half.mul)(a, b), product(half.format, a, b));
                for &c in all.iter().skip(i % 5).step_by(5) {
                    check(
                        (half.fma)(a, b, c),
                        sum(product(half.format, a, b), unpack(c)),
                    );
                }
            }
        }
        let mut random = Random(33);
        for _ in 0..200_000 {
            let x = random.next();
            let (a, b, c) = (x as u16, (x >> 16) as u16, (x >> 32) as u16);
            let expect = pack(half.format, sum(product(half.format, a, b), unpack(c)));
            assert_eq!((half.fma)(a, b, c), expect, "{a:#x} {b:#x} {c:#x}");
        }
    }
}

#[test]
fn modifiers() {
    assert_eq!(f16::add::<true, false>(0x8001, 0x8001), 0x8000);
    assert_eq!(f16::mul::<true, false>(0x0400, 0x3800), 0);
    assert_eq!(f16::mul::<false, false>(0x0400, 0x3800), 0x0200);
    // Both round to the least normal number; the first is too far below it.
    assert_eq!(f16::mul::<true, false>(0x0400, 0x3bff), 0);
    assert_eq!(f16::mul::<false, false>(0x0400, 0x3bff), 0x0400);
    assert_eq!(f16::mul::<true, false>(0x0401, 0x3bfe), 0x0400);
    assert_eq!(f16::fma::<true, false>(0x8400, 0x3bff, 0x8000), 0x8000);
    assert_eq!(f16::add::<false, true>(0x3c00, 0x3c00), 0x3c00);
    assert_eq!(f16::sub::<false, true>(0x3c00, 0x4000), 0);
    assert_eq!(f16::add::<false, true>(0x7c00, 0xfc00), 0);
    assert_eq!(f16::fma_relu::<false>(0xbc00, 0x3c00, 0), 0);
    assert_eq!(f16::fma_relu::<false>(0x7c00, 0, 0), NAN16);
    assert_eq!(bf16::fma_relu::<false>(0x3f80, 0x3f80, 0x3f80), 0x4000);
    assert_eq!(f16::fma_oob::<false>(OOB_NAN, 0x3c00, 0x3c00), 0);
    assert_eq!(f16::fma_oob::<false>(NAN16, 0x3c00, 0x3c00), NAN16);
    assert_eq!(f16::fma_oob::<true>(0xbc00, 0x3c00, 0), 0);
    assert_eq!(f16::neg::<false>(0xfe01), NAN16);
    assert_eq!(bf16::abs::<false>(0xc000), 0x4000);
}

#[test]
fn comparisons_classes_and_functions() {
    assert!(f16::compare::<false>(FloatCmp::Lt, 1, 2));
    assert!(f16::compare::<true>(FloatCmp::Eq, 1, 0x8002));
    assert!(bf16::compare::<false>(FloatCmp::Neu, NAN16, 0));
    assert!(f16::test(Test::Subnormal, 0x83ff) && !f16::test(Test::Subnormal, 0));
    assert!(f16::test(Test::Normal, 0x0400) && f16::test(Test::Normal, 0));
    assert!(!f16::test(Test::Normal, 0x7c00) && f16::test(Test::Infinite, 0xfc00));
    assert!(bf16::test(Test::Subnormal, 1) && bf16::test(Test::NotANumber, 0x7f81));
    assert_eq!(f16::ex2::<false>(0x4900), 0x6400);
    assert_eq!(f16::ex2::<false>(0xfc00), 0);
    assert_eq!(f16::tanh(0x7c00), 0x3c00);
    assert_eq!(f16::tanh(0x8000), 0x8000);
    assert_eq!(bf16::ex2::<true>(0x4000), 0x4080);
    assert_eq!(bf16::tanh(0xff80), 0xbf80);
}

#[test]
fn pairs_are_two_halves() {
    let (one, two, three) = (0x3c00, 0x4000, 0x4200);
    let pair = |high: u32, low: u32| high << 16 | low;
    assert_eq!(
        f16x2::add::<false, false>(pair(one, two), pair(two, one)),
        pair(three, three)
    );
    assert_eq!(
        f16x2::sub::<false, false>(pair(three, two), pair(two, one)),
        pair(one, one)
    );
    assert_eq!(
        f16x2::mul::<false, false>(pair(two, one), pair(one, one)),
        pair(two, one)
    );
    assert_eq!(
        f16x2::fma::<false, false>(pair(one, one), pair(two, one), pair(one, one)),
        pair(three, two)
    );
    assert_eq!(
        f16x2::min::<false, false, false>(pair(one, two), pair(two, one)),
        pair(one, one)
    );
    assert_eq!(
        f16x2::max::<false, true, false>(pair(one, 0x7e00), pair(two, one)),
        pair(two, 0x7fff)
    );
    assert_eq!(f16x2::neg::<false>(pair(one, 0xbc00)), pair(0xbc00, one));
    assert_eq!(f16x2::abs::<false>(pair(0xbc00, 0xc000)), pair(one, two));
    assert_eq!(
        f16x2::fma_relu::<false>(pair(0xbc00, one), pair(one, one), 0),
        pair(0, one)
    );
    assert_eq!(
        bf16x2::fma_oob::<true>(pair(u32::from(OOB_NAN), 0x3f80), pair(0x3f80, 0x3f80), 0),
        pair(0, 0x3f80)
    );
    assert_eq!(bf16x2::ex2::<true>(pair(0, 0x3f80)), pair(0x3f80, 0x4000));
    assert_eq!(f16x2::tanh(pair(0x7c00, 0xfc00)), pair(one, 0xbc00));
}
