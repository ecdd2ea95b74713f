//! Tensor cores of a warp: `ldmatrix`, `stmatrix`, `movmatrix`, `mma`, `wmma`.
//!
//! Fragment layouts and products are in `heist-arith`. Here an instruction is decoded, the warp is
//! reconverged, and memory is accessed by the same path as any load or store, with the same checks
//! of bounds, alignment, uninitialised bytes and races.

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
