//! The soft-cap inside of a kernel, and its derivative.

use heist_builder::Val;
use std::f32::consts::LOG2_E;

/// A soft-cap: a score becomes `cap * tanh(score / cap)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::attention) struct SoftCap(pub(super) f32);

impl SoftCap {
    /// What scores are multiplied with before they are capped.
    pub(in crate::attention) fn factor(self) -> f32 {
        2.0 * LOG2_E / self.0
    }

    /// `unit` times the capped score, from the score times [`factor`](SoftCap::factor).
    pub(in crate::attention) fn cap<'k>(self, power: Val<'k, f32>, unit: f32) -> Val<'k, f32> {
        let cap = self.0 * unit;
        // tanh(x) = 1 - 2 / (exp(2 x) + 1)
        (power.exp2_approx() + 1.0)
            .recip_approx()
            .mul_add(-2.0 * cap, cap)
    }

    /// The derivative, from `unit` times the capped score: one minus the square of the hyperbolic tangent.
    pub(in crate::attention) fn slope<'k>(self, capped: Val<'k, f32>, unit: f32) -> Val<'k, f32> {
        // Of a key without weight the score is minus infinity or a NaN; `max` makes a number of either.
        let tangent = (capped * (1.0 / (self.0 * unit))).max(-1.0);
        tangent.mul_add(-tangent, 1.0)
    }
}
