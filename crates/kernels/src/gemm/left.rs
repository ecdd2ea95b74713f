//! What is left of rows or columns.

use heist_builder::Val;

/// How many there are from `at` on: zero for a warp's tile that starts outside.
pub(crate) fn left<'k>(all: Val<'k, u32>, at: Val<'k, u32>) -> Val<'k, u32> {
    all.max(at) - at
}
