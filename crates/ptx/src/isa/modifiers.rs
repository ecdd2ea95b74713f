//! What modifiers say that many opcodes share.

use crate::instruction::Opcode;
use crate::types::Space;

/// The state space that an opcode names; parts of shared memory are shared memory.
pub fn space_of(op: &Opcode) -> Option<Space> {
    op.modifiers().find_map(space_named)
}

/// The state space that a modifier names, if it names one that can be accessed.
fn space_named(modifier: &str) -> Option<Space> {
    match modifier.split("::").next()? {
        "global" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        "local" => Some(Space::Local),
        "const" => Some(Space::Const),
        "param" => Some(Space::Param),
        _ => None,
    }
}

/// How many elements a `.v2`, `.v4` or `.v8` moves; one without.
pub fn lanes_of(op: &Opcode) -> Option<u32> {
    op.modifiers().find_map(|modifier| match modifier {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    })
}
