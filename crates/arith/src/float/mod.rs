//! Floating-point instructions.
//!
//! One module per PTX type, [`f32`], [`f64`], [`f16`], [`bf16`], with the same
//! names in each where the operations are the same. The plain functions round to
//! nearest even, as `.rn` does; those ending in `_with` take a [`Rounding`].
//! `FTZ` and `SAT` are the modifiers of those names. Packed registers are in
//! [`f16x2`], [`bf16x2`] and [`f32x2`]; [`mixed`] has `f32` arithmetic on halves;
//! [`compare`], [`minmax`] and [`approx`] are by subject.
//!
//! # Not a number
//!
//! | result type | an arithmetic instruction gives |
//! |---|---|
//! | `f32` | always [`NAN32`], `0x7fffffff`: payloads and signs are lost |
//! | `f16`, `bf16` | always [`NAN16`], `0x7fff` |
//! | `f64`, a NaN among the operands | the first such operand in the order a, b, c, made quiet |
//! | `f64`, none (0 * inf, inf - inf, ...) | [`NAN64`], `0xfff8000000000000` |
//!
//! For `f16` and `bf16` PTX says so; for `f32` it leaves the NaN open, and this is
//! what hardware gives. For `f64` it promises that payloads are kept but not whose;
//! a comparison with hardware should accept any NaN there. `abs` and `neg` are additions in
//! hardware and follow the table; `copysign`, `selp`, moves and `bf16` to `f32`
//! conversion (a shift) keep all bits.
//!
//! # Subnormals
//!
//! `FTZ` replaces subnormal operands with zeros of their sign, and a result that,
//! rounded to its full precision as if there were no least exponent, is below the
//! least normal number. (That is how ptxas folds constants. It differs from
//! flushing what is subnormal only next to that number.)

pub mod approx;
pub mod compare;
pub mod f32;
pub mod f64;
pub mod minmax;
mod narrow;
mod packed;
pub mod soft;

pub use narrow::{OOB_NAN, bf16, bf16x2, f16, f16x2};
pub use packed::{f32x2, mixed};

/// How a result is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// `.rn`, `.rni`: to the nearest, ties to even.
    Nearest,
    /// `.rna`: to the nearest, ties away from zero.
    NearestAway,
    /// `.rz`, `.rzi`: towards zero.
    Zero,
    /// `.rm`, `.rmi`: towards minus infinity.
    Down,
    /// `.rp`, `.rpi`: towards plus infinity.
    Up,
}

/// The NaN that `f32` instructions give.
pub const NAN32: u32 = 0x7fff_ffff;
/// The NaN that `f64` instructions give when no operand was one.
pub const NAN64: u64 = 0xfff8_0000_0000_0000;
/// The NaN that `f16` and `bf16` instructions give.
pub const NAN16: u16 = 0x7fff;
