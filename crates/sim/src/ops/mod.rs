//! What each family of instructions does: how it is decoded, and how it runs.
//!
//! A family is a module with a `decode` function that takes an instruction apart
//! and emits one or more [`crate::engine::executable::Instr`]s. [`decode`] finds the family by
//! the opcode's first part; to add one, write a module and name it there.

pub(crate) mod arithmetic;
pub(crate) mod barrier;
pub(crate) mod clc;
pub(crate) mod control;
pub(crate) mod copy;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod memory;
pub(crate) mod warp;
pub(crate) mod wgmma;

use crate::decode::mods::{Mods, computes, is_video};
use crate::decode::trail::Role;
use crate::decode::{Decoded, Decoder};
use arithmetic::{bits, compare, convert, float, half, integer, moves, video};
use barrier::{block, cluster, fence};
use control::{branch, call};
use copy::{bulk, cp_async, map_edit};
use heist_ptx::{Instruction, ScalarType, rule};
use memory::{atomic, hint, stack};
use warp::{exchange, registers};

/// Decodes one instruction.
pub(crate) fn decode<'m>(d: &mut Decoder<'m>, i: &'m Instruction) -> Decoded<()> {
    let (base, mods) = (i.opcode.base(), Mods::of(i));
    d.moves = base == "mov";
    d.trail.role = match base {
        "mov" => Role::Moves,
        "cvt" | "shfl" => Role::Copies,
        "add" if mods.ty().is_some_and(|ty| ty.bits() == 32) => Role::Adds,
        _ => Role::Computes,
    };
    d.trail.pure = computes(base);
    d.trail.loads = matches!(base, "ld" | "ldu" | "atom" | "ldmatrix");
    d.pipe = crate::decode::pipe::Pipe::of(i);
    match base {
        "add" | "sub" | "mul" | "mad" | "div" | "rem" | "abs" | "neg" | "min" | "max" | "fma"
        | "sad" | "mul24" | "mad24" | "dp4a" | "dp2a" | "addc" | "subc" | "madc" | "rcp"
        | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "testp" | "copysign" => {
            match mods.arithmetic_type() {
                Some(ty) if matches!(ty, ScalarType::F32 | ScalarType::F64 | ScalarType::F32x2) => {
                    float::decode(d, i, &mods, ty)
                }
                Some(ty)
                    if matches!(
                        ty,
                        ScalarType::F16 | ScalarType::F16x2 | ScalarType::Bf16 | ScalarType::Bf16x2
                    ) =>
                {
                    half::decode(d, i, &mods, ty)
                }
                Some(ty) => integer::decode(d, i, &mods, ty),
                None => Err(d.wrong(
                    rule::MISSING_MODIFIER,
                    format!("`{}` names no type", i.opcode),
                )),
            }
        }
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "popc" | "clz"
        | "brev" | "bfind" | "fns" | "bfe" | "bfi" | "bmsk" | "szext" | "prmt" => {
            bits::decode(d, i, &mods)
        }
        "setp" | "set" | "selp" | "slct" => compare::decode(d, i, &mods),
        "cvt" => convert::decode(d, i, &mods),
        "mov" | "cvta" | "isspacep" => moves::decode(d, i, &mods),
        "ld" | "ldu" => memory::decode_load(d, i, &mods),
        "st" | "red" if mods.has("async") => bulk::remote::decode_remote(d, i, &mods),
        "st" => memory::decode_store(d, i, &mods),
        "bra" | "brx" | "exit" | "ret" | "trap" | "brkpt" | "nanosleep" | "pmevent" => {
            branch::decode(d, i, &mods)
        }
        "call" => call::decode(d, i, &mods),
        "bar" | "barrier" => block::decode(d, i, &mods),
        "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => {
            exchange::decode(d, i, &mods)
        }
        "atom" | "red" => atomic::decode(d, i, &mods),
        "cp" if mods.has("bulk") => bulk::decode(d, i, &mods),
        "cp" => cp_async::decode(d, i, &mods),
        "fence" | "membar" => fence::decode(d, i, &mods),
        "mbarrier" => mbarrier::decode(d, i, &mods),
        "mapa" | "getctarank" => cluster::decode(d, i, &mods),
        "clusterlaunchcontrol" => clc::decode(d, i, &mods),
        "ldmatrix" | "stmatrix" | "movmatrix" | "mma" | "wmma" => matrix::decode(d, i, &mods),
        "tensormap" => map_edit::decode(d, i, &mods),
        "wgmma" => wgmma::decode(d, i, &mods),
        "createpolicy" | "griddepcontrol" | "prefetch" | "prefetchu" | "discard"
        | "applypriority" => hint::decode(d, i, &mods),
        "setmaxnreg" => registers::decode(d, i, &mods),
        "alloca" | "stacksave" | "stackrestore" => stack::decode(d, i, &mods),
        base if is_video(base) => video::decode(d, i, &mods),
        "tcgen05" => Err(d.unsupported(i, "fifth-generation tensor cores are not simulated")),
        "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" | "istypep" => {
            Err(d.unsupported(i, "textures and surfaces are not simulated"))
        }
        _ => Err(d.unsupported(i, "there is nothing here that can run it")),
    }
}
