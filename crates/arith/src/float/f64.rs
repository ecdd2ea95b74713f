//! Double precision.
//!
//! Rounding to nearest uses the host's operations; the directed modes, which are
//! rare, are integer arithmetic ([`super::soft`]).

use super::soft::{Exact, F64, Value};
use super::{NAN64, Rounding};

const SIGN: u64 = 1 << 63;
const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const QUIET: u64 = 1 << 51;

#[inline(always)]
fn is_nan(a: u64) -> bool {
    a & !SIGN > INFINITY
}

/// The NaN that an operation on these operands gives, if it gives one.
#[inline(always)]
fn nan_of(a: u64, b: u64, c: u64) -> u64 {
    if is_nan(a) {
        a | QUIET
    } else if is_nan(b) {
        b | QUIET
    } else if is_nan(c) {
        c | QUIET
    } else {
        NAN64
    }
}

#[inline(always)]
fn finish(result: f64, a: u64, b: u64, c: u64) -> u64 {
    let bits = result.to_bits();
    if is_nan(bits) { nan_of(a, b, c) } else { bits }
}

/// `add.rn`.
#[inline(always)]
pub fn add(a: u64, b: u64) -> u64 {
    finish(f64::from_bits(a) + f64::from_bits(b), a, b, 0)
}

/// `sub.rn`.
#[inline(always)]
pub fn sub(a: u64, b: u64) -> u64 {
    finish(f64::from_bits(a) - f64::from_bits(b), a, b, 0)
}

/// `mul.rn`.
#[inline(always)]
pub fn mul(a: u64, b: u64) -> u64 {
    finish(f64::from_bits(a) * f64::from_bits(b), a, b, 0)
}

/// `fma.rn`. For a whole warp, [`crate::lanes::fma_f64`] is faster where the
/// host has a fused instruction.
#[inline(always)]
pub fn fma(a: u64, b: u64, c: u64) -> u64 {
    finish(
        f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)),
        a,
        b,
        c,
    )
}

/// Rounds in a directed mode what was computed exactly.
fn directed(rounding: Rounding, value: Value, a: u64, b: u64, c: u64) -> u64 {
    F64.pack(value, rounding).unwrap_or_else(|| nan_of(a, b, c))
}

fn exact_sum(a: Value, b: Value, rounding: Rounding) -> Value {
    use Value::{Finite, Infinite, Nan};
    match (a, b) {
        (Nan, _) | (_, Nan) => Nan,
        (Finite(x), Finite(y)) => Finite(x.plus(y, rounding)),
        (Infinite { negative: s }, Infinite { negative: t }) if s != t => Nan,
        (Infinite { negative }, _) | (_, Infinite { negative }) => Infinite { negative },
    }
}

fn exact_product(a: u64, b: u64) -> Value {
    use Value::{Finite, Infinite, Nan};
    match (F64.unpack(a), F64.unpack(b)) {
        (Nan, _) | (_, Nan) => Nan,
        (Finite(x), Finite(y)) => Finite(x.times(y)),
        (Finite(Exact { mantissa: 0, .. }), _) | (_, Finite(Exact { mantissa: 0, .. })) => Nan,
        _ => Infinite {
            negative: (a ^ b) & SIGN != 0,
        },
    }
}

/// `add` with any rounding.
pub fn add_with(rounding: Rounding, a: u64, b: u64) -> u64 {
    match rounding {
        Rounding::Nearest => add(a, b),
        _ => directed(
            rounding,
            exact_sum(F64.unpack(a), F64.unpack(b), rounding),
            a,
            b,
            0,
        ),
    }
}

/// `sub` with any rounding.
pub fn sub_with(rounding: Rounding, a: u64, b: u64) -> u64 {
    match rounding {
        Rounding::Nearest => sub(a, b),
        _ => {
            let sum = exact_sum(F64.unpack(a), F64.unpack(b ^ SIGN), rounding);
            directed(rounding, sum, a, b, 0)
        }
    }
}

/// `mul` with any rounding.
pub fn mul_with(rounding: Rounding, a: u64, b: u64) -> u64 {
    match rounding {
        Rounding::Nearest => mul(a, b),
        _ => directed(rounding, exact_product(a, b), a, b, 0),
    }
}

/// `fma` with any rounding.
pub fn fma_with(rounding: Rounding, a: u64, b: u64, c: u64) -> u64 {
    match rounding {
        Rounding::Nearest => fma(a, b, c),
        _ => {
            let sum = exact_sum(exact_product(a, b), F64.unpack(c), rounding);
            directed(rounding, sum, a, b, c)
        }
    }
}

/// `div` with any rounding.
pub fn div_with(rounding: Rounding, a: u64, b: u64) -> u64 {
    use Value::{Finite, Infinite, Nan};
    if rounding == Rounding::Nearest {
        return finish(f64::from_bits(a) / f64::from_bits(b), a, b, 0);
    }
    let negative = (a ^ b) & SIGN != 0;
    let zero = Finite(Exact::integer(negative, 0));
    let quotient = match (F64.unpack(a), F64.unpack(b)) {
        (Nan, _) | (_, Nan) | (Infinite { .. }, Infinite { .. }) => Nan,
        (Infinite { .. }, _) => Infinite { negative },
        (_, Infinite { .. }) => zero,
        (Finite(Exact { mantissa: 0, .. }), Finite(Exact { mantissa: 0, .. })) => Nan,
        (Finite(Exact { mantissa: 0, .. }), _) => zero,
        (_, Finite(Exact { mantissa: 0, .. })) => Infinite { negative },
        (Finite(x), Finite(y)) => Finite(x.over(y)),
    };
    directed(rounding, quotient, a, b, 0)
}

/// `rcp` with any rounding.
pub fn rcp_with(rounding: Rounding, a: u64) -> u64 {
    if is_nan(a) {
        a | QUIET
    } else {
        div_with(rounding, 1f64.to_bits(), a)
    }
}

/// `sqrt` with any rounding.
pub fn sqrt_with(rounding: Rounding, a: u64) -> u64 {
    match (rounding, F64.unpack(a)) {
        (Rounding::Nearest, _) => finish(f64::from_bits(a).sqrt(), a, 0, 0),
        (_, Value::Finite(x)) if x.mantissa != 0 && !x.negative => {
            directed(rounding, Value::Finite(x.square_root()), a, 0, 0)
        }
        // Zeros are their own roots; below zero there are none.
        (_, Value::Finite(x)) if x.mantissa == 0 => a,
        (_, Value::Infinite { negative: false }) => a,
        _ => nan_of(a, 0, 0),
    }
}

/// `abs`: a NaN becomes quiet, as in an addition.
#[inline(always)]
pub fn abs(a: u64) -> u64 {
    let magnitude = a & !SIGN;
    if is_nan(a) {
        magnitude | QUIET
    } else {
        magnitude
    }
}

/// `neg`: a NaN becomes quiet, as in an addition.
#[inline(always)]
pub fn neg(a: u64) -> u64 {
    let negated = a ^ SIGN;
    if is_nan(a) { negated | QUIET } else { negated }
}

/// `copysign`: `b` with the sign of `a`.
#[inline(always)]
pub fn copysign(a: u64, b: u64) -> u64 {
    (a & SIGN) | (b & !SIGN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::floats64;
    use Rounding::{Down, Nearest, Up, Zero};

    /// Directed results must be neighbours around the nearest one (or equal to
    /// it), and on the right side of an exact witness of the error.
    fn check(near: f64, error: f64, got: impl Fn(Rounding) -> u64) {
        let [down, up, zero] = [Down, Up, Zero].map(|m| f64::from_bits(got(m)));
        let (lo, hi) = match error {
            e if e > 0.0 => (near, near.next_up()),
            e if e < 0.0 => (near.next_down(), near),
            _ => (near, near),
        };
        assert_eq!((down, up), (lo, hi), "near {near:e} error {error:e}");
        assert_eq!(zero, if near < 0.0 { hi } else { lo });
    }

    #[test]
    fn directed_modes_follow_the_error_of_the_nearest() {
        let moderate: Vec<f64> = floats64()
            .into_iter()
            .map(f64::from_bits)
            .filter(|x| x.abs() > 1e-100 && x.abs() < 1e100)
            .collect();
        for &a in &moderate {
            let root = a.abs().sqrt();
            let rest = (-root).mul_add(root, a.abs());
            check(root, rest, |m| sqrt_with(m, a.abs().to_bits()));
            for &b in &moderate {
                let (x, y) = (a.to_bits(), b.to_bits());
                let product = a * b;
                check(product, a.mul_add(b, -product), |m| mul_with(m, x, y));
                let quotient = a / b;
                let rest = (-quotient).mul_add(b, a);
                check(quotient, if b < 0.0 { -rest } else { rest }, |m| {
                    div_with(m, x, y)
                });
                let sum = a + b;
                let back = sum - a;
                let lost = (a - (sum - back)) + (b - back);
                if sum != 0.0 {
                    check(sum, lost, |m| add_with(m, x, y));
                    check(sum, lost, |m| fma_with(m, x, 1f64.to_bits(), y));
                }
                assert_eq!(sub_with(Up, x, y), add_with(Up, x, neg(y)));
            }
        }
    }

    #[test]
    fn zeros_and_ends_of_the_range() {
        let one = 1f64.to_bits();
        assert_eq!(add_with(Down, one, neg(one)), SIGN);
        assert_eq!(add_with(Up, one, neg(one)), 0);
        assert_eq!(add_with(Down, 0, 0), 0);
        assert_eq!(fma_with(Down, one, one, neg(one)), SIGN);
        let max = f64::MAX.to_bits();
        assert_eq!(add_with(Zero, max, max), max);
        assert_eq!(add_with(Up, max, max), INFINITY);
        assert_eq!(add_with(Down, neg(max), neg(max)), INFINITY | SIGN);
        assert_eq!(mul_with(Up, 1, 1), 1);
        assert_eq!(mul_with(Down, 1, 1), 0);
        assert_eq!(mul_with(Zero, 1 | SIGN, 1), SIGN);
        assert_eq!(div_with(Up, one, 0), INFINITY);
        assert_eq!(div_with(Zero, INFINITY, 0), INFINITY);
        assert_eq!(div_with(Zero, 0, INFINITY | SIGN), SIGN);
        assert_eq!(div_with(Zero, 0, 0), NAN64);
        assert_eq!(rcp_with(Nearest, 2f64.to_bits()), 0.5f64.to_bits());
        assert_eq!(sqrt_with(Up, SIGN), SIGN);
        assert_eq!(sqrt_with(Up, INFINITY), INFINITY);
        assert_eq!(sqrt_with(Zero, neg(one)), NAN64);
        assert_eq!(sqrt_with(Nearest, 4f64.to_bits()), 2f64.to_bits());
    }

    #[test]
    fn the_first_nan_is_kept_and_made_quiet() {
        let (p, q) = (0x7ff0_0000_0000_0005, 0xfff8_0000_0000_0007);
        let one = 1f64.to_bits();
        for mode in [Nearest, Zero] {
            assert_eq!(add_with(mode, p, q), p | QUIET);
            assert_eq!(sub_with(mode, one, q), q);
            assert_eq!(mul_with(mode, q, p), q);
            assert_eq!(fma_with(mode, one, one, p), p | QUIET);
            assert_eq!(add_with(mode, INFINITY, INFINITY | SIGN), NAN64);
            assert_eq!(mul_with(mode, INFINITY, 0), NAN64);
        }
        assert_eq!(abs(q), q & !SIGN);
        assert_eq!(rcp_with(Zero, p), p | QUIET);
        assert_eq!(copysign(SIGN, one), neg(one));
    }
}
