//! Tensor cores of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma`, `wmma`.
//!
//! Who holds which element and what the products are is `heist-arith`'s. Here an
//! instruction is taken apart, the warp is brought together, and memory is touched
//! by the same path as any load or store, so that bounds, alignment, unwritten
//! bytes and races are found as they are there.

mod fragment;
mod mma;
pub(crate) mod operands;
mod rows;
mod wmma;

use crate::decode::mods::Mods;
use crate::decode::{Decoded, Decoder};
use heist_ptx::Instruction;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    match i.opcode.base() {
        "ldmatrix" => rows::load(d, i, mods),
        "stmatrix" => rows::store(d, i, mods),
        "movmatrix" => rows::transpose(d, i, mods),
        "mma" => mma::decode(d, i, mods),
        _ => wmma::decode(d, i, mods),
    }
}
