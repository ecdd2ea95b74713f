//! What atomic operations store: `atom`, `red`, and the reductions of bulk copies.
//!
//! The vector forms are these, element by element. The memory and its order are
//! the caller's.

use crate::float::{bf16, bf16x2, f16, f16x2, f32 as single, f64 as double};
use crate::int;

/// An atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Op {
    Add,
    Min,
    Max,
    /// Up to the operand, then to zero.
    Inc,
    /// Down to zero, then to the operand.
    Dec,
    And,
    Or,
    Xor,
    Exch,
    /// Swaps in the second operand where the first is there.
    Cas,
}

/// The type of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Type {
    B16,
    B32,
    B64,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
}

impl Type {
    /// Bytes in memory.
    pub const fn bytes(self) -> u32 {
        match self {
            Type::B16 | Type::F16 | Type::Bf16 => 2,
            Type::B64 | Type::U64 | Type::S64 | Type::F64 => 8,
            _ => 4,
        }
    }
}

/// Whether `f32` addition flushes subnormals to zero: PTX says that it does in
/// global memory and does not in shared memory. No other type is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subnormals {
    /// As in global memory.
    Flushed,
    /// As in shared memory.
    Kept,
}

/// What is stored where `old` was: `b` is the operand, and for [`Op::Cas`] `c` is
/// what replaces an `old` equal to `b`. Values are in the low bits. `None` if there
/// is no such operation on the type.
#[inline]
pub fn apply(op: Op, of: Type, subnormals: Subnormals, old: u64, b: u64, c: u64) -> Option<u64> {
    let (o32, b32) = (old as u32, b as u32);
    let (o16, b16) = (old as u16, b as u16);
    let mask = u64::MAX >> (64 - 8 * of.bytes());
    let result = match (op, of) {
        (Op::Exch, _) => b,
        (Op::Cas, _) if (old ^ b) & mask == 0 => c,
        (Op::Cas, _) => old,
        (Op::And, Type::B32 | Type::B64) => old & b,
        (Op::Or, Type::B32 | Type::B64) => old | b,
        (Op::Xor, Type::B32 | Type::B64) => old ^ b,
        (Op::Add, Type::U32 | Type::S32 | Type::U64 | Type::S64) => old.wrapping_add(b),
        (Op::Add, Type::F32) => match subnormals {
            Subnormals::Flushed => single::add::<true, false>(o32, b32).into(),
            Subnormals::Kept => single::add::<false, false>(o32, b32).into(),
        },
        (Op::Add, Type::F64) => double::add(old, b),
        (Op::Add, Type::F16) => f16::add::<false, false>(o16, b16).into(),
        (Op::Add, Type::Bf16) => bf16::add::<false, false>(o16, b16).into(),
        (Op::Add, Type::F16x2) => f16x2::add::<false, false>(o32, b32).into(),
        (Op::Add, Type::Bf16x2) => bf16x2::add::<false, false>(o32, b32).into(),
        (Op::Min, Type::U32) => int::u32::min(o32, b32).into(),
        (Op::Min, Type::S32) => int::s32::min(o32, b32).into(),
        (Op::Min, Type::U64) => int::u64::min(old, b),
        (Op::Min, Type::S64) => int::s64::min(old, b),
        (Op::Min, Type::F16) => f16::min::<false, false, false>(o16, b16).into(),
        (Op::Min, Type::Bf16) => bf16::min::<false, false, false>(o16, b16).into(),
        (Op::Min, Type::F16x2) => f16x2::min::<false, false, false>(o32, b32).into(),
        (Op::Min, Type::Bf16x2) => bf16x2::min::<false, false, false>(o32, b32).into(),
        (Op::Max, Type::U32) => int::u32::max(o32, b32).into(),
        (Op::Max, Type::S32) => int::s32::max(o32, b32).into(),
        (Op::Max, Type::U64) => int::u64::max(old, b),
        (Op::Max, Type::S64) => int::s64::max(old, b),
        (Op::Max, Type::F16) => f16::max::<false, false, false>(o16, b16).into(),
        (Op::Max, Type::Bf16) => bf16::max::<false, false, false>(o16, b16).into(),
        (Op::Max, Type::F16x2) => f16x2::max::<false, false, false>(o32, b32).into(),
        (Op::Max, Type::Bf16x2) => bf16x2::max::<false, false, false>(o32, b32).into(),
        // Bulk reductions have them for 64 bits too.
        (Op::Inc, Type::U32 | Type::U64) => {
            if old & mask >= b & mask {
                0
            } else {
                old + 1
            }
        }
        (Op::Dec, Type::U32 | Type::U64) => {
            if old & mask == 0 || old & mask > b & mask {
                b
            } else {
                old - 1
            }
        }
        _ => return None,
    };
    Some(result & mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::NAN32;
    use Subnormals::{Flushed, Kept};

    fn run(op: Op, of: Type, old: u64, b: u64) -> u64 {
        apply(op, of, Kept, old, b, 0).expect("an operation of PTX")
    }

    #[test]
    fn counting_wraps_at_the_operand() {
        assert_eq!(run(Op::Inc, Type::U32, 3, 5), 4);
        assert_eq!(run(Op::Inc, Type::U32, 5, 5), 0);
        assert_eq!(run(Op::Inc, Type::U32, 9, 5), 0);
        assert_eq!(run(Op::Dec, Type::U32, 3, 5), 2);
        assert_eq!(run(Op::Dec, Type::U32, 0, 5), 5);
        assert_eq!(run(Op::Dec, Type::U32, 9, 5), 5);
        assert_eq!(
            run(Op::Inc, Type::U32, 0xffff_fffe, 0xffff_ffff),
            0xffff_ffff
        );
    }

    #[test]
    fn swapping() {
        assert_eq!(run(Op::Exch, Type::B32, 1, 2), 2);
        assert_eq!(apply(Op::Cas, Type::B32, Kept, 7, 7, 9), Some(9));
        assert_eq!(apply(Op::Cas, Type::B32, Kept, 7, 8, 9), Some(7));
        // Only the bits of the type are compared.
        assert_eq!(apply(Op::Cas, Type::B16, Kept, 0x1_0007, 7, 9), Some(9));
        assert_eq!(
            apply(Op::Cas, Type::B64, Kept, 1 << 40, 1 << 40, 3),
            Some(3)
        );
    }

    #[test]
    fn integers_and_bits() {
        assert_eq!(run(Op::Add, Type::U32, 0xffff_ffff, 2), 1);
        assert_eq!(run(Op::Add, Type::S64, u64::MAX, 2), 1);
        assert_eq!(run(Op::Min, Type::S32, 0xffff_ffff, 1), 0xffff_ffff);
        assert_eq!(run(Op::Min, Type::U32, 0xffff_ffff, 1), 1);
        assert_eq!(run(Op::Max, Type::S64, u64::MAX, 1), 1);
        assert_eq!(run(Op::And, Type::B32, 12, 10), 8);
        assert_eq!(run(Op::Or, Type::B64, 12, 10), 14);
        assert_eq!(run(Op::Xor, Type::B32, 12, 10), 6);
    }

    #[test]
    fn floats() {
        let one = u64::from(1f32.to_bits());
        assert_eq!(run(Op::Add, Type::F32, one, one), u64::from(2f32.to_bits()));
        assert_eq!(
            run(Op::Add, Type::F32, u64::from(f32::NAN.to_bits()), one),
            u64::from(NAN32)
        );
        assert_eq!(apply(Op::Add, Type::F32, Kept, 1, 2, 0), Some(3));
        assert_eq!(apply(Op::Add, Type::F32, Flushed, 1, 2, 0), Some(0));
        assert_eq!(
            run(Op::Add, Type::F64, 1f64.to_bits(), 2f64.to_bits()),
            3f64.to_bits()
        );
        assert_eq!(
            run(Op::Add, Type::F16x2, 0x3c00_0001, 0x3c00_0001),
            0x4000_0002
        );
        assert_eq!(run(Op::Add, Type::Bf16, 0x3f80, 0x3f80), 0x4000);
        assert_eq!(run(Op::Min, Type::F16, 0x8000, 0), 0x8000);
        assert_eq!(
            run(Op::Max, Type::Bf16x2, 0x3f80_4000, 0x4000_3f80),
            0x4000_4000
        );
    }

    #[test]
    fn what_does_not_exist() {
        for (op, of) in [
            (Op::Min, Type::F32),
            (Op::And, Type::F32),
            (Op::Inc, Type::S32),
            (Op::Add, Type::B32),
        ] {
            assert_eq!(apply(op, of, Kept, 0, 0, 0), None, "{op:?} {of:?}");
        }
        assert_eq!(
            [Type::F16, Type::F16x2, Type::F64].map(Type::bytes),
            [2, 4, 8]
        );
    }
}
