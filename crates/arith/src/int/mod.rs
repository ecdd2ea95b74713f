//! Integer instructions.
//!
//! One module per PTX type ([`u16`], [`s16`], [`u32`], [`s32`], [`u64`],
//! [`s64`]) holds what depends on the type; the rest is by subject: [`carry`]
//! (extended precision), [`bits`] (logic, fields, counting), [`permute`] (bytes
//! and funnel shifts), [`packed`] (two or four small integers in a register),
//! [`video`] and [`video_simd`].
//!
//! Division by zero does not trap. PTX leaves the result open; the code that
//! ptxas emits for every width and sign gives all ones, for the quotient and
//! for the remainder alike, and so do [`u32::div`] and its siblings. The most
//! negative number divided by minus one wraps to itself, with remainder zero.

pub mod bits;
pub mod carry;
pub mod packed;
pub mod permute;
mod scalar;
pub mod video;
pub mod video_simd;

pub use scalar::{IntCmp, s16, s32, s64, u16, u32, u64};
