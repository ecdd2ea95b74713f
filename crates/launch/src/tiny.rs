//! Floats of eight bits, as GPUs have them.

/// A sign, some bits of exponent, and the rest a fraction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiny {
    fraction: i32,
    bias: i32,
    /// The bits of the largest number.
    largest: u8,
    /// The bits of infinity, where there is one.
    infinity: Option<u8>,
}

pub(crate) const E4M3: Tiny = Tiny {
    fraction: 3,
    bias: 7,
    largest: 0x7e,
    infinity: None,
};

pub(crate) const E5M2: Tiny = Tiny {
    fraction: 2,
    bias: 15,
    largest: 0x7b,
    infinity: Some(0x7c),
};

const SIGN: u8 = 0x80;
const NAN: u8 = 0x7f;

impl Tiny {
    /// The number that these bits are.
    pub(crate) fn decode(&self, bits: u8) -> f64 {
        let magnitude = bits & !SIGN;
        let value = if Some(magnitude) == self.infinity {
            f64::INFINITY
        } else if magnitude > self.largest {
            f64::NAN
        } else {
            let exponent = i32::from(magnitude >> self.fraction);
            let fraction = i32::from(magnitude) - (exponent << self.fraction);
            let whole = if exponent == 0 { 0 } else { 1 << self.fraction };
            let scale = exponent.max(1) - self.bias - self.fraction;
            f64::from(whole + fraction) * f64::from(scale).exp2()
        };
        if bits & SIGN == 0 { value } else { -value }
    }

    /// The bits of the nearest number, even ones where two are as near. What is larger
    /// than the largest becomes the largest.
    pub(crate) fn encode(&self, value: f64) -> u8 {
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        if value.is_nan() {
            return NAN;
        }
        if value.is_infinite() {
            return sign | self.infinity.unwrap_or(self.largest);
        }
        // Small numbers all have the step of the smallest exponent.
        let exponent = ((value.abs().to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        let steps = value.abs() * f64::from(self.fraction - exponent).exp2();
        let above = f64::from((exponent + self.bias - 1) << self.fraction);
        let bits = (steps.round_ties_even() + above).min(self.largest.into());
        sign | bits as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_reads_back_and_ties_go_to_even() {
        for tiny in [E4M3, E5M2] {
            for bits in 0..=u8::MAX {
                let value = tiny.decode(bits);
                if !value.is_nan() {
                    assert_eq!(tiny.encode(value), bits, "{tiny:?} {bits:#x}");
                }
            }
            for bits in 0..tiny.largest {
                let (low, high) = (tiny.decode(bits), tiny.decode(bits + 1));
                let middle = (low + high) / 2.0;
                assert_eq!(tiny.encode(middle), bits + (bits & 1), "{tiny:?} {middle}");
                assert_eq!(tiny.encode(low + (high - low) * 0.51), bits + 1);
                assert_eq!(tiny.encode(-(low + (high - low) * 0.49)), SIGN | bits);
            }
        }
    }

    #[test]
    fn known_ones() {
        assert_eq!(E4M3.decode(0x38), 1.0);
        assert_eq!(E4M3.decode(0x7e), 448.0);
        assert_eq!(E4M3.encode(1e9), 0x7e);
        assert!(E4M3.decode(0xff).is_nan());
        assert_eq!(E5M2.decode(0x3c), 1.0);
        assert_eq!(E5M2.decode(0x7b), 57344.0);
        assert_eq!(E5M2.decode(0xfc), f64::NEG_INFINITY);
        assert_eq!(E5M2.encode(1e9), 0x7b);
        assert_eq!(E4M3.decode(0x01), 2f64.powi(-9));
    }
}
