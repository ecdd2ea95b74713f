//! Conversions: `cvt` and `cvt.pack`.
//!
//! [`integer`] between integers, [`mixed`] between integers and floats,
//! [`float`] between the float formats that have arithmetic (and `tf32`),
//! [`tiny`] to and from the 8-, 6- and 4-bit formats, [`stochastic`] for `.rs`.
//!
//! A value travels in the low bits of a `u64`, so that one function serves every
//! pair of types; the types are arguments, the same for every lane of a warp. The
//! pairs that occur in hot loops have functions of their own next to the general
//! one.

pub mod float;
pub mod integer;
pub mod mixed;
pub mod stochastic;
pub mod tiny;

pub use float::FloatType;
pub use integer::IntType;
