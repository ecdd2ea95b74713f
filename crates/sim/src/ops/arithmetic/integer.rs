//! Integer arithmetic.

use crate::access::context::Cx;
use crate::access::doubt;
use crate::code::{Flow, Slot};
use crate::decode::map::{one, three, three_to, two, two_to, with};
use crate::decode::mods::{Mods, only, operands};
use crate::decode::{Cost, Decoded, Decoder};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, Lane, to_mask};
use heist_arith::int::{self, carry, packed};
use heist_ptx::{Instruction, ScalarType};

/// Calls `$decode` for the Rust type and the arithmetic module of a PTX type.
macro_rules! by_type {
    ($d:ident, $i:ident, $ty:ident, $decode:ident, $f:ident, $cost:expr) => {
        match $ty {
            ScalarType::U16 => $decode::<u16>($d, $i, $ty, $cost, int::u16::$f),
            ScalarType::S16 => $decode::<u16>($d, $i, $ty, $cost, int::s16::$f),
            ScalarType::U32 => $decode::<u32>($d, $i, $ty, $cost, int::u32::$f),
            ScalarType::S32 => $decode::<u32>($d, $i, $ty, $cost, int::s32::$f),
            ScalarType::U64 => $decode::<u64>($d, $i, $ty, $cost, int::u64::$f),
            ScalarType::S64 => $decode::<u64>($d, $i, $ty, $cost, int::s64::$f),
            _ => Err($d.unsupported($i, "this type has no such operation")),
        }
    };
}

macro_rules! packed {
    ($d:ident, $i:ident, $ty:ident, $f:ident) => {
        match $ty {
            ScalarType::U16x2 => two::<u32>($d, $i, $ty, Cost::ALU, packed::u16x2::$f),
            _ => two::<u32>($d, $i, $ty, Cost::ALU, packed::s16x2::$f),
        }
    };
}

pub(crate) fn decode(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
) -> Decoded<()> {
    let wide_type = matches!(ty, ScalarType::U64 | ScalarType::S64 | ScalarType::B64);
    let multiply = if wide_type { Cost::WIDE } else { Cost::ALU };
    let pair = matches!(ty, ScalarType::U16x2 | ScalarType::S16x2);
    only(
        d,
        i,
        mods,
        &["lo", "hi", "wide", "sat", "cc", "relu", "u8x4", "s8x4"],
    )?;
    match i.opcode.base() {
        "add" | "sub" if mods.has("cc") => carrying(d, i, ty, false, true),
        "addc" | "subc" => carrying(d, i, ty, true, mods.has("cc")),
        "madc" => mad_carrying(d, i, mods, ty, true),
        "mad" if mods.has("cc") => mad_carrying(d, i, mods, ty, false),
        "add" if pair && mods.has("sat") => packed!(d, i, ty, add_sat),
        "add" if pair => packed!(d, i, ty, add),
        "sub" if pair && mods.has("sat") => packed!(d, i, ty, sub_sat),
        "sub" if pair => packed!(d, i, ty, sub),
        "min" if pair && mods.has("relu") => two::<u32>(d, i, ty, Cost::ALU, |a, b| {
            packed::relu_s16x2(packed::s16x2::min(a, b))
        }),
        "max" if pair && mods.has("relu") => two::<u32>(d, i, ty, Cost::ALU, |a, b| {
            packed::relu_s16x2(packed::s16x2::max(a, b))
        }),
        "min" if mods.has("relu") => two::<u32>(d, i, ty, Cost::ALU, |a, b| {
            packed::relu_s32(int::s32::min(a, b))
        }),
        "max" if mods.has("relu") => two::<u32>(d, i, ty, Cost::ALU, |a, b| {
            packed::relu_s32(int::s32::max(a, b))
        }),
        "min" if pair => packed!(d, i, ty, min),
        "max" if pair => packed!(d, i, ty, max),
        "neg" if pair => one::<u32>(d, i, ty, Cost::ALU, packed::s16x2::neg),
        "add" if mods.has("sat") => by_type!(d, i, ty, two, add_sat, Cost::ALU),
        "add" => by_type!(d, i, ty, two, add, Cost::ALU),
        "sub" if mods.has("sat") => by_type!(d, i, ty, two, sub_sat, Cost::ALU),
        "sub" => by_type!(d, i, ty, two, sub, Cost::ALU),
        "mul" if mods.has("wide") => wide_mul(d, i, ty),
        "mul" if mods.has("hi") => by_type!(d, i, ty, two, mul_hi, multiply),
        "mul" => by_type!(d, i, ty, two, mul_lo, multiply),
        "mad" if mods.has("wide") => wide_mad(d, i, ty),
        "mad" if mods.has("hi") && mods.has("sat") => {
            by_type!(d, i, ty, three, mad_hi_sat, multiply)
        }
        "mad" if mods.has("hi") => by_type!(d, i, ty, three, mad_hi, multiply),
        "mad" => by_type!(d, i, ty, three, mad_lo, multiply),
        "div" => dividing(d, i, ty, |d| by_type!(d, i, ty, two, div, Cost::ROUTINE)),
        "rem" => dividing(d, i, ty, |d| by_type!(d, i, ty, two, rem, Cost::ROUTINE)),
        "min" => by_type!(d, i, ty, two, min, Cost::ALU),
        "max" => by_type!(d, i, ty, two, max, Cost::ALU),
        "abs" => by_type!(d, i, ty, one, abs, Cost::ALU),
        "neg" => by_type!(d, i, ty, one, neg, Cost::ALU),
        "sad" => by_type!(d, i, ty, three, sad, Cost::ALU),
        "mul24" => match (ty, mods.has("hi")) {
            (ScalarType::S32, false) => two::<u32>(d, i, ty, Cost::ALU, packed::mul24_lo::<true>),
            (ScalarType::S32, true) => two::<u32>(d, i, ty, Cost::ALU, packed::mul24_hi::<true>),
            (_, false) => two::<u32>(d, i, ty, Cost::ALU, packed::mul24_lo::<false>),
            (_, true) => two::<u32>(d, i, ty, Cost::ALU, packed::mul24_hi::<false>),
        },
        "mad24" => match (ty, mods.has("hi"), mods.has("sat")) {
            (_, true, true) => three::<u32>(d, i, ty, Cost::ALU, packed::mad24_hi_sat),
            (ScalarType::S32, false, _) => {
                three::<u32>(d, i, ty, Cost::ALU, packed::mad24_lo::<true>)
            }
            (ScalarType::S32, true, _) => {
                three::<u32>(d, i, ty, Cost::ALU, packed::mad24_hi::<true>)
            }
            (_, false, _) => three::<u32>(d, i, ty, Cost::ALU, packed::mad24_lo::<false>),
            (_, true, _) => three::<u32>(d, i, ty, Cost::ALU, packed::mad24_hi::<false>),
        },
        "dp4a" | "dp2a" => dot(d, i, mods),
        _ => Err(d.unsupported(i, "this type has no such operation")),
    }
}

/// A division whose divisor is looked at: zero is not an error to the hardware, and the result is
/// anything.
fn dividing<'d>(
    d: &mut Decoder<'d>,
    i: &Instruction,
    ty: ScalarType,
    divide: impl FnOnce(&mut Decoder<'d>) -> Decoded<()>,
) -> Decoded<()> {
    let divisor = &operands(d, i, 3)?[2];
    if d.immediate(divisor).is_some_and(|value| value != 0) {
        return divide(d);
    }
    let (slot, rows) = d.src_any(divisor, ty)?;
    let bits = ty.bits();
    divide(d)?;
    d.around_last(|inner| {
        Box::new(Division {
            inner,
            slot,
            rows,
            bits,
        })
    });
    Ok(())
}

struct Division {
    inner: Box<dyn Instr>,
    /// The divisor: its register, the rows of that, and its own bits.
    slot: Slot,
    rows: u32,
    bits: u32,
}

impl Instr for Division {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let values = crate::decode::qualifier::read_bits(cx, self.slot, self.rows);
        let zero = to_mask(values.map(|value| value << (64 - self.bits) == 0)) & cx.mask;
        let flow = self.inner.step(cx);
        if zero != 0 {
            doubt::quotient(cx, zero);
        }
        flow
    }
}

fn wide_mul(d: &mut Decoder<'_>, i: &Instruction, ty: ScalarType) -> Decoded<()> {
    use ScalarType::*;
    match ty {
        U16 => two_to::<u16, u16, u32>(d, i, [U32, ty, ty], Cost::ALU, int::u16::mul_wide),
        S16 => two_to::<u16, u16, u32>(d, i, [S32, ty, ty], Cost::ALU, int::s16::mul_wide),
        U32 => two_to::<u32, u32, u64>(d, i, [U64, ty, ty], Cost::ALU, int::u32::mul_wide),
        S32 => two_to::<u32, u32, u64>(d, i, [S64, ty, ty], Cost::ALU, int::s32::mul_wide),
        U64 => two_to::<u64, u64, u128>(d, i, [B128, ty, ty], Cost::WIDE, int::u64::mul_wide),
        S64 => two_to::<u64, u64, u128>(d, i, [B128, ty, ty], Cost::WIDE, int::s64::mul_wide),
        _ => Err(d.unsupported(i, "this type has no wide product")),
    }
}

fn wide_mad(d: &mut Decoder<'_>, i: &Instruction, ty: ScalarType) -> Decoded<()> {
    use ScalarType::*;
    match ty {
        U16 => {
            three_to::<u16, u16, u32, u32>(d, i, [U32, ty, ty, U32], Cost::ALU, int::u16::mad_wide)
        }
        S16 => {
            three_to::<u16, u16, u32, u32>(d, i, [S32, ty, ty, S32], Cost::ALU, int::s16::mad_wide)
        }
        U32 => {
            three_to::<u32, u32, u64, u64>(d, i, [U64, ty, ty, U64], Cost::ALU, int::u32::mad_wide)
        }
        S32 => {
            three_to::<u32, u32, u64, u64>(d, i, [S64, ty, ty, S64], Cost::ALU, int::s32::mad_wide)
        }
        _ => Err(d.unsupported(i, "this type has no wide product")),
    }
}

fn dot(d: &mut Decoder<'_>, i: &Instruction, mods: &Mods<'_>) -> Decoded<()> {
    use ScalarType::*;
    let signs: Vec<bool> = mods.types().map(|ty| ty == S32).collect();
    let (a, b) = (signs.first() == Some(&true), signs.get(1) == Some(&true));
    let types = [if a || b { S32 } else { U32 }, U32, U32, U32];
    let cost = Cost::ALU;
    if i.opcode.base() == "dp4a" {
        match (a, b) {
            (false, false) => {
                three_to::<u32, u32, u32, u32>(d, i, types, cost, packed::dp4a::<false, false>)
            }
            (false, true) => {
                three_to::<u32, u32, u32, u32>(d, i, types, cost, packed::dp4a::<false, true>)
            }
            (true, false) => {
                three_to::<u32, u32, u32, u32>(d, i, types, cost, packed::dp4a::<true, false>)
            }
            (true, true) => {
                three_to::<u32, u32, u32, u32>(d, i, types, cost, packed::dp4a::<true, true>)
            }
        }
    } else {
        macro_rules! dp2a {
            ($a:literal, $b:literal) => {
                if mods.has("hi") {
                    three_to::<u32, u32, u32, u32>(d, i, types, cost, packed::dp2a::<$a, $b, true>)
                } else {
                    three_to::<u32, u32, u32, u32>(d, i, types, cost, packed::dp2a::<$a, $b, false>)
                }
            };
        }
        match (a, b) {
            (false, false) => dp2a!(false, false),
            (false, true) => dp2a!(false, true),
            (true, false) => dp2a!(true, false),
            (true, true) => dp2a!(true, true),
        }
    }
}

/// Runs `f(lane, carry in) -> (value, carry out)` over the warp. `first` is the
/// carry that a chain starts with; without it, the chain goes on.
fn run_carrying<T: Lane>(
    cx: &mut Cx<'_>,
    target: Slot,
    first: Option<bool>,
    gives: bool,
    f: impl Fn(usize, bool) -> (T, bool),
) -> Flow {
    let before = match first {
        None => cx.warp.carry,
        Some(carry) => to_mask([carry; LANES]),
    };
    let mut out = [T::default(); LANES];
    let mut carries = [false; LANES];
    for lane in 0..LANES {
        (out[lane], carries[lane]) = f(lane, before >> lane & 1 != 0);
    }
    cx.write(target, &out);
    if gives {
        cx.warp.carry = cx.warp.carry & !cx.mask | to_mask(carries) & cx.mask;
    }
    Flow::Next
}

fn carrying(
    d: &mut Decoder<'_>,
    i: &Instruction,
    ty: ScalarType,
    takes: bool,
    gives: bool,
) -> Decoded<()> {
    let o = operands(d, i, 3)?;
    let (a, b) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?);
    let target = d.dst(&o[0], ty)?;
    let subtract = i.opcode.base().starts_with("sub");
    // A chain of subtractions starts with the carry set, one of additions without.
    let first = (!takes).then_some(subtract);
    let instr = if ty.bits() == 64 {
        with(move |cx| {
            let (a, b) = (cx.read::<u64>(a), cx.read::<u64>(b));
            run_carrying(cx, target, first, gives, |lane, carry| {
                let f = if subtract {
                    carry::u64::sub
                } else {
                    carry::u64::add
                };
                f(a[lane], b[lane], carry)
            })
        })
    } else {
        with(move |cx| {
            let (a, b) = (cx.read::<u32>(a), cx.read::<u32>(b));
            run_carrying(cx, target, first, gives, |lane, carry| {
                let f = if subtract {
                    carry::u32::sub
                } else {
                    carry::u32::add
                };
                f(a[lane], b[lane], carry)
            })
        })
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}

fn mad_carrying(
    d: &mut Decoder<'_>,
    i: &Instruction,
    mods: &Mods<'_>,
    ty: ScalarType,
    takes: bool,
) -> Decoded<()> {
    let o = operands(d, i, 4)?;
    let (a, b, c) = (d.src(&o[1], ty)?, d.src(&o[2], ty)?, d.src(&o[3], ty)?);
    let target = d.dst(&o[0], ty)?;
    let (high, gives) = (mods.has("hi"), mods.has("cc"));
    let first = (!takes).then_some(false);
    let signed = matches!(ty, ScalarType::S32 | ScalarType::S64);
    macro_rules! mad {
        ($bits:ty, $module:ident) => {
            with(move |cx| {
                let (a, b, c) = (
                    cx.read::<$bits>(a),
                    cx.read::<$bits>(b),
                    cx.read::<$bits>(c),
                );
                run_carrying(cx, target, first, gives, |lane, carry| {
                    let f = match (high, signed) {
                        (false, _) => carry::$module::mad_lo,
                        (true, true) => carry::$module::mad_hi_signed,
                        (true, false) => carry::$module::mad_hi_unsigned,
                    };
                    f(a[lane], b[lane], c[lane], carry)
                })
            })
        };
    }
    let instr = if ty.bits() == 64 {
        mad!(u64, u64)
    } else {
        mad!(u32, u32)
    };
    d.emit(instr, Cost::ALU);
    Ok(())
}
