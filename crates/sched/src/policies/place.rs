//! Policies that look at who or where the block is.

use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use heist_builder::Bool;

/// The first `part` of the launched blocks steal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction {
    /// From 0 (none) to 1 (all).
    pub part: f64,
}

impl Fraction {
    fn belongs<'k>(&self, cx: &PolicyCx<'k>) -> Bool<'k> {
        if self.part >= 1.0 {
            return cx.yes();
        }
        // A fraction of 2^32, so that no rounding depends on the grid.
        let scaled = (self.part.max(0.0) * 4_294_967_296.0) as u32;
        cx.worker().lt(cx.workers().mul_high(scaled))
    }
}

impl Policy for Fraction {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        self.belongs(cx)
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        self.belongs(cx)
    }
    fn name(&self) -> String {
        if self.part == 0.5 {
            "first-half".into()
        } else {
            format!("fraction({})", self.part)
        }
    }
    fn constant(&self) -> Option<bool> {
        if self.part >= 1.0 {
            Some(true)
        } else if self.part > 0.0 {
            None
        } else {
            Some(false)
        }
    }
}

/// Blocks on the first `sms` multiprocessors steal. On the others every block
/// ends with its own tile, which leaves gaps in which a kernel that runs beside
/// this one gets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLimit {
    /// How many multiprocessors.
    pub sms: u32,
}

impl Policy for SmLimit {
    type State<'k> = ();
    fn init<'k>(&self, _: &PolicyCx<'k>) {}
    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, (): &()) -> Bool<'k> {
        cx.sm().lt(self.sms)
    }
    fn keep_going_after_success<'k>(&self, cx: &PolicyCx<'k>, (): &(), _: TileId<'k>) -> Bool<'k> {
        cx.sm().lt(self.sms)
    }
    fn name(&self) -> String {
        format!("sm-limit({})", self.sms)
    }
}
