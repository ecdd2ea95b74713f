//! Exact values and their rounding into any format.
//!
//! The slow and certain path: directed rounding of `f64`, conversions between
//! unusual formats, and the reference that the fast paths are tested against.
//! Everything here is integer arithmetic.

use super::Rounding;

/// A binary format with a sign bit, an exponent field and a fraction field, the
/// all-ones exponent being infinity and NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the exponent field.
    pub exponent: u32,
    /// Bits of the fraction field.
    pub fraction: u32,
}

/// IEEE binary16.
pub const F16: Format = Format::new(5, 10);
/// The upper half of binary32.
pub const BF16: Format = Format::new(8, 7);
/// IEEE binary32.
pub const F32: Format = Format::new(8, 23);
/// IEEE binary64.
pub const F64: Format = Format::new(11, 52);

impl Format {
    /// A format of `exponent` and `fraction` bits.
    pub const fn new(exponent: u32, fraction: u32) -> Format {
        Format { exponent, fraction }
    }

    /// The exponent of one.
    pub const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The bits of positive infinity.
    pub const fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction
    }

    /// The bit that is the sign.
    pub const fn sign_bit(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// What the bits stand for.
    pub const fn unpack(self, bits: u64) -> Value {
        let negative = bits & self.sign_bit() != 0;
        let magnitude = bits & (self.sign_bit() - 1);
        if magnitude > self.infinity() {
            return Value::Nan;
        }
        if magnitude == self.infinity() {
            return Value::Infinite { negative };
        }
        let field = magnitude >> self.fraction;
        let fraction = magnitude & ((1 << self.fraction) - 1);
        let hidden = if field == 0 { 0 } else { 1 << self.fraction };
        let field = if field == 0 { 1 } else { field };
        Value::Finite(Exact {
            negative,
            mantissa: (hidden | fraction) as u128,
            exponent: field as i32 - self.bias() - self.fraction as i32,
        })
    }

    /// The bits of `value` rounded into this format. `None` is a NaN, whose bits
    /// are the caller's choice.
    pub fn pack(self, value: Value, rounding: Rounding) -> Option<u64> {
        match value {
            Value::Nan => None,
            Value::Infinite { negative } => Some(self.infinity() | self.sign(negative)),
            Value::Finite(exact) => {
                let magnitude = self.round_magnitude(exact, rounding);
                let magnitude = if magnitude < self.infinity() {
                    magnitude
                } else if overflows_to_infinity(exact.negative, rounding) {
                    self.infinity()
                } else {
                    self.infinity() - 1
                };
                Some(magnitude | self.sign(exact.negative))
            }
        }
    }

    const fn sign(self, negative: bool) -> u64 {
        if negative { self.sign_bit() } else { 0 }
    }

    /// The magnitude's bits as if the exponent field had no upper end: what is
    /// at or above the largest encoding has overflowed.
    pub fn round_magnitude(self, exact: Exact, rounding: Rounding) -> u64 {
        let Exact {
            negative,
            mantissa,
            exponent,
        } = exact;
        if mantissa == 0 {
            return 0;
        }
        let top = exponent + mantissa.ilog2() as i32;
        let lowest = 1 - self.bias();
        // The weight of the last place of the result.
        let quantum = top.max(lowest) - self.fraction as i32;
        let field = (top.max(lowest) + self.bias()) as u64;
        let rounded = shift_round(mantissa, quantum - exponent, negative, rounding);
        // The hidden bit and a carry out of rounding both move the exponent by
        // being added to its field, and a subnormal has neither.
        ((field - 1) << self.fraction) + rounded as u64
    }
}

/// Whether a finite value too large for its format rounds to infinity rather
/// than to the largest finite number.
pub const fn overflows_to_infinity(negative: bool, rounding: Rounding) -> bool {
    match rounding {
        Rounding::Nearest | Rounding::NearestAway => true,
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    }
}

/// `mantissa / 2^shift` rounded to an integer, for a value of that sign.
pub fn shift_round(mantissa: u128, shift: i32, negative: bool, rounding: Rounding) -> u128 {
    if shift <= 0 {
        return mantissa << (-shift).min(127);
    }
    let shift = shift as u32;
    let (kept, half, below) = if shift > 128 {
        (0, false, mantissa != 0)
    } else {
        let kept = if shift == 128 { 0 } else { mantissa >> shift };
        let half_bit = 1u128 << (shift - 1);
        (
            kept,
            mantissa & half_bit != 0,
            mantissa & (half_bit - 1) != 0,
        )
    };
    let up = match rounding {
        Rounding::Nearest => half && (below || kept & 1 == 1),
        Rounding::NearestAway => half,
        Rounding::Zero => false,
        Rounding::Down => negative && (half || below),
        Rounding::Up => !negative && (half || below),
    };
    kept + up as u128
}

/// What the bits of a floating-point register stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Not a number.
    Nan,
    /// An infinity.
    Infinite {
        /// Its sign.
        negative: bool,
    },
    /// A number.
    Finite(Exact),
}

/// The number `mantissa * 2^exponent`, negated if `negative`. Zeros have a sign.
///
/// Results of the operations below are jammed: where digits were lost, the last
/// bit of the mantissa is one, far below the last place of any format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// The sign, of a zero too.
    pub negative: bool,
    /// The digits.
    pub mantissa: u128,
    /// The weight of the mantissa's last bit.
    pub exponent: i32,
}

impl Exact {
    /// The value of an integer.
    pub const fn integer(negative: bool, magnitude: u64) -> Exact {
        Exact {
            negative,
            mantissa: magnitude as u128,
            exponent: 0,
        }
    }

    /// With the top bit of a nonzero mantissa at bit 125, exactly as long as the
    /// mantissa has no more than 126 bits.
    fn normalized(self) -> Exact {
        let by = self.mantissa.leading_zeros() as i32 - 2;
        Exact {
            mantissa: self.mantissa << by,
            exponent: self.exponent - by,
            ..self
        }
    }

    /// The product, exact for mantissas of up to 63 bits.
    pub fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative ^ other.negative,
            mantissa: self.mantissa * other.mantissa,
            exponent: self.exponent + other.exponent,
        }
    }

    /// The sum, jammed. The sign of an exact zero depends on the rounding.
    pub fn plus(self, other: Exact, rounding: Rounding) -> Exact {
        if self.mantissa == 0 && other.mantissa == 0 {
            let negative = if self.negative == other.negative {
                self.negative
            } else {
                rounding == Rounding::Down
            };
            return Exact {
                negative,
                mantissa: 0,
                exponent: 0,
            };
        }
        if self.mantissa == 0 {
            return other;
        }
        if other.mantissa == 0 {
            return self;
        }
        let (a, b) = (self.normalized(), other.normalized());
        let (a, b) = if (a.exponent, a.mantissa) >= (b.exponent, b.mantissa) {
            (a, b)
        } else {
            (b, a)
        };
        let distance = a.exponent - b.exponent;
        let small = if distance > 126 {
            1
        } else {
            let kept = b.mantissa >> distance;
            kept | (kept << distance != b.mantissa) as u128
        };
        if a.negative == b.negative {
            Exact {
                mantissa: a.mantissa + small,
                ..a
            }
        } else if a.mantissa == small {
            Exact {
                negative: rounding == Rounding::Down,
                mantissa: 0,
                exponent: 0,
            }
        } else {
            Exact {
                mantissa: a.mantissa - small,
                ..a
            }
        }
    }

    /// The quotient, jammed, of a nonzero number by one of up to 53 bits.
    pub fn over(self, divisor: Exact) -> Exact {
        let dividend = self.normalized();
        let quotient = dividend.mantissa / divisor.mantissa;
        let rest = dividend.mantissa % divisor.mantissa;
        Exact {
            negative: self.negative ^ divisor.negative,
            mantissa: quotient << 1 | (rest != 0) as u128,
            exponent: dividend.exponent - 1 - divisor.exponent,
        }
    }

    /// The square root of the magnitude of a nonzero number, jammed.
    pub fn square_root(self) -> Exact {
        // The digits at the top, over an even exponent.
        let Exact {
            mantissa, exponent, ..
        } = self.normalized();
        let odd = exponent & 1;
        let radicand = mantissa << odd;
        let root = radicand.isqrt();
        Exact {
            negative: self.negative,
            mantissa: root << 1 | (root * root != radicand) as u128,
            exponent: (exponent - odd) / 2 - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Random, floats64};
    use Rounding::*;

    fn finite(bits: u64) -> Exact {
        match F64.unpack(bits) {
            Value::Finite(exact) => exact,
            other => panic!("{other:?}"),
        }
    }

    fn packed(exact: Exact, rounding: Rounding) -> f64 {
        f64::from_bits(F64.pack(Value::Finite(exact), rounding).expect("a number"))
    }

    #[test]
    fn nearest_agrees_with_the_host() {
        let all: Vec<f64> = floats64()
            .into_iter()
            .map(f64::from_bits)
            .filter(|x| x.is_finite())
            .collect();
        for &a in &all {
            let x = finite(a.to_bits());
            assert_eq!(packed(x, Nearest).to_bits(), a.to_bits());
            if a > 0.0 {
                assert_eq!(
                    packed(x.square_root(), Nearest).to_bits(),
                    a.sqrt().to_bits(),
                    "{a:e}"
                );
            }
            assert_eq!(
                F32.pack(Value::Finite(x), Nearest),
                Some(u64::from((a as f32).to_bits()))
            );
            for &b in &all {
                let y = finite(b.to_bits());
                assert_eq!(
                    packed(x.plus(y, Nearest), Nearest).to_bits(),
                    (a + b).to_bits()
                );
                assert_eq!(packed(x.times(y), Nearest).to_bits(), (a * b).to_bits());
                if a != 0.0 && b != 0.0 {
                    assert_eq!(packed(x.over(y), Nearest).to_bits(), (a / b).to_bits());
                }
                let c = all[(a.to_bits() ^ b.to_bits()) as usize % all.len()];
                let sum = x.times(y).plus(finite(c.to_bits()), Nearest);
                assert_eq!(
                    packed(sum, Nearest).to_bits(),
                    a.mul_add(b, c).to_bits(),
                    "{a:e}*{b:e}+{c:e}"
                );
            }
        }
    }

    #[test]
    fn directed_results_bracket_and_touch() {
        let mut random = Random(9);
        for _ in 0..20_000 {
            let exact = Exact {
                negative: random.next() & 1 == 1,
                mantissa: u128::from(random.next()) << 30 | u128::from(random.next() >> 40),
                exponent: (random.next() % 2200) as i32 - 1180,
            };
            let [down, up, zero, near] = [Down, Up, Zero, Nearest].map(|r| packed(exact, r));
            assert!(down == up || down.next_up() == up);
            assert_eq!(
                zero.to_bits(),
                if exact.negative { up } else { down }.to_bits()
            );
            assert!(near.to_bits() == down.to_bits() || near.to_bits() == up.to_bits());
        }
    }

    #[test]
    fn rounding_at_the_ends_of_a_format() {
        let half = |bits| finite(f64::to_bits(bits));
        let f16 = |x: f64, r| F16.pack(Value::Finite(half(x)), r);
        assert_eq!(f16(65504.0, Nearest), Some(0x7bff));
        assert_eq!(f16(65519.9, Nearest), Some(0x7bff));
        assert_eq!(f16(65520.0, Nearest), Some(0x7c00));
        assert_eq!(f16(1e9, Zero), Some(0x7bff));
        assert_eq!(f16(-1e9, Up), Some(0xfbff));
        assert_eq!(f16(-1e9, Down), Some(0xfc00));
        assert_eq!(f16(2f64.powi(-25), Nearest), Some(0));
        assert_eq!(f16(2f64.powi(-25), NearestAway), Some(1));
        assert_eq!(f16(2f64.powi(-25) * 1.01, Nearest), Some(1));
        assert_eq!(f16(1e-300, Up), Some(1));
        assert_eq!(f16(-1e-300, Up), Some(0x8000));
        assert_eq!(f16(1.0 + 2f64.powi(-11), Nearest), Some(0x3c00));
        assert_eq!(f16(1.0 + 3.0 * 2f64.powi(-11), Nearest), Some(0x3c02));
    }
}
