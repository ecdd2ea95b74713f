//! `tcgen05`: tensor cores that work on a memory of their own.
//!
//! An operation on tensor memory is computed when it is started; its result may be read only by
//! threads that have observed its completion ([`crate::access::tensor_memory`]).

mod allocate;
mod commit;
mod copy;
mod flight;
mod issue;
mod multiply;
mod product;
mod sparse;
mod transfer;

use crate::decode::mods::Mods;
use crate::decode::{Decoded, Decoder};
use heist_ptx::Instruction;

pub(crate) fn decode(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    d.tracks_registers = true;
    match mods.all.first().copied().unwrap_or("") {
        "alloc" | "dealloc" | "relinquish_alloc_permit" => allocate::decode(d, i, mods),
        "ld" | "st" | "wait::ld" | "wait::st" => transfer::decode(d, i, mods),
        "cp" | "shift" => copy::decode(d, i, mods),
        "mma" => multiply::decode(d, i, mods),
        "commit" | "fence::before_thread_sync" | "fence::after_thread_sync" => {
            commit::decode(d, i, mods)
        }
        other => Err(d.unsupported(i, &format!("there is no `tcgen05.{other}` here"))),
    }
}
