//! The types a value can have, and what each is called in PTX.

use half::{bf16, f16};

/// Two `f16`, the first in the low half of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct F16x2(pub u32);

/// Two `bf16`, the first in the low half of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bf16x2(pub u32);

/// A number in the tensor cores' 19-bit format, in the upper bits of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tf32(pub u32);

/// A float of eight bits, three of them fraction. In memory it is a `u8`: registers hold
/// none.
#[derive(Clone, Copy, Debug)]
pub enum E4m3 {}

/// A float of eight bits, two of them fraction.
#[derive(Clone, Copy, Debug)]
pub enum E5m2 {}

/// A float of eight bits.
pub trait Tiny {
    #[doc(hidden)]
    const NAME: &'static str;
}
impl Tiny for E4m3 {
    const NAME: &'static str = "e4m3";
}
impl Tiny for E5m2 {
    const NAME: &'static str = "e5m2";
}

/// What kind of register holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    Pred,
    B16,
    B32,
    B64,
    F32,
    F64,
    B128,
}

/// Which type a value has, as data.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarKind {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    Tf32,
    F32,
    F64,
}

impl ScalarKind {
    /// The suffix of arithmetic and of parameters.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            ScalarKind::Bool => "pred",
            ScalarKind::U8 => "u8",
            ScalarKind::I8 => "s8",
            ScalarKind::U16 => "u16",
            ScalarKind::I16 => "s16",
            ScalarKind::U32 => "u32",
            ScalarKind::I32 => "s32",
            ScalarKind::U64 => "u64",
            ScalarKind::I64 => "s64",
            ScalarKind::F16 => "f16",
            ScalarKind::Bf16 => "bf16",
            ScalarKind::F16x2 => "f16x2",
            ScalarKind::Bf16x2 => "bf16x2",
            ScalarKind::Tf32 => "b32",
            ScalarKind::F32 => "f32",
            ScalarKind::F64 => "f64",
        }
    }

    /// The suffix of a load, a store, a parameter: where halves are plain bits.
    pub(crate) fn memory(self) -> &'static str {
        match self {
            ScalarKind::F16 | ScalarKind::Bf16 => "b16",
            ScalarKind::F16x2 | ScalarKind::Bf16x2 | ScalarKind::Tf32 => "b32",
            other => other.suffix(),
        }
    }

    /// The suffix of what only moves bits.
    pub(crate) fn bits(self) -> &'static str {
        match self.class() {
            Class::Pred => "pred",
            Class::B16 => "b16",
            Class::B32 | Class::F32 => "b32",
            Class::B64 | Class::F64 => "b64",
            Class::B128 => "b128",
        }
    }

    pub(crate) fn class(self) -> Class {
        match self {
            ScalarKind::Bool => Class::Pred,
            ScalarKind::U8
            | ScalarKind::I8
            | ScalarKind::U16
            | ScalarKind::I16
            | ScalarKind::F16
            | ScalarKind::Bf16 => Class::B16,
            ScalarKind::U32
            | ScalarKind::I32
            | ScalarKind::F16x2
            | ScalarKind::Bf16x2
            | ScalarKind::Tf32 => Class::B32,
            ScalarKind::U64 | ScalarKind::I64 => Class::B64,
            ScalarKind::F32 => Class::F32,
            ScalarKind::F64 => Class::F64,
        }
    }

    pub(crate) fn signed(self) -> bool {
        matches!(
            self,
            ScalarKind::I8 | ScalarKind::I16 | ScalarKind::I32 | ScalarKind::I64
        )
    }

    pub(crate) fn integer(self) -> bool {
        matches!(
            self,
            ScalarKind::U8
                | ScalarKind::I8
                | ScalarKind::U16
                | ScalarKind::I16
                | ScalarKind::U32
                | ScalarKind::I32
                | ScalarKind::U64
                | ScalarKind::I64
        )
    }

    /// Whether an instruction takes it as an immediate.
    pub(crate) fn immediate(self) -> bool {
        self.integer() || matches!(self, ScalarKind::F32 | ScalarKind::F64)
    }

    pub(crate) fn width(self) -> u32 {
        match self {
            ScalarKind::Bool => 1,
            ScalarKind::U8 | ScalarKind::I8 => 8,
            ScalarKind::U16 | ScalarKind::I16 | ScalarKind::F16 | ScalarKind::Bf16 => 16,
            ScalarKind::U64 | ScalarKind::I64 | ScalarKind::F64 => 64,
            _ => 32,
        }
    }
}

mod sealed {
    pub trait Sealed {}
}
pub(crate) use sealed::Sealed;

/// A type that a register can hold.
///
/// Implemented for `bool` (a predicate), the integers from 8 to 64 bits,
/// `f16`, `bf16`, `f32`, `f64`, and the packed [`F16x2`], [`Bf16x2`], [`Tf32`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type that a GPU register holds",
    note = "use bool, u8..u64, i8..i64, f16, bf16, f32, f64, F16x2, Bf16x2 or Tf32"
)]
pub trait Scalar: Copy + std::fmt::Debug + Sealed + 'static {
    #[doc(hidden)]
    const KIND: ScalarKind;
    /// Its bits, zero-extended.
    fn to_bits64(self) -> u64;
    /// The value with these bits; upper bits are ignored.
    fn from_bits64(bits: u64) -> Self;
}

/// A scalar that lies in memory: all but `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot lie in GPU memory",
    note = "a predicate lives in a register only; store a u32 or a u8 instead"
)]
pub trait Storable: Scalar {
    /// How many bytes one takes.
    const BYTES: u32;
}

/// A type with `+`, `-` and `*`.
#[diagnostic::on_unimplemented(
    message = "no arithmetic on `{Self}`",
    note = "convert first, for example with `.cast::<u32>()` or `.cast::<f32>()`"
)]
pub trait Number: Storable {}
/// A whole number of 16 bits or more.
#[diagnostic::on_unimplemented(message = "`{Self}` is not a whole number of 16 bits or more")]
pub trait Integer: Number {}
/// `f32` or `f64`: what has division and square roots.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not f32 or f64",
    note = "halves have +, -, * and mul_add; convert with `.cast::<f32>()` for the rest"
)]
pub trait Float: Number {}
/// A 16-bit floating-point number.
pub trait Half: Number {
    /// Two of them in a word.
    type Pair: Number + Word;
    #[doc(hidden)]
    const NAME: &'static str;
}
/// A type whose bits can be moved between lanes in one instruction: 32 bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not fill one 32-bit register",
    note = "shuffles move 32 bits: pack or split the value first"
)]
pub trait Word: Storable {}
/// A type with a comparison.
pub trait Ordered: Storable {}

macro_rules! scalar {
    ($($ty:ty: $kind:ident, $bytes:literal, $to:expr, $from:expr;)*) => {$(
        impl Sealed for $ty {}
        impl Scalar for $ty {
            const KIND: ScalarKind = ScalarKind::$kind;
            fn to_bits64(self) -> u64 {
                let to: fn($ty) -> u64 = $to;
                to(self)
            }
            fn from_bits64(bits: u64) -> $ty {
                let from: fn(u64) -> $ty = $from;
                from(bits)
            }
        }
        impl Storable for $ty {
            const BYTES: u32 = $bytes;
        }
    )*};
}

scalar! {
    u8: U8, 1, |v| v.into(), |b| b as u8;
    i8: I8, 1, |v| (v as u8).into(), |b| b as i8;
    u16: U16, 2, |v| v.into(), |b| b as u16;
    i16: I16, 2, |v| (v as u16).into(), |b| b as i16;
    u32: U32, 4, |v| v.into(), |b| b as u32;
    i32: I32, 4, |v| (v as u32).into(), |b| b as i32;
    u64: U64, 8, |v| v, |b| b;
    i64: I64, 8, |v| v as u64, |b| b as i64;
    f16: F16, 2, |v| v.to_bits().into(), |b| f16::from_bits(b as u16);
    bf16: Bf16, 2, |v| v.to_bits().into(), |b| bf16::from_bits(b as u16);
    F16x2: F16x2, 4, |v| v.0.into(), |b| F16x2(b as u32);
    Bf16x2: Bf16x2, 4, |v| v.0.into(), |b| Bf16x2(b as u32);
    Tf32: Tf32, 4, |v| v.0.into(), |b| Tf32(b as u32);
    f32: F32, 4, |v| v.to_bits().into(), |b| f32::from_bits(b as u32);
    f64: F64, 8, |v| v.to_bits(), f64::from_bits;
}

impl Sealed for bool {}
impl Scalar for bool {
    const KIND: ScalarKind = ScalarKind::Bool;
    fn to_bits64(self) -> u64 {
        self.into()
    }
    fn from_bits64(bits: u64) -> bool {
        bits & 1 == 1
    }
}

macro_rules! mark {
    ($($marker:ident: $($ty:ty)*;)*) => {$($(impl $marker for $ty {})*)*};
}

mark! {
    Number: u16 i16 u32 i32 u64 i64 f16 bf16 F16x2 Bf16x2 f32 f64;
    Integer: u16 i16 u32 i32 u64 i64;
    Float: f32 f64;
    Word: u32 i32 f32 F16x2 Bf16x2 Tf32;
    Ordered: u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64;
}

impl Half for f16 {
    type Pair = F16x2;
    const NAME: &'static str = "f16";
}
impl Half for bf16 {
    type Pair = Bf16x2;
    const NAME: &'static str = "bf16";
}
