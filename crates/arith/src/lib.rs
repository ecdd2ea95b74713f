//! What PTX instructions compute, bit for bit.
//!
//! Pure functions from operand bits to result bits. There is no machine here:
//! no registers, memory, predicates or threads, and no other Heist crate. A
//! simulator decodes an instruction once, picks a function, and loops it over
//! the lanes of a warp, so the functions are small, inlinable and light on
//! branches, and every modifier that changes the arithmetic is a const
//! parameter or a separate function.
//!
//! Conventions:
//!
//! - A value is the unsigned integer that a register holds: an `f32` travels as
//!   `u32`, an `s16` as `u16`. Where a function takes native floats, its name or
//!   its documentation says so.
//! - Integer operations live in one module per PTX type, with the same names in
//!   each: [`int::u32`], [`int::s64`] and so on.
//! - Nothing panics, whatever the bits.

pub mod atomic;
pub mod cvt;
pub mod float;
pub mod int;
pub mod lanes;
#[cfg(test)]
mod sample;
pub mod tensor;
