//! Conversions between types, and the functions of one number.

use crate::emit::Opnd;
use crate::scalar::{
    Bf16x2, Class, F16x2, Float, Half, Integer, Number, Scalar, ScalarKind, Storable, Tf32, Tiny,
};
use crate::value::{IntoVal, Repr, Val};
use half::{bf16, f16};
use heist_ptx::arch::Feature;
use std::panic::Location;

impl<'k, T: Scalar> Val<'k, T> {
    /// Converts as Rust's `as` does: whole numbers are cut or extended, floating
    /// point becomes a whole number towards zero and stays within its range,
    /// everything else rounds to nearest even. A predicate becomes 0 or 1.
    #[track_caller]
    pub fn cast<U: Storable>(self) -> Val<'k, U> {
        let (from, to) = (T::KIND, U::KIND);
        if from == to {
            return self.relabel();
        }
        if from == ScalarKind::Bool {
            let holds = Val::<bool>::from_repr(self.k, self.repr);
            return holds.select(1u32, 0u32).cast::<U>();
        }
        if let Repr::Imm(bits) = self.repr
            && let Some(bits) = cast_constant(from, to, bits)
        {
            return Val::from_repr(self.k, Repr::Imm(bits));
        }
        if from.integer() && to.integer() && from.width() == to.width() {
            return self.relabel();
        }
        if matches!(to, ScalarKind::Bf16 | ScalarKind::Tf32) {
            self.k.require(Feature::Bf16Convert);
        }
        let this = Opnd::Reg(self.register());
        match (from, to) {
            // A bf16 is the upper half of an f32, on every architecture.
            (ScalarKind::Bf16, ScalarKind::F32) => {
                let zero = self
                    .k
                    .emit::<u16>("mov.b16", vec![crate::kernel::number(0)]);
                let halves = Opnd::Vector(vec![zero.operand(), this]);
                self.k.emit::<U>("mov.b32", vec![halves])
            }
            (ScalarKind::Bf16, _) => self.cast::<f32>().cast::<U>(),
            (ScalarKind::F32, ScalarKind::Bf16) => self.k.emit::<U>("cvt.rn.bf16.f32", vec![this]),
            (_, ScalarKind::Bf16) => self.cast::<f32>().cast::<U>(),
            (ScalarKind::F32, ScalarKind::Tf32) => self.k.emit::<U>("cvt.rna.tf32.f32", vec![this]),
            (_, ScalarKind::Tf32) => self.cast::<f32>().cast::<U>(),
            (ScalarKind::Tf32, ScalarKind::F32) => self.k.emit::<U>("mov.b32", vec![this]),
            (ScalarKind::Tf32, _) => self.cast::<f32>().cast::<U>(),
            _ => self.k.emit::<U>(conversion(from, to), vec![this]),
        }
    }

    /// The same bits as another type of the same size.
    ///
    /// Sizes that differ do not compile.
    #[track_caller]
    pub fn bitcast<U: Storable>(self) -> Val<'k, U>
    where
        T: Storable,
    {
        const {
            assert!(
                T::BYTES == U::BYTES,
                "bitcast between types of different sizes"
            );
        }
        if T::KIND.class() == U::KIND.class() || matches!(self.repr, Repr::Imm(_)) {
            return self.relabel();
        }
        let this = self.operand();
        self.k
            .emit::<U>(format!("mov.{}", U::KIND.bits()), vec![this])
    }

    /// The same register, read as another type.
    pub(crate) fn relabel<U: Scalar>(self) -> Val<'k, U> {
        Val::from_repr(self.k, self.repr)
    }

    pub(crate) fn from_repr(k: crate::Kernel<'k>, repr: Repr) -> Val<'k, T> {
        Val {
            k,
            repr,
            ty: std::marker::PhantomData,
        }
    }
}

/// `cvt` with the rounding this pair needs.
fn conversion(from: ScalarKind, to: ScalarKind) -> String {
    let (source, target) = (from.suffix(), to.suffix());
    let rounding = match (from.integer(), to.integer()) {
        (true, true) => "",
        (false, true) => "rzi.",
        (true, false) => "rn.",
        (false, false) if to.width() < from.width() => "rn.",
        (false, false) => "",
    };
    format!("cvt.{rounding}{target}.{source}")
}

/// A constant converted while building, where both sides are plain numbers.
fn cast_constant(from: ScalarKind, to: ScalarKind, bits: u64) -> Option<u64> {
    let mask = u64::MAX >> (64 - to.width());
    if from.integer() && to.integer() {
        let shift = 64 - from.width();
        let wide = if from.signed() {
            (((bits << shift) as i64) >> shift) as u64
        } else {
            bits
        };
        return Some(wide & mask);
    }
    let value = match from {
        ScalarKind::F32 => f64::from(f32::from_bits(bits as u32)),
        ScalarKind::F64 => f64::from_bits(bits),
        _ => return None,
    };
    if value.is_nan() {
        return None;
    }
    Some(match (from, to) {
        (ScalarKind::F32, ScalarKind::F64) => value.to_bits(),
        (ScalarKind::F64, ScalarKind::F32) => (value as f32).to_bits().into(),
        (ScalarKind::F32, ScalarKind::F16) => f16::from_f32(value as f32).to_bits().into(),
        (ScalarKind::F32, ScalarKind::Bf16) => bf16::from_f32(value as f32).to_bits().into(),
        _ => return None,
    })
}

impl<'k, T: Half> Val<'k, T> {
    /// Two halves in one word, the first in its low bits.
    #[track_caller]
    pub fn pack(low: Val<'k, T>, high: Val<'k, T>) -> Val<'k, T::Pair> {
        let halves = Opnd::Vector(vec![low.register().into(), high.register().into()]);
        low.k.emit::<T::Pair>("mov.b32", vec![halves])
    }
}

impl<'k> Val<'k, f32> {
    /// Two numbers rounded to halves in one word and one instruction, the
    /// first in its low bits: `f32::pack::<f16>(a, b)`.
    #[track_caller]
    pub fn pack_as<H: Half>(low: Val<'k, f32>, high: Val<'k, f32>) -> Val<'k, H::Pair> {
        low.k.require(Feature::Bf16Convert);
        low.k.emit::<H::Pair>(
            format!("cvt.rn.{}x2.f32", H::NAME),
            vec![high.register().into(), low.register().into()],
        )
    }

    /// Two numbers rounded to floats of eight bits in one word of 16, the first in its low
    /// bits; saturates at the largest value.
    #[track_caller]
    pub fn pack_tiny<H: Tiny>(low: Val<'k, f32>, high: Val<'k, f32>) -> Val<'k, u16> {
        low.k.require(Feature::Fp8Convert);
        low.k.emit::<u16>(
            format!("cvt.rn.satfinite.{}x2.f32", H::NAME),
            vec![high.register().into(), low.register().into()],
        )
    }

    /// Two numbers as two terms each: the number rounded to a half, and the rounding error, rounded
    /// too. Together they have twice the bits of a half.
    #[track_caller]
    pub fn split_as<H: Half>(low: Val<'k, f32>, high: Val<'k, f32>) -> [Val<'k, H::Pair>; 2] {
        let rounded = Val::pack_as::<H>(low, high);
        let [a, b] = halves::<H, _>(rounded).map(Val::cast::<f32>);
        [rounded, Val::pack_as::<H>(low - a, high - b)]
    }

    /// Rounds to the nearest number with the tensor cores' 10-bit mantissa.
    #[track_caller]
    pub fn to_tf32(self) -> Val<'k, Tf32> {
        self.cast()
    }
}

/// The two halves of a word, the one in its low bits first.
#[track_caller]
pub(crate) fn halves<'k, H: Scalar, P: Scalar>(pair: Val<'k, P>) -> [Val<'k, H>; 2] {
    let rec = pair.k.rec;
    let (low, high) = (rec.reg(Class::B16), rec.reg(Class::B16));
    rec.op(
        "mov.b32",
        vec![
            Opnd::Vector(vec![low.into(), high.into()]),
            pair.register().into(),
        ],
        Location::caller(),
    );
    [Val::from_reg(pair.k, low), Val::from_reg(pair.k, high)]
}

macro_rules! unpack {
    ($($pair:ty, $half:ty;)*) => {$(
        impl<'k> Val<'k, $pair> {
            /// The two halves, the one in the low bits first.
            #[track_caller]
            pub fn unpack(self) -> [Val<'k, $half>; 2] {
                halves(self)
            }
        }
    )*};
}
unpack! { F16x2, f16; Bf16x2, bf16; }

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $opcode:literal;)*) => {
        impl<'k> Val<'k, f32> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self) -> Val<'k, f32> {
                self.emit($opcode, vec![Opnd::Reg(self.register())])
            }
        )*}
    };
}
unary! {
    /// 2 to the power of this, to about 2 units in the last place; subnormal
    /// inputs count as zero.
    exp2_approx = "ex2.approx.ftz.f32";
    /// The logarithm to base 2, approximately.
    log2_approx = "lg2.approx.ftz.f32";
    /// One divided by this, to 1 unit in the last place.
    recip_approx = "rcp.approx.ftz.f32";
    /// One divided by the square root, approximately.
    rsqrt_approx = "rsqrt.approx.ftz.f32";
    /// The sine, approximately; the argument should be small.
    sin_approx = "sin.approx.ftz.f32";
    /// The cosine, approximately; the argument should be small.
    cos_approx = "cos.approx.ftz.f32";
    /// The hyperbolic tangent, approximately.
    tanh_approx = "tanh.approx.f32";
    /// The largest whole number not above.
    floor = "cvt.rmi.f32.f32";
    /// The smallest whole number not below.
    ceil = "cvt.rpi.f32.f32";
    /// The nearest whole number, ties to even.
    round = "cvt.rni.f32.f32";
}

impl<'k> Val<'k, f32> {
    /// The nearest whole number, ties to even; saturates at the ends of the range, and is zero for
    /// NaN.
    #[track_caller]
    pub fn nearest(self) -> Val<'k, i32> {
        self.k
            .emit::<i32>("cvt.rni.s32.f32", vec![Opnd::Reg(self.register())])
    }

    /// `self / other` to 2 units in the last place.
    #[track_caller]
    pub fn div_approx(self, other: impl IntoVal<'k, f32>) -> Val<'k, f32> {
        let other = other.into_val(&self.k);
        self.emit("div.approx.ftz.f32", vec![self.operand(), other.operand()])
    }
}

impl<'k, T: Float> Val<'k, T> {
    /// The square root, rounded to nearest even.
    #[track_caller]
    pub fn sqrt(self) -> Val<'k, T> {
        self.emit(
            format!("sqrt.rn.{}", T::KIND.suffix()),
            vec![Opnd::Reg(self.register())],
        )
    }
}

impl<'k, T: Number> Val<'k, T> {
    /// Without its sign. An unsigned number is returned as it is.
    #[track_caller]
    pub fn abs(self) -> Val<'k, T> {
        if T::KIND.integer() && !T::KIND.signed() {
            return self;
        }
        self.emit(
            format!("abs.{}", T::KIND.suffix()),
            vec![Opnd::Reg(self.register())],
        )
    }
}

impl<'k> Val<'k, u32> {
    /// The whole 64-bit product.
    #[track_caller]
    pub fn mul_wide(self, other: impl IntoVal<'k, u32>) -> Val<'k, u64> {
        let other = other.into_val(&self.k);
        let (a, b) = (self.operand(), other.operand());
        self.k.emit::<u64>("mul.wide.u32", vec![a, b])
    }

    /// The upper 32 bits of the 64-bit product.
    #[track_caller]
    pub fn mul_high(self, other: impl IntoVal<'k, u32>) -> Val<'k, u32> {
        let other = other.into_val(&self.k);
        self.emit("mul.hi.u32", vec![self.operand(), other.operand()])
    }

    /// How many bits are set.
    #[track_caller]
    pub fn count_ones(self) -> Val<'k, u32> {
        self.emit("popc.b32", vec![Opnd::Reg(self.register())])
    }

    /// How many zeros stand before the first set bit; 32 for zero.
    #[track_caller]
    pub fn leading_zeros(self) -> Val<'k, u32> {
        self.emit("clz.b32", vec![Opnd::Reg(self.register())])
    }

    /// `(self + by - 1) / by`, for a divisor known while building.
    #[track_caller]
    pub fn div_ceil(self, by: u32) -> Val<'k, u32> {
        if by == 0 {
            self.k.fail("division by zero in div_ceil");
            return self;
        }
        (self + (by - 1)) / by
    }
}

impl<'k, T: Integer> Val<'k, T> {
    /// `low <= self < high`.
    #[track_caller]
    pub fn within(self, low: impl IntoVal<'k, T>, high: impl IntoVal<'k, T>) -> crate::Bool<'k>
    where
        T: crate::Ordered,
    {
        self.ge(low) & self.lt(high)
    }
}
