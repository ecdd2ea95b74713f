//! Operators and comparisons.
//!
//! `+`, `-` and `*` on floating point round once each: the builder never fuses
//! a multiplication with an addition by itself, and emits `.rn` so that the
//! assembler does not either. Ask for the fused one with
//! [`mul_add`](Val::mul_add); it is faster, and it rounds once.

use crate::emit::Opnd;
use crate::fold::{self, Binary, Compare, Simple};
use crate::scalar::{Integer, Number, Ordered, Scalar, ScalarKind, Sealed};
use crate::value::{Bool, IntoVal, Repr, Val, Var};
use half::{bf16, f16};
use heist_ptx::arch::Feature;
use heist_ptx::{Constant, Integer as Literal};
use std::marker::PhantomData;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Rem, Shl, Shr, Sub};

/// A type with `&`, `|`, `^` and `!`: whole numbers and predicates.
#[diagnostic::on_unimplemented(message = "no bitwise operators on `{Self}`")]
pub trait Bits: Scalar + Sealed {}
/// A type with `/`: whole numbers, `f32`, `f64`.
#[diagnostic::on_unimplemented(
    message = "no division on `{Self}`",
    note = "convert with `.cast::<f32>()` first"
)]
pub trait Divide: Number {}
macro_rules! mark {
    ($($marker:ident: $($ty:ty)*;)*) => {$($(impl $marker for $ty {})*)*};
}
mark! {
    Bits: bool u16 i16 u32 i32 u64 i64;
    Divide: u16 i16 u32 i32 u64 i64 f32 f64;
}

impl Repr {
    fn known(self) -> Option<u64> {
        match self {
            Repr::Imm(bits) => Some(bits),
            Repr::Reg(_) => None,
        }
    }
}

/// The opcode of a two-sided operation.
fn opcode(op: Binary, kind: ScalarKind) -> String {
    let suffix = kind.suffix();
    match op {
        Binary::Add | Binary::Sub if kind.integer() => {
            // Signedness does not matter; `s` is what compilers write.
            let name = if op == Binary::Add { "add" } else { "sub" };
            format!("{name}.s{}", kind.width())
        }
        Binary::Mul if kind.integer() => format!("mul.lo.s{}", kind.width()),
        Binary::Add => format!("add.rn.{suffix}"),
        Binary::Sub => format!("sub.rn.{suffix}"),
        Binary::Mul => format!("mul.rn.{suffix}"),
        Binary::Div if kind.integer() => format!("div.{suffix}"),
        Binary::Div => format!("div.rn.{suffix}"),
        Binary::Rem => format!("rem.{suffix}"),
        Binary::Min => format!("min.{suffix}"),
        Binary::Max => format!("max.{suffix}"),
        Binary::And => format!("and.{}", kind.bits()),
        Binary::Or => format!("or.{}", kind.bits()),
        Binary::Xor => format!("xor.{}", kind.bits()),
    }
}

impl<'k, T: Scalar> Val<'k, T> {
    pub(crate) fn with(self, repr: Repr) -> Val<'k, T> {
        Val { repr, ..self }
    }

    #[track_caller]
    pub(crate) fn binary(self, op: Binary, right: Val<'k, T>) -> Val<'k, T> {
        let (a, b) = (self.repr.known(), right.repr.known());
        if let (Some(a), Some(b)) = (a, b)
            && let Some(bits) = fold::binary(op, T::KIND, a, b)
        {
            return self.with(Repr::Imm(bits));
        }
        match fold::identity(op, T::KIND, a, b) {
            Some(Simple::Left) => return self,
            Some(Simple::Right) => return right,
            Some(Simple::Constant(bits)) => return self.with(Repr::Imm(bits)),
            None => {}
        }
        if matches!(T::KIND, ScalarKind::Bf16 | ScalarKind::Bf16x2) {
            return self.bf16_arithmetic(op, right);
        }
        if T::KIND.integer()
            && !T::KIND.signed()
            && let Some(by) = b.filter(|by| by.is_power_of_two())
        {
            let number = |value| Opnd::Const(Constant::Int(Literal::decimal(value)));
            let suffix = T::KIND.suffix();
            match op {
                Binary::Div => {
                    let shift = i64::from(by.trailing_zeros());
                    return self.emit(format!("shr.{suffix}"), vec![self.operand(), number(shift)]);
                }
                Binary::Rem => {
                    let opcode = format!("and.{}", T::KIND.bits());
                    return self.emit(opcode, vec![self.operand(), number(by as i64 - 1)]);
                }
                _ => {}
            }
        }
        self.emit(opcode(op, T::KIND), vec![self.operand(), right.operand()])
    }

    /// Additions and the like of `bf16` as fused multiply-adds: `add.bf16` and
    /// its kin came later (sm_90) than `fma.rn.bf16` (sm_80), and the results
    /// are the same.
    #[track_caller]
    fn bf16_arithmetic(self, op: Binary, right: Val<'k, T>) -> Val<'k, T> {
        let both = |half: u64| {
            let bits = if T::KIND == ScalarKind::Bf16x2 {
                half << 16 | half
            } else {
                half
            };
            self.with(Repr::Imm(bits)).operand()
        };
        self.k.require(Feature::Bf16Fma);
        let (one, minus_one, minus_zero) = (0x3F80, 0xBF80, 0x8000);
        let operands = match op {
            Binary::Add => vec![self.operand(), both(one), right.operand()],
            Binary::Sub => vec![right.operand(), both(minus_one), self.operand()],
            Binary::Mul => vec![self.operand(), right.operand(), both(minus_zero)],
            Binary::Min | Binary::Max => {
                let opcode = opcode(op, T::KIND);
                return self.emit(opcode, vec![self.operand(), right.operand()]);
            }
            // `Divide` and `Bits` keep the others away from halves.
            Binary::Div | Binary::Rem | Binary::And | Binary::Or | Binary::Xor => return self,
        };
        self.emit(format!("fma.rn.{}", T::KIND.suffix()), operands)
    }

    /// An instruction with a new register of this type in front of `operands`.
    #[track_caller]
    pub(crate) fn emit(
        self,
        opcode: impl Into<heist_ptx::SmolStr>,
        operands: Vec<Opnd>,
    ) -> Val<'k, T> {
        self.k.emit::<T>(opcode, operands)
    }

    #[track_caller]
    pub(crate) fn compare(self, op: Compare, right: impl IntoVal<'k, T>) -> Bool<'k> {
        let right = right.into_val(&self.k);
        if let (Some(a), Some(b)) = (self.repr.known(), right.repr.known())
            && let Some(holds) = fold::compare(op, T::KIND, a, b)
        {
            return Bool::constant(self.k, holds);
        }
        if T::KIND == ScalarKind::Bf16 {
            // `setp.bf16` came with sm_90; as f32 the comparison is the same.
            let wide = |v: Val<'k, T>| v.cast::<f32>();
            return wide(self).compare(op, wide(right));
        }
        let name = match op {
            // Rust's `!=` holds for a NaN.
            Compare::Ne if !T::KIND.integer() => "neu",
            other => other.as_str(),
        };
        let left = Opnd::Reg(self.register());
        self.k.emit::<bool>(
            format!("setp.{name}.{}", T::KIND.suffix()),
            vec![left, right.operand()],
        )
    }
}

impl<'k, T: Ordered> Val<'k, T> {
    /// `self == other`.
    #[track_caller]
    pub fn eq(self, other: impl IntoVal<'k, T>) -> Bool<'k> {
        self.compare(Compare::Eq, other)
    }
    /// `self != other`; as in Rust, a NaN differs from everything.
    #[track_caller]
    pub fn ne(self, other: impl IntoVal<'k, T>) -> Bool<'k> {
        self.compare(Compare::Ne, other)
    }
    /// `self < other`.
    #[track_caller]
    pub fn lt(self, other: impl IntoVal<'k, T>) -> Bool<'k> {
        self.compare(Compare::Lt, other)
    }
    /// `self <= other`.
    #[track_caller]
    pub fn le(self, other: impl IntoVal<'k, T>) -> Bool<'k> {
        self.compare(Compare::Le, other)
    }
    /// `self > other`.
    #[track_caller]
    pub fn gt(self, other: impl IntoVal<'k, T>) -> Bool<'k> {
        self.compare(Compare::Gt, other)
    }
    /// `self >= other`.
    #[track_caller]
    pub fn ge(self, other: impl IntoVal<'k, T>) -> Bool<'k> {
        self.compare(Compare::Ge, other)
    }
    /// The smaller one; of a number and a NaN, the number.
    #[track_caller]
    pub fn min(self, other: impl IntoVal<'k, T>) -> Val<'k, T> {
        let other = other.into_val(&self.k);
        self.binary(Binary::Min, other)
    }
    /// The larger one; of a number and a NaN, the number.
    #[track_caller]
    pub fn max(self, other: impl IntoVal<'k, T>) -> Val<'k, T> {
        let other = other.into_val(&self.k);
        self.binary(Binary::Max, other)
    }
}

impl<'k> Bool<'k> {
    /// `yes` where this holds, `no` where it does not.
    #[track_caller]
    pub fn select<T: Scalar>(
        self,
        yes: impl IntoVal<'k, T>,
        no: impl IntoVal<'k, T>,
    ) -> Val<'k, T> {
        let (yes, no) = (yes.into_val(&self.k), no.into_val(&self.k));
        if let Some(holds) = self.known() {
            return if holds { yes } else { no };
        }
        if T::KIND == ScalarKind::Bool {
            let (this, yes, no) = (self.register(), yes.register(), no.register());
            let as_bool = |reg| Bool::from_reg(self.k, reg);
            let result = (as_bool(this) & as_bool(yes)) | (!as_bool(this) & as_bool(no));
            return Val {
                k: self.k,
                repr: result.repr,
                ty: PhantomData,
            };
        }
        self.k.emit::<T>(
            format!("selp.{}", T::KIND.bits()),
            vec![yes.operand(), no.operand(), Opnd::Reg(self.register())],
        )
    }

    /// One where this holds, zero where it does not.
    #[track_caller]
    pub fn to_u32(self) -> Val<'k, u32> {
        self.select(1u32, 0u32)
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $bound:ident $op:ident: $($host:ty)*;)*) => {$(
        impl<'k, T: $bound, R: IntoVal<'k, T>> $trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, right: R) -> Val<'k, T> {
                let right = right.into_val(&self.k);
                self.binary(Binary::$op, right)
            }
        }
        impl<'k, T: $bound, R: IntoVal<'k, T>> $trait<R> for Var<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, right: R) -> Val<'k, T> {
                let right = right.into_val(&self.k);
                self.get().binary(Binary::$op, right)
            }
        }
        $(
            impl<'k> $trait<Val<'k, $host>> for $host {
                type Output = Val<'k, $host>;
                #[track_caller]
                fn $method(self, right: Val<'k, $host>) -> Val<'k, $host> {
                    Val::constant(right.k, self).binary(Binary::$op, right)
                }
            }
        )*
    )*};
}

operators! {
    Add add Number Add: u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64;
    Sub sub Number Sub: u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64;
    Mul mul Number Mul: u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64;
    Div div Divide Div: u16 i16 u32 i32 u64 i64 f32 f64;
    Rem rem Integer Rem: u16 i16 u32 i32 u64 i64;
    BitAnd bitand Bits And: bool u16 i16 u32 i32 u64 i64;
    BitOr bitor Bits Or: bool u16 i16 u32 i32 u64 i64;
    BitXor bitxor Bits Xor: bool u16 i16 u32 i32 u64 i64;
}

impl<'k, T: Bits> Not for Val<'k, T> {
    type Output = Val<'k, T>;
    #[track_caller]
    fn not(self) -> Val<'k, T> {
        if let Repr::Imm(bits) = self.repr {
            let mask = u64::MAX >> (64 - T::KIND.width());
            return self.with(Repr::Imm(!bits & mask));
        }
        self.emit(format!("not.{}", T::KIND.bits()), vec![self.operand()])
    }
}

impl<'k, T: Number> Neg for Val<'k, T> {
    type Output = Val<'k, T>;
    #[track_caller]
    fn neg(self) -> Val<'k, T> {
        let kind = T::KIND;
        if kind.integer() {
            return self.with(Repr::Imm(0)).binary(Binary::Sub, self);
        }
        if matches!(kind, ScalarKind::F32 | ScalarKind::F64)
            && let Repr::Imm(bits) = self.repr
        {
            return self.with(Repr::Imm(bits ^ 1 << (kind.width() - 1)));
        }
        self.emit(
            format!("neg.{}", kind.suffix()),
            vec![Opnd::Reg(self.register())],
        )
    }
}

macro_rules! shifts {
    ($($trait:ident $method:ident $name:literal;)*) => {$(
        impl<'k, T: Integer, R: IntoVal<'k, u32>> $trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;
            #[track_caller]
            fn $method(self, by: R) -> Val<'k, T> {
                let by = by.into_val(&self.k);
                self.shift($name, by)
            }
        }
    )*};
}
shifts! { Shl shl "shl"; Shr shr "shr"; }

impl<'k, T: Integer> Val<'k, T> {
    /// Shifts; by the width or more gives zero (or the sign), as on the GPU.
    #[track_caller]
    fn shift(self, name: &'static str, by: Val<'k, u32>) -> Val<'k, T> {
        if by.repr == Repr::Imm(0) {
            return self;
        }
        if let (Repr::Imm(bits), Repr::Imm(by)) = (self.repr, by.repr)
            && by < u64::from(T::KIND.width())
        {
            let shift = 64 - T::KIND.width();
            let mask = u64::MAX >> shift;
            let shifted = match name {
                "shl" => bits << by,
                _ if T::KIND.signed() => ((((bits << shift) as i64) >> shift) >> by) as u64,
                _ => bits >> by,
            };
            return self.with(Repr::Imm(shifted & mask));
        }
        let suffix = if name == "shl" {
            T::KIND.bits()
        } else {
            T::KIND.suffix()
        };
        let this = Opnd::Reg(self.register());
        self.emit(format!("{name}.{suffix}"), vec![this, by.operand()])
    }
}

impl<'k, T: Number> Val<'k, T> {
    /// `self * factor + addend`: fused and rounded once for floating point,
    /// one instruction for whole numbers.
    #[track_caller]
    pub fn mul_add(self, factor: impl IntoVal<'k, T>, addend: impl IntoVal<'k, T>) -> Val<'k, T> {
        let (factor, addend) = (factor.into_val(&self.k), addend.into_val(&self.k));
        let kind = T::KIND;
        if kind.integer() {
            let known = [self.repr, factor.repr, addend.repr].map(Repr::known);
            if (known[0].is_some() && known[1].is_some())
                || known.contains(&Some(0))
                || known[0] == Some(1)
                || known[1] == Some(1)
            {
                return self.binary(Binary::Mul, factor).binary(Binary::Add, addend);
            }
        }
        let opcode = if kind.integer() {
            format!("mad.lo.{}", kind.suffix())
        } else {
            format!("fma.rn.{}", kind.suffix())
        };
        let operands = vec![self.operand(), factor.operand(), addend.operand()];
        self.emit(opcode, operands)
    }
}
