//! Whether two buffers hold the same, and where they do not.
//!
//! Without a tolerance, bits count, with one exception: an expected `nan` is
//! any NaN that something computed. The poison of an unwritten output is a NaN too, but never
//! matches.

use heist_launch::{Buffer, ElementType};
use std::fmt;

/// How close is close enough. The parts are alternatives: an element passes when
/// it is within the ulps, or within `abs + rel * |expected|`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Units in the last place of the element's type.
    pub ulp: Option<u64>,
    /// Relative to the expected value.
    pub rel: Option<f64>,
    /// Absolute.
    pub abs: Option<f64>,
}

impl Tolerance {
    /// Bit for bit.
    pub const EXACT: Tolerance = Tolerance {
        ulp: None,
        rel: None,
        abs: None,
    };

    fn accepts(self, ty: ElementType, expected: u64, found: u64) -> bool {
        if expected == found {
            return true;
        }
        if ty.is_nan(expected) || ty.is_nan(found) {
            // Only the plain spelling stands for every NaN; bits stand for themselves.
            let any_nan = ty.parse_bits("nan") == Ok(expected);
            return any_nan && ty.is_nan(found) && found != ty.poison();
        }
        if self
            .ulp
            .is_some_and(|ulp| distance(ty, expected, found) <= ulp)
        {
            return true;
        }
        if self.rel.is_none() && self.abs.is_none() {
            return false;
        }
        let (expected, found) = (ty.to_f64(expected), ty.to_f64(found));
        let bound = self.abs.unwrap_or(0.0) + self.rel.unwrap_or(0.0) * expected.abs();
        // Infinities were equal above or are as far apart as can be.
        expected.is_finite() && found.is_finite() && (found - expected).abs() <= bound
    }
}

/// How many values of the type lie between two values.
fn distance(ty: ElementType, a: u64, b: u64) -> u64 {
    let ordered = |bits: u64| {
        let bits = bits & ty.mask();
        if ty.is_float() {
            // Sign and magnitude to a line of integers, on which both zeros are 0.
            let magnitude = (bits & (ty.mask() >> 1)) as i128;
            if bits >> (ty.bits() - 1) == 1 {
                -magnitude
            } else {
                magnitude
            }
        } else if ty.is_signed() {
            i128::from(ty.sign_extend(bits))
        } else {
            i128::from(bits)
        }
    };
    u64::try_from(ordered(a).abs_diff(ordered(b))).unwrap_or(u64::MAX)
}

/// Where two buffers differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The type that both were read as.
    pub ty: ElementType,
    /// How many elements were compared.
    pub elements: usize,
    /// How many differ.
    pub wrong: usize,
    /// The first few: index, expected, found.
    pub first: Vec<(usize, u64, u64)>,
}

const SHOWN: usize = 4;

/// Compares what was found with what was expected, as elements of the expected
/// type; `None` when they agree. Their lengths in bytes must be equal.
pub fn compare(expected: &Buffer, found: &Buffer, tolerance: Tolerance) -> Option<Difference> {
    compare_by(expected, found, |ty, a, b| tolerance.accepts(ty, a, b))
}

/// Compares what two devices computed: any two NaNs are the same.
pub fn compare_devices(one: &Buffer, other: &Buffer, tolerance: Tolerance) -> Option<Difference> {
    compare_by(one, other, |ty, a, b| {
        let both_nan = ty.is_nan(a) && ty.is_nan(b) && (a == ty.poison()) == (b == ty.poison());
        both_nan || tolerance.accepts(ty, a, b)
    })
}

fn compare_by(
    expected: &Buffer,
    found: &Buffer,
    same: impl Fn(ElementType, u64, u64) -> bool,
) -> Option<Difference> {
    let ty = expected.ty();
    let element = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    };
    let of_found = found.bytes().chunks_exact(ty.bytes()).map(element);
    let mut difference = Difference {
        ty,
        elements: expected.len(),
        // A length that differs is as many wrong elements, a part of one included.
        wrong: expected
            .len()
            .abs_diff(found.bytes().len().div_ceil(ty.bytes())),
        first: Vec::new(),
    };
    for (index, (a, b)) in expected.iter().zip(of_found).enumerate() {
        if !same(ty, a, b) {
            difference.wrong += 1;
            if difference.first.len() < SHOWN {
                difference.first.push((index, a, b));
            }
        }
    }
    (difference.wrong > 0).then_some(difference)
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ty = self.ty;
        write!(f, "{} of {} elements differ", self.wrong, self.elements)?;
        for (index, expected, found) in &self.first {
            let width = ty.bytes() * 2 + 2;
            write!(
                f,
                "\n  [{index}] expected {} ({expected:#0width$x}), found ",
                ty.spell(*expected)
            )?;
            if *found == ty.poison() {
                f.write_str("nothing: it was never written")?;
            } else {
                write!(f, "{} ({found:#0width$x})", ty.spell(*found))?;
            }
        }
        if self.wrong > self.first.len() {
            write!(f, "\n  and {} more", self.wrong - self.first.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_launch::parse_values;
    use proptest::prelude::*;

    fn buffer(text: &str) -> Buffer {
        parse_values(text).unwrap()
    }

    fn same(a: &str, b: &str, tolerance: Tolerance) -> bool {
        compare(&buffer(a), &buffer(b), tolerance).is_none()
    }

    const EXACT: Tolerance = Tolerance::EXACT;

    #[test]
    fn bits_count() {
        assert!(same("f32:[1,-0.0,inf]", "f32:[1,-0.0,inf]", EXACT));
        assert!(!same("f32:[0.0]", "f32:[-0.0]", EXACT));
        assert!(!same("u8:[1]", "u8:[2]", EXACT));
    }

    #[test]
    fn nan_is_any_computed_nan() {
        assert!(same("f32:[nan]", "f32:[0x7fffffff]", EXACT));
        assert!(!same("f32:[0x7f800001]", "f32:[0x7fffffff]", EXACT));
        assert!(!same("f32:[nan]", "f32:[1]", EXACT));
        assert!(!same(
            "f32:[1]",
            "f32:[nan]",
            Tolerance {
                rel: Some(1.0),
                ..EXACT
            }
        ));
        let unwritten = Buffer::poisoned(ElementType::F32, 1);
        assert!(compare(&buffer("f32:[nan]"), &unwritten, EXACT).is_some());
    }

    #[test]
    fn tolerances() {
        let ulp = |ulp| Tolerance {
            ulp: Some(ulp),
            ..EXACT
        };
        assert!(same("f32:[0x3f800000]", "f32:[0x3f800002]", ulp(2)));
        assert!(!same("f32:[0x3f800000]", "f32:[0x3f800003]", ulp(2)));
        assert!(same("f32:[0x00000001]", "f32:[0x80000001]", ulp(2)));
        assert!(same("f16:[1.0]", "f16:[0x3c01]", ulp(1)));
        assert!(same("s32:[-1]", "s32:[1]", ulp(2)));
        let rel = |rel| Tolerance {
            rel: Some(rel),
            ..EXACT
        };
        assert!(same("f64:[1000]", "f64:[1000.5]", rel(1e-3)));
        assert!(!same("f64:[1000]", "f64:[1002]", rel(1e-3)));
        assert!(!same("f64:[inf]", "f64:[1e300]", rel(1e-3)));
        assert!(!same("f64:[1]", "f64:[inf]", rel(1e-3)));
        let abs = |abs| Tolerance {
            abs: Some(abs),
            ..EXACT
        };
        assert!(same("f32:[0]", "f32:[1e-7]", abs(1e-6)));
        assert!(!same("f32:[0]", "f32:[1e-5]", abs(1e-6)));
    }

    #[test]
    fn the_message_shows_the_first_few() {
        let text = compare(&buffer("u16:[0*9]"), &buffer("u16:[0,1..9]"), EXACT)
            .unwrap()
            .to_string();
        assert!(
            text.starts_with("8 of 9 elements differ\n  [1] expected 0 (0x0000), found 1 (0x0001)")
        );
        assert!(text.ends_with("and 4 more"));
        let unwritten = Buffer::poisoned(ElementType::U32, 1);
        let text = compare(&buffer("u32:[7]"), &unwritten, EXACT)
            .unwrap()
            .to_string();
        assert!(text.contains("never written"), "{text}");
    }

    #[test]
    fn lengths_count() {
        assert!(!same("u8:[1,2]", "u8:[1]", EXACT));
        assert!(!same("u16:[1]", "u8:[1,0,0]", EXACT));
        assert!(same("u16:[1]", "u8:[1,0]", EXACT));
    }

    proptest! {
        #[test]
        fn distance_is_a_distance(a in any::<u32>(), b in any::<u32>(), c in any::<u32>()) {
            let d = |a: u32, b: u32| distance(ElementType::F32, a.into(), b.into());
            prop_assert_eq!(d(a, a), 0);
            prop_assert_eq!(d(a, b), d(b, a));
            prop_assert!(d(a, c) <= d(a, b) + d(b, c));
        }
    }
}
