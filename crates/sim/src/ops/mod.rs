//! The families of instructions: decoding and execution.
//!
//! A family is a module with a `decode` function that takes an instruction apart
//! and emits one or more [`crate::engine::executable::Instr`]s. [`decode`] finds the family in the
//! table of instructions ([`heist_ptx::isa`]); to add one, write a module and name it there.

pub(crate) mod arithmetic;
pub(crate) mod barrier;
pub(crate) mod clc;
pub(crate) mod control;
pub(crate) mod copy;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod memory;
pub(crate) mod tcgen05;
pub(crate) mod texture;
pub(crate) mod warp;
pub(crate) mod wgmma;

use crate::decode::mods::Mods;
use crate::decode::trail::Role;
use crate::decode::{Decoded, Decoder};
use arithmetic::{bits, compare, convert, float, half, integer, moves, video};
use barrier::{block, cluster, fence};
use control::{branch, call};
use copy::{bulk, cp_async, map_edit};
use heist_ptx::isa::{Family, Memory, Value};
use heist_ptx::{Instruction, ScalarType, rule};
use memory::{atomic, hint, stack};
use warp::{exchange, registers};

/// Decodes one instruction.
pub(crate) fn decode<'m>(d: &mut Decoder<'m>, i: &'m Instruction) -> Decoded<()> {
    let mods = Mods::of(i);
    let Some(row) = i.opcode.row() else {
        return Err(d.unsupported(i, "there is nothing here that can run it"));
    };
    d.moves = row.value == Value::Moved;
    d.trail.role = match row.value {
        Value::Moved => Role::Moves,
        Value::Converted => Role::Copies,
        Value::Sum if mods.ty().is_some_and(|ty| ty.bits() == 32) => Role::Adds,
        _ => Role::Computes,
    };
    d.trail.pure = row.value.is_pure();
    d.trail.derives = d.trail.pure
        && matches!(
            row.family,
            Family::Arithmetic | Family::Logic | Family::Convert | Family::Move
        );
    d.trail.mixes = row.family == Family::Matrix;
    d.trail.decided = row.value == Value::Decided;
    d.trail.loads = matches!(row.memory_of(&i.opcode), Memory::Load | Memory::Update);
    d.pipe = crate::decode::pipe::Pipe::of(i);
    match row.family {
        Family::Arithmetic => arithmetic(d, i, &mods),
        Family::Logic => bits::decode(d, i, &mods),
        Family::Compare => compare::decode(d, i, &mods),
        Family::Convert => convert::decode(d, i, &mods),
        Family::Move => moves::decode(d, i, &mods),
        Family::Load => memory::decode_load(d, i, &mods),
        Family::Store | Family::Atomic if mods.has("async") => {
            bulk::remote::decode_remote(d, i, &mods)
        }
        Family::Store => memory::decode_store(d, i, &mods),
        Family::Atomic => atomic::decode(d, i, &mods),
        Family::Control => branch::decode(d, i, &mods),
        Family::Call => call::decode(d, i, &mods),
        Family::Barrier => block::decode(d, i, &mods),
        Family::Warp => exchange::decode(d, i, &mods),
        Family::Copy if mods.has("bulk") => bulk::decode(d, i, &mods),
        Family::Copy => cp_async::decode(d, i, &mods),
        Family::Fence => fence::decode(d, i, &mods),
        Family::Mbarrier => mbarrier::decode(d, i, &mods),
        Family::Cluster => cluster::decode(d, i, &mods),
        Family::LaunchControl => clc::decode(d, i, &mods),
        Family::Matrix => matrix::decode(d, i, &mods),
        Family::TensorMap => map_edit::decode(d, i, &mods),
        Family::Warpgroup => wgmma::decode(d, i, &mods),
        Family::Hint => hint::decode(d, i, &mods),
        Family::RegisterPool => registers::decode(d, i, &mods),
        Family::Stack => stack::decode(d, i, &mods),
        Family::Video => video::decode(d, i, &mods),
        Family::TensorMemory => tcgen05::decode(d, i, &mods),
        Family::Texture => texture::decode(d, i, &mods),
        Family::Multimem | Family::Internal => Err(d.unsupported(i, row.tested.reason())),
    }
}

/// Arithmetic is dispatched by its type.
fn arithmetic(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    use ScalarType::*;
    match mods.arithmetic_type() {
        Some(ty @ (F32 | F64 | F32x2)) => float::decode(d, i, mods, ty),
        Some(ty @ (F16 | F16x2 | Bf16 | Bf16x2)) => half::decode(d, i, mods, ty),
        Some(ty) => integer::decode(d, i, mods, ty),
        None => Err(d.wrong(
            rule::MISSING_MODIFIER,
            format!("`{}` names no type", i.opcode),
        )),
    }
}
