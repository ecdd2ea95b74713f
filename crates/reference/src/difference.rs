//! The error of a result.

use std::fmt;

/// The difference between a result and its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// The norm of the difference over the norm of the reference. Where the
    /// reference is zero, the norm of the difference.
    pub norm: f64,
    /// The largest difference of one element.
    pub max: f64,
    /// Where that is.
    pub at: usize,
    /// The element there, and what it should be.
    pub found: f64,
    /// What it should be.
    pub expected: f64,
    /// Elements that were compared.
    pub count: usize,
}

impl Difference {
    /// Between a result and a reference of the same length. Another length, or
    /// an element that is not a number where the reference is one, is infinitely
    /// far; infinities and NaNs must be where the reference has them.
    pub fn between(found: &[f64], expected: &[f64]) -> Difference {
        let mut difference = Difference {
            norm: 0.0,
            max: 0.0,
            at: 0,
            found: 0.0,
            expected: 0.0,
            count: expected.len(),
        };
        if found.len() != expected.len() {
            difference.norm = f64::INFINITY;
            difference.max = f64::INFINITY;
            return difference;
        }
        let (mut error, mut size) = (0.0, 0.0);
        for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let off = if found == expected || (found.is_nan() && expected.is_nan()) {
                0.0
            } else if (found - expected).is_finite() {
                (found - expected).abs()
            } else {
                f64::INFINITY
            };
            error += off * off;
            if expected.is_finite() {
                size += expected * expected;
            }
            if off > difference.max {
                difference.max = off;
                (difference.at, difference.found, difference.expected) = (at, found, expected);
            }
        }
        let scale = if size > 0.0 { size.sqrt() } else { 1.0 };
        difference.norm = error.sqrt() / scale;
        difference
    }

    /// Whether the relative norm is at most `bound`.
    pub fn within(&self, bound: f64) -> bool {
        self.norm <= bound
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.max == 0.0 {
            return write!(f, "all of {} elements exact", self.count);
        }
        write!(
            f,
            "relative norm {:.2e} over {} elements, the largest difference {:.2e} (element {}: {} for {})",
            self.norm, self.count, self.max, self.at, self.found, self.expected
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_the_worst_element() {
        let difference = Difference::between(&[3.0, 4.0, 1.0], &[3.0, 4.0, 0.0]);
        assert_eq!((difference.max, difference.at), (1.0, 2));
        assert!((difference.norm - 0.2).abs() < 1e-12);
        assert!(difference.within(0.2) && !difference.within(0.19));
    }

    #[test]
    fn what_is_no_number_is_far() {
        assert!(Difference::between(&[f64::NAN], &[1.0]).norm.is_infinite());
        assert!(
            Difference::between(&[f64::INFINITY], &[1.0])
                .norm
                .is_infinite()
        );
        assert!(Difference::between(&[1.0], &[1.0, 2.0]).norm.is_infinite());
        let same = [f64::NEG_INFINITY, f64::NAN];
        assert_eq!(Difference::between(&same, &same).norm, 0.0);
    }
}
