//! The operations and types of atomics and reductions.

use crate::decode::mods::Mods;
use heist_arith::atomic::{Op, Type};
use heist_ptx::ScalarType;

/// The operation among the modifiers.
pub(crate) fn op_of(mods: &Mods<'_>) -> Option<Op> {
    mods.all.iter().find_map(|&text| {
        Some(match text {
            "add" => Op::Add,
            "min" => Op::Min,
            "max" => Op::Max,
            "inc" => Op::Inc,
            "dec" => Op::Dec,
            "and" => Op::And,
            "or" => Op::Or,
            "xor" => Op::Xor,
            "exch" => Op::Exch,
            "cas" => Op::Cas,
            _ => return None,
        })
    })
}

/// The type of an operation.
pub(crate) fn type_of(ty: ScalarType) -> Option<Type> {
    use ScalarType::*;
    Some(match ty {
        B16 | U16 | S16 => Type::B16,
        B32 => Type::B32,
        B64 => Type::B64,
        U32 => Type::U32,
        S32 => Type::S32,
        U64 => Type::U64,
        S64 => Type::S64,
        F16 => Type::F16,
        Bf16 => Type::Bf16,
        F16x2 => Type::F16x2,
        Bf16x2 => Type::Bf16x2,
        F32 => Type::F32,
        F64 => Type::F64,
        _ => return None,
    })
}
