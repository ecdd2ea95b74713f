//! The types of elements and scalars, and how their values are read and spelled.
//!
//! A value is carried as its bits, so that NaN payloads, negative zero and
//! integers of 64 bits survive every copy. The spelling of a value reads back
//! to the same bits, for every type and every pattern of bits.

use crate::tiny;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The type of a scalar argument or of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ElementType {
    U8,
    S8,
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
    F16,
    Bf16,
    F32,
    F64,
    /// Eight bits: a sign, four of exponent, three of fraction. No infinity.
    E4m3,
    /// Eight bits: a sign, five of exponent, two of fraction.
    E5m2,
    B8,
    B16,
    B32,
    B64,
}

impl ElementType {
    /// All of them.
    pub const ALL: [ElementType; 18] = [
        ElementType::U8,
        ElementType::S8,
        ElementType::U16,
        ElementType::S16,
        ElementType::U32,
        ElementType::S32,
        ElementType::U64,
        ElementType::S64,
        ElementType::F16,
        ElementType::Bf16,
        ElementType::F32,
        ElementType::F64,
        ElementType::E4m3,
        ElementType::E5m2,
        ElementType::B8,
        ElementType::B16,
        ElementType::B32,
        ElementType::B64,
    ];

    /// Its name, as PTX spells it without the dot.
    pub const fn as_str(self) -> &'static str {
        match self {
            ElementType::U8 => "u8",
            ElementType::S8 => "s8",
            ElementType::U16 => "u16",
            ElementType::S16 => "s16",
            ElementType::U32 => "u32",
            ElementType::S32 => "s32",
            ElementType::U64 => "u64",
            ElementType::S64 => "s64",
            ElementType::F16 => "f16",
            ElementType::Bf16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::E4m3 => "e4m3",
            ElementType::E5m2 => "e5m2",
            ElementType::B8 => "b8",
            ElementType::B16 => "b16",
            ElementType::B32 => "b32",
            ElementType::B64 => "b64",
        }
    }

    /// Its size in bytes, which is also its alignment.
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::U8
            | ElementType::S8
            | ElementType::E4m3
            | ElementType::E5m2
            | ElementType::B8 => 1,
            ElementType::U16
            | ElementType::S16
            | ElementType::F16
            | ElementType::Bf16
            | ElementType::B16 => 2,
            ElementType::U32 | ElementType::S32 | ElementType::F32 | ElementType::B32 => 4,
            ElementType::U64 | ElementType::S64 | ElementType::F64 | ElementType::B64 => 8,
        }
    }

    /// Its size in bits.
    pub const fn bits(self) -> u32 {
        self.bytes() as u32 * 8
    }

    /// Whether it is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            ElementType::F16
                | ElementType::Bf16
                | ElementType::F32
                | ElementType::F64
                | ElementType::E4m3
                | ElementType::E5m2
        )
    }

    /// Whether it is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(
            self,
            ElementType::S8 | ElementType::S16 | ElementType::S32 | ElementType::S64
        )
    }

    /// All ones in the width of the type.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// What an output buffer is filled with before a launch, so that an element
    /// that no thread wrote is seen: a NaN that no instruction produces for
    /// floats, `0xa5` bytes for the rest.
    pub const fn poison(self) -> u64 {
        match self {
            ElementType::F16 => 0xfda5,
            ElementType::Bf16 => 0xffa5,
            ElementType::F32 => 0xffa5_a5a5,
            ElementType::F64 => 0xfff5_a5a5_a5a5_a5a5,
            ElementType::E4m3 | ElementType::E5m2 => 0xff,
            other => 0xa5a5_a5a5_a5a5_a5a5 & other.mask(),
        }
    }

    /// Whether these bits are a NaN of this type.
    pub fn is_nan(self, bits: u64) -> bool {
        match self {
            ElementType::F16 => f16::from_bits(bits as u16).is_nan(),
            ElementType::Bf16 => bf16::from_bits(bits as u16).is_nan(),
            ElementType::F32 => f32::from_bits(bits as u32).is_nan(),
            ElementType::F64 => f64::from_bits(bits).is_nan(),
            ElementType::E4m3 => tiny::E4M3.decode(bits as u8).is_nan(),
            ElementType::E5m2 => tiny::E5M2.decode(bits as u8).is_nan(),
            _ => false,
        }
    }

    /// The number that these bits are. Exact for everything but 64-bit integers.
    pub fn to_f64(self, bits: u64) -> f64 {
        match self {
            ElementType::F16 => f16::from_bits(bits as u16).to_f64(),
            ElementType::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            ElementType::F32 => f64::from(f32::from_bits(bits as u32)),
            ElementType::F64 => f64::from_bits(bits),
            ElementType::E4m3 => tiny::E4M3.decode(bits as u8),
            ElementType::E5m2 => tiny::E5M2.decode(bits as u8),
            _ if self.is_signed() => self.sign_extend(bits) as f64,
            _ => (bits & self.mask()) as f64,
        }
    }

    /// The bits of a number, rounded to nearest even for floats; what is too large
    /// for one of eight bits is its largest, as GPUs convert. Integers take
    /// the value toward zero, clamped to their range.
    pub fn from_f64(self, value: f64) -> u64 {
        match self {
            ElementType::F16 => u64::from(f16::from_f64(value).to_bits()),
            ElementType::Bf16 => u64::from(bf16::from_f64(value).to_bits()),
            ElementType::F32 => u64::from((value as f32).to_bits()),
            ElementType::F64 => value.to_bits(),
            ElementType::E4m3 => tiny::E4M3.encode(value).into(),
            ElementType::E5m2 => tiny::E5M2.encode(value).into(),
            _ if self.is_signed() => {
                let half = 1i64 << (self.bits() - 1).min(62);
                let (low, high) = if self.bits() == 64 {
                    (i64::MIN, i64::MAX)
                } else {
                    (-half, half - 1)
                };
                (value as i64).clamp(low, high) as u64 & self.mask()
            }
            _ => (value as u64).min(self.mask()),
        }
    }

    /// The signed integer that these bits are in the width of this type.
    pub const fn sign_extend(self, bits: u64) -> i64 {
        let shift = 64 - self.bits();
        ((bits << shift) as i64) >> shift
    }

    /// Reads one value: `7`, `-3`, `0xff`, `1.5e-3`, `nan`, `-inf`, and the bits
    /// of a float as `0x…`, `0f3f800000` or `0d…`. Underscores may group digits.
    ///
    /// ```
    /// use heist_launch::ElementType;
    /// assert_eq!(ElementType::S8.parse_bits("-1").unwrap(), 0xff);
    /// assert_eq!(ElementType::F32.parse_bits("1.0").unwrap(), 0x3f80_0000);
    /// assert!(ElementType::U8.parse_bits("256").is_err());
    /// ```
    pub fn parse_bits(self, text: &str) -> Result<u64, ValueError> {
        let grouped = text.contains('_').then(|| text.replace('_', ""));
        let plain = grouped.as_deref().unwrap_or(text);
        if plain.is_empty() {
            return Err(ValueError::Empty { ty: self });
        }
        let not_a_value = || ValueError::NotAValue {
            text: text.to_owned(),
            ty: self,
        };
        let (negative, magnitude) = match plain.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, plain.strip_prefix('+').unwrap_or(plain)),
        };
        if let Some((digits, width)) = float_bits(magnitude) {
            let fits = digits.len() == width as usize / 4
                && (self.bits() == width && (self.is_float() || self.is_untyped()));
            if negative || !fits {
                return Err(ValueError::FloatBits {
                    text: text.to_owned(),
                    ty: self,
                    width,
                });
            }
            return u64::from_str_radix(digits, 16).map_err(|_| not_a_value());
        }
        let radix = [("0x", 16), ("0X", 16), ("0b", 2), ("0o", 8)]
            .into_iter()
            .find_map(|(prefix, radix)| Some((magnitude.strip_prefix(prefix)?, radix)));
        if let Some((digits, radix)) = radix {
            if digits.starts_with(['+', '-']) {
                return Err(not_a_value());
            }
            let bits = u64::from_str_radix(digits, radix).map_err(|_| not_a_value())?;
            if negative {
                return self.integer(text, true, bits);
            }
            // Bits in the width of the type, whatever the type.
            return (bits <= self.mask())
                .then_some(bits)
                .ok_or_else(|| self.out_of_range(text));
        }
        if self.is_float() {
            return self.decimal_float(plain).ok_or_else(not_a_value);
        }
        if magnitude.is_empty() || !magnitude.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(not_a_value());
        }
        let value = magnitude.parse().map_err(|_| self.out_of_range(text))?;
        self.integer(text, negative, value)
    }

    /// Whether it is one of the untyped `b` types.
    pub const fn is_untyped(self) -> bool {
        matches!(
            self,
            ElementType::B8 | ElementType::B16 | ElementType::B32 | ElementType::B64
        )
    }

    fn integer(self, text: &str, negative: bool, magnitude: u64) -> Result<u64, ValueError> {
        if self.is_float() {
            // A sign in front of the bits of a float says two things at once.
            return Err(ValueError::NotAValue {
                text: text.to_owned(),
                ty: self,
            });
        }
        // Signed types go from -2^(n-1) to 2^(n-1)-1; untyped ones take both readings.
        let below = u128::from(magnitude) <= 1u128 << (self.bits() - 1);
        let in_range = match (negative, self.is_signed(), self.is_untyped()) {
            (true, true, _) | (true, _, true) => below,
            (true, false, false) => magnitude == 0,
            (false, true, _) => magnitude <= self.mask() >> 1,
            (false, false, _) => magnitude <= self.mask(),
        };
        if !in_range {
            return Err(self.out_of_range(text));
        }
        let bits = if negative {
            magnitude.wrapping_neg()
        } else {
            magnitude
        };
        Ok(bits & self.mask())
    }

    fn decimal_float(self, text: &str) -> Option<u64> {
        // Rust reads `infinity` and any case; here there is one spelling of each.
        let value: f64 = match text {
            "nan" | "NaN" => return Some(self.quiet_nan()),
            "-nan" => return Some(self.quiet_nan() | 1 << (self.bits() - 1)),
            "inf" | "+inf" => f64::INFINITY,
            "-inf" => f64::NEG_INFINITY,
            _ if text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte)) =>
            {
                // Straight to f32, since by way of f64 it would be rounded twice.
                if self == ElementType::F32 {
                    return Some(u64::from(text.parse::<f32>().ok()?.to_bits()));
                }
                text.parse().ok()?
            }
            _ => return None,
        };
        Some(self.from_f64(value))
    }

    fn quiet_nan(self) -> u64 {
        match self {
            ElementType::F16 => 0x7e00,
            ElementType::Bf16 => 0x7fc0,
            ElementType::F32 => 0x7fc0_0000,
            ElementType::E4m3 | ElementType::E5m2 => 0x7f,
            _ => 0x7ff8_0000_0000_0000,
        }
    }

    fn out_of_range(self, text: &str) -> ValueError {
        ValueError::OutOfRange {
            text: text.to_owned(),
            ty: self,
        }
    }

    /// Spells bits as a value of this type that reads back to the same bits.
    pub fn spell(self, bits: u64) -> String {
        let bits = bits & self.mask();
        if self.is_nan(bits) && bits != self.quiet_nan() {
            return format!("{bits:#x}");
        }
        match self {
            // Debug formatting keeps `-0.0`, and exponents where digits would be many.
            ElementType::F16 => spell_float(format!("{:?}", f16::from_bits(bits as u16).to_f32())),
            ElementType::Bf16 => {
                spell_float(format!("{:?}", bf16::from_bits(bits as u16).to_f32()))
            }
            ElementType::F32 => spell_float(format!("{:?}", f32::from_bits(bits as u32))),
            ElementType::F64 | ElementType::E4m3 | ElementType::E5m2 => {
                spell_float(format!("{:?}", self.to_f64(bits)))
            }
            _ if self.is_signed() => self.sign_extend(bits).to_string(),
            _ if self.is_untyped() => format!("{bits:#x}"),
            _ => bits.to_string(),
        }
    }

    /// The range of an integer type in words, for messages.
    fn range(self) -> String {
        match self {
            _ if self.is_signed() => {
                let low = self.sign_extend(1 << (self.bits() - 1));
                format!("{low} to {}", self.mask() >> 1)
            }
            _ if self.is_untyped() => format!("{} bits", self.bits()),
            _ => format!("0 to {}", self.mask()),
        }
    }
}

fn spell_float(text: String) -> String {
    if text == "NaN" {
        "nan".to_owned()
    } else {
        text
    }
}

/// `0f` and eight digits, or `0d` and sixteen: the digits and the width.
fn float_bits(text: &str) -> Option<(&str, u32)> {
    [("0f", 32), ("0F", 32), ("0d", 64), ("0D", 64)]
        .into_iter()
        .find_map(|(prefix, width)| Some((text.strip_prefix(prefix)?, width)))
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not a type of elements: there are u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64 e4m3 e5m2 b8 b16 b32 b64"
)]
pub struct UnknownType(pub String);

impl FromStr for ElementType {
    type Err = UnknownType;

    fn from_str(text: &str) -> Result<ElementType, UnknownType> {
        ElementType::ALL
            .into_iter()
            .find(|ty| ty.as_str() == text)
            .ok_or_else(|| UnknownType(text.to_owned()))
    }
}

/// A text that is no value of its type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    /// Nothing where a value should be.
    #[error("a value of type {ty} is missing")]
    Empty {
        /// The type.
        ty: ElementType,
    },
    /// Not a number at all.
    #[error(
        "`{text}` is not a value of type {ty}{}",
        if ty.is_float() { ": write 1.5, 2e-3, nan, inf, -inf, or the bits as 0x…" } else { ": write 7, -7 or 0x7" }
    )]
    NotAValue {
        /// What was written.
        text: String,
        /// The type.
        ty: ElementType,
    },
    /// A number that does not fit.
    #[error("`{text}` does not fit {ty}, which holds {}", if ty.is_float() { format!("{} bits", ty.bits()) } else { ty.range() })]
    OutOfRange {
        /// What was written.
        text: String,
        /// The type.
        ty: ElementType,
    },
    /// `0f…` or `0d…` for a type of another width.
    #[error("`{text}` spells the bits of a {width}-bit float with {} digits, which is no value of type {ty}", width / 4)]
    FloatBits {
        /// What was written.
        text: String,
        /// The type.
        ty: ElementType,
        /// 32 or 64.
        width: u32,
    },
}

/// A value with its type.
///
/// ```
/// use heist_launch::Scalar;
/// assert_eq!(Scalar::from(1.5f32).to_bytes(), 1.5f32.to_le_bytes());
/// assert_eq!(Scalar::from(-1i32).to_string(), "s32:-1");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scalar {
    /// Its type.
    pub ty: ElementType,
    /// Its bits; zero above the type's width.
    pub bits: u64,
}

impl Scalar {
    /// A value from its bits; bits above the type's width are dropped.
    pub const fn new(ty: ElementType, bits: u64) -> Scalar {
        Scalar {
            ty,
            bits: bits & ty.mask(),
        }
    }

    /// Its bytes, little-endian, as many as its type has.
    pub fn to_bytes(self) -> Vec<u8> {
        self.bits.to_le_bytes()[..self.ty.bytes()].to_vec()
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.ty, self.ty.spell(self.bits))
    }
}

/// A Rust type with an [`ElementType`].
pub trait Element: Copy {
    /// Its element type.
    const TYPE: ElementType;
    /// Its bits.
    fn to_bits(self) -> u64;
    /// The value of bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! elements {
    ($($rust:ty => $ty:ident, |$v:ident| $to:expr, |$b:ident| $from:expr;)*) => {$(
        impl Element for $rust {
            const TYPE: ElementType = ElementType::$ty;
            fn to_bits(self) -> u64 { let $v = self; $to }
            fn from_bits($b: u64) -> $rust { $from }
        }
        impl From<$rust> for Scalar {
            fn from(value: $rust) -> Scalar { Scalar::new(ElementType::$ty, Element::to_bits(value)) }
        }
    )*};
}

elements! {
    u8 => U8, |v| u64::from(v), |b| b as u8;
    i8 => S8, |v| u64::from(v as u8), |b| b as i8;
    u16 => U16, |v| u64::from(v), |b| b as u16;
    i16 => S16, |v| u64::from(v as u16), |b| b as i16;
    u32 => U32, |v| u64::from(v), |b| b as u32;
    i32 => S32, |v| u64::from(v as u32), |b| b as i32;
    u64 => U64, |v| v, |b| b;
    i64 => S64, |v| v as u64, |b| b as i64;
    f16 => F16, |v| u64::from(v.to_bits()), |b| f16::from_bits(b as u16);
    bf16 => Bf16, |v| u64::from(v.to_bits()), |b| bf16::from_bits(b as u16);
    f32 => F32, |v| u64::from(v.to_bits()), |b| f32::from_bits(b as u32);
    f64 => F64, |v| v.to_bits(), |b| f64::from_bits(b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ElementType::*;

    #[test]
    fn integers_are_clamped_to_their_range() {
        assert_eq!(S8.from_f64(1e9), 0x7f);
        assert_eq!(S8.from_f64(-1e9), 0x80);
        assert_eq!(S16.from_f64(1e9), 0x7fff);
        assert_eq!(S64.from_f64(1e30), i64::MAX as u64);
        assert_eq!(U8.from_f64(300.0), 0xff);
    }

    #[test]
    fn values_of_every_kind() {
        for (ty, text, bits) in [
            (U8, "255", 0xff),
            (U8, "0b101", 5),
            (S8, "-128", 0x80),
            (S8, "0x80", 0x80),
            (S32, "-0x10", 0xffff_fff0),
            (U32, "0xffff_ffff", 0xffff_ffff),
            (U64, "18446744073709551615", u64::MAX),
            (S64, "-9223372036854775808", 1 << 63),
            (B32, "-1", 0xffff_ffff),
            (B32, "0f3f800000", 0x3f80_0000),
            (F16, "1.0", 0x3c00),
            (F16, "65504", 0x7bff),
            (F16, "1e9", 0x7c00),
            (Bf16, "-2", 0xc000),
            (F32, "-0.0", 0x8000_0000),
            (F32, "0f3f800000", 0x3f80_0000),
            (F32, "0x7f800001", 0x7f80_0001),
            (F32, "-inf", 0xff80_0000),
            (F32, "nan", 0x7fc0_0000),
            (F32, "-nan", 0xffc0_0000),
            (F64, "-nan", 0xfff8_0000_0000_0000),
            (F16, "-nan", 0xfe00),
            (F32, "3e", 0),
            (F64, "0d3ff0000000000000", 0x3ff0_0000_0000_0000),
        ] {
            if text == "3e" {
                assert!(ty.parse_bits(text).is_err());
            } else {
                assert_eq!(ty.parse_bits(text), Ok(bits), "{ty}:{text}");
            }
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
        for (ty, text, says) in [
            (U8, "256", "0 to 255"),
            (S8, "128", "-128 to 127"),
            (S8, "-129", "-128 to 127"),
            (B8, "-129", "8 bits"),
            (U32, "-1", "0 to 4294967295"),
            (B16, "0x10000", "16 bits"),
            (U32, "1.5", "write 7"),
            (U32, "99999999999999999999", "does not fit"),
            (F32, "one", "write 1.5"),
            (F32, "-0x1", "not a value"),
            (F32, "infinity", "not a value"),
            (F32, "0d3ff0000000000000", "64-bit float"),
            (F16, "0f3f800000", "32-bit float"),
            (F32, "0f3f8", "8 digits"),
            (F32, "", "missing"),
            (U32, "0x", "not a value"),
            (U32, "0x-1", "not a value"),
            (U32, "-", "not a value"),
        ] {
            let error = ty.parse_bits(text).expect_err(text).to_string();
            assert!(error.contains(says), "{ty}:{text}: {error}");
        }
    }

    #[test]
    fn every_half_reads_back() {
        for ty in [F16, Bf16] {
            for bits in 0..=0xffff {
                assert_eq!(ty.parse_bits(&ty.spell(bits)), Ok(bits), "{ty} {bits:#x}");
            }
        }
    }

    #[test]
    fn bits_are_the_numbers_of_their_type() {
        for (ty, bits, number) in [
            (F16, 0xc000, -2.0),
            (Bf16, 0xc000, -2.0),
            (F32, 0xc000_0000, -2.0),
            (F64, 0xc000_0000_0000_0000, -2.0),
            (E4m3, 0xc0, -2.0),
            (E5m2, 0xc0, -2.0),
            (S8, 0xfe, -2.0),
            (U8, 0xfe, 254.0),
            (B16, 0x1_0005, 5.0),
        ] {
            assert_eq!(ty.to_f64(bits), number, "{ty}");
        }
    }

    #[test]
    fn values_are_spelled_as_their_type_is_read() {
        for (ty, bits, text) in [
            (U8, 0xfe, "254"),
            (S8, 0xfe, "-2"),
            (B8, 0xfe, "0xfe"),
            (Bf16, 0xc000, "-2.0"),
            (F32, 0x7f80_0000, "inf"),
            (F32, 0x7f80_0001, "0x7f800001"),
        ] {
            assert_eq!(ty.spell(bits), text, "{ty}");
        }
    }

    #[test]
    fn poison_is_a_nan_for_floats() {
        for ty in ElementType::ALL {
            assert_eq!(ty.is_nan(ty.poison()), ty.is_float(), "{ty}");
            assert_eq!(ty.poison() & !ty.mask(), 0);
            assert_eq!(ty.as_str().parse(), Ok(ty));
        }
        assert!("f8".parse::<ElementType>().is_err());
    }

    #[test]
    fn conversion_clamps() {
        assert_eq!(S8.from_f64(-1000.0), 0x80);
        assert_eq!(S64.from_f64(f64::INFINITY), i64::MAX as u64);
        assert_eq!(U16.from_f64(1e9), 0xffff);
        assert_eq!(S16.to_f64(0xffff), -1.0);
    }
}
