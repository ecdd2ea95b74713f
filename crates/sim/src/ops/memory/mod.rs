//! Loads, stores, atomics, the stack, and hints to the caches.

pub(crate) mod atomic;
pub(crate) mod hint;
mod load;
pub(crate) mod reduction;
pub(crate) mod stack;
mod store;
mod word;

pub(crate) use load::check_read_only;

use crate::decode::mods::Mods;
use crate::decode::{Decoded, Decoder};
use heist_ptx::Instruction;

/// `ld` and `ldu`.
pub(crate) fn decode_load(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    load::decode(d, i, mods, word::load)
}

/// `st`.
pub(crate) fn decode_store(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    store::decode(d, i, mods, word::store)
}
