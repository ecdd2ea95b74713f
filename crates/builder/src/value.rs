//! Values, variables, and what can become a value.
//!
//! A [`Val`] is a number that the kernel will compute: it is written once and
//! never changes. A [`Var`] is a named place that can be written again, which
//! is what carries a result out of a loop or a branch. Both are branded with
//! the lifetime `'k` of the kernel they belong to, so a value can't leak into
//! another kernel.

use crate::emit::{Opnd, Reg};
use crate::kernel::Kernel;
use crate::scalar::{Scalar, ScalarKind};
use heist_ptx::{Constant, Integer};
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

/// A value of type `T` in the kernel `'k`. Copy it freely.
///
/// Operators work between values, and between a value and a Rust number:
/// `i * 4 + lane`. Two constants are folded while the kernel is built.
pub struct Val<'k, T> {
    pub(crate) k: Kernel<'k>,
    pub(crate) repr: Repr,
    pub(crate) ty: PhantomData<T>,
}

/// A predicate: the outcome of a comparison.
pub type Bool<'k> = Val<'k, bool>;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Repr {
    Reg(Reg),
    Imm(u64),
}

impl<T> Clone for Val<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Val<'_, T> {}

impl<T: Scalar> fmt::Debug for Val<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.repr {
            Repr::Reg(reg) => write!(f, "Val<{}>(#{})", T::KIND.suffix(), reg.0),
            Repr::Imm(bits) => write!(f, "Val({:?})", T::from_bits64(bits)),
        }
    }
}

impl<'k, T: Scalar> Val<'k, T> {
    pub(crate) fn from_reg(k: Kernel<'k>, reg: Reg) -> Val<'k, T> {
        Val {
            k,
            repr: Repr::Reg(reg),
            ty: PhantomData,
        }
    }

    pub(crate) fn constant(k: Kernel<'k>, value: T) -> Val<'k, T> {
        Val {
            k,
            repr: Repr::Imm(value.to_bits64()),
            ty: PhantomData,
        }
    }

    /// The kernel it belongs to.
    pub fn kernel(self) -> Kernel<'k> {
        self.k
    }

    /// The number itself, when it is known while the kernel is built.
    pub fn known(self) -> Option<T> {
        match self.repr {
            Repr::Imm(bits) => Some(T::from_bits64(bits)),
            Repr::Reg(_) => None,
        }
    }

    /// Calls its register `name` in the PTX.
    #[must_use]
    pub fn named(self, name: &str) -> Val<'k, T> {
        if let Repr::Reg(reg) = self.repr {
            self.k.rec.name_reg(reg, name);
        }
        self
    }

    /// As an operand, immediate where PTX takes one.
    #[track_caller]
    pub(crate) fn operand(self) -> Opnd {
        match self.repr {
            Repr::Reg(reg) => Opnd::Reg(reg),
            Repr::Imm(bits) if T::KIND.immediate() => Opnd::Const(immediate(T::KIND, bits)),
            Repr::Imm(_) => Opnd::Reg(self.register()),
        }
    }

    /// In a register, moved there if it is a constant.
    #[track_caller]
    pub(crate) fn register(self) -> Reg {
        match self.repr {
            Repr::Reg(reg) => reg,
            Repr::Imm(bits) => {
                let rec = self.k.rec;
                let reg = rec.reg(T::KIND.class());
                let place = Location::caller();
                if T::KIND == ScalarKind::Bool {
                    let condition = if bits == 0 {
                        "setp.ne.u32"
                    } else {
                        "setp.eq.u32"
                    };
                    let zero = || Opnd::Const(Constant::Int(Integer::decimal(0)));
                    rec.op(condition, vec![reg.into(), zero(), zero()], place);
                } else {
                    let opcode = format!("mov.{}", T::KIND.bits());
                    let value = if T::KIND.immediate() {
                        immediate(T::KIND, bits)
                    } else {
                        Constant::Int(Integer::hex(bits))
                    };
                    rec.op(opcode, vec![reg.into(), Opnd::Const(value)], place);
                }
                reg
            }
        }
    }
}

/// A constant of this kind as PTX writes it.
pub(crate) fn immediate(kind: ScalarKind, bits: u64) -> Constant {
    match kind {
        ScalarKind::F32 => Constant::F32(bits as u32),
        ScalarKind::F64 => Constant::F64(bits),
        kind if kind.signed() => {
            let shift = 64 - kind.width();
            Constant::Int(Integer::decimal(((bits << shift) as i64) >> shift))
        }
        _ if bits > i64::MAX as u64 => Constant::Int(Integer::hex(bits)),
        _ => Constant::Int(Integer::decimal(bits as i64)),
    }
}

/// What can be used where a value of type `T` is wanted: a [`Val`], a
/// [`Var`] (read now), or a Rust number of the same type.
#[diagnostic::on_unimplemented(
    message = "a value of type `{T}` is wanted here, and `{Self}` is not one",
    label = "not a `{T}`",
    note = "types do not convert by themselves: use `.cast::<{T}>()`, or write a literal of that type"
)]
pub trait IntoVal<'k, T: Scalar> {
    /// The value, made in `k`.
    fn into_val(self, k: &Kernel<'k>) -> Val<'k, T>;
}

impl<'k, T: Scalar> IntoVal<'k, T> for T {
    fn into_val(self, k: &Kernel<'k>) -> Val<'k, T> {
        Val::constant(*k, self)
    }
}

impl<'k, T: Scalar> IntoVal<'k, T> for Val<'k, T> {
    fn into_val(self, _: &Kernel<'k>) -> Val<'k, T> {
        self
    }
}

impl<'k, T: Scalar> IntoVal<'k, T> for &Val<'k, T> {
    fn into_val(self, _: &Kernel<'k>) -> Val<'k, T> {
        *self
    }
}

impl<'k, T: Scalar> IntoVal<'k, T> for Var<'k, T> {
    #[track_caller]
    fn into_val(self, _: &Kernel<'k>) -> Val<'k, T> {
        self.get()
    }
}

/// A variable: a register that can be written again.
///
/// Reading it gives the value it has *now*; a later [`set`](Var::set) does not
/// change what was read.
pub struct Var<'k, T> {
    pub(crate) k: Kernel<'k>,
    pub(crate) reg: Reg,
    pub(crate) ty: PhantomData<T>,
}

impl<T> Clone for Var<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Var<'_, T> {}

impl<T: Scalar> fmt::Debug for Var<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Var<{}>(#{})", T::KIND.suffix(), self.reg.0)
    }
}

impl<'k, T: Scalar> Var<'k, T> {
    /// An uninitialised variable, which the caller writes first.
    pub(crate) fn unset(k: Kernel<'k>) -> Var<'k, T> {
        Var {
            k,
            reg: k.rec.reg(T::KIND.class()),
            ty: PhantomData,
        }
    }

    /// What it holds now.
    #[track_caller]
    pub fn get(self) -> Val<'k, T> {
        let copy = self.k.rec.reg(T::KIND.class());
        self.k.rec.op(
            format!("mov.{}", T::KIND.bits()),
            vec![copy.into(), self.reg.into()],
            Location::caller(),
        );
        Val::from_reg(self.k, copy)
    }

    /// Writes it.
    #[track_caller]
    pub fn set(self, value: impl IntoVal<'k, T>) {
        let value = value.into_val(&self.k);
        if T::KIND == ScalarKind::Bool && value.known().is_some() {
            let zero = || Opnd::Const(Constant::Int(Integer::decimal(0)));
            let condition = if value.repr == Repr::Imm(0) {
                "setp.ne.u32"
            } else {
                "setp.eq.u32"
            };
            self.k.rec.op(
                condition,
                vec![self.reg.into(), zero(), zero()],
                Location::caller(),
            );
            return;
        }
        self.k.rec.op(
            format!("mov.{}", T::KIND.bits()),
            vec![self.reg.into(), value.operand()],
            Location::caller(),
        );
    }

    /// Applies `change` to its value.
    #[track_caller]
    pub fn update(self, change: impl FnOnce(Val<'k, T>) -> Val<'k, T>) {
        self.set(change(self.get()));
    }

    /// Calls its register `name` in the PTX.
    #[must_use]
    pub fn named(self, name: &str) -> Var<'k, T> {
        self.k.rec.name_reg(self.reg, name);
        self
    }

    /// The kernel it belongs to.
    pub fn kernel(self) -> Kernel<'k> {
        self.k
    }
}
