//! Values that are known when the module is read.

use heist_ptx::{BinaryOp, Constant, Name, ScalarType, UnaryOp};
use rustc_hash::FxHashMap;

/// Addresses of variables and functions: in their space, and generic.
pub(crate) type Symbols = FxHashMap<Name, (u64, u64)>;

/// The bits of a constant as a value of type `ty`; none for a symbol that is not known
/// or a division by zero.
pub(crate) fn evaluate(constant: &Constant, ty: ScalarType, symbols: &Symbols) -> Option<u64> {
    use ScalarType::*;
    let float = match constant {
        Constant::F32(bits) => match ty {
            F32 | B32 | U32 | S32 | Tf32 => return Some(u64::from(*bits)),
            _ => Some(f64::from(f32::from_bits(*bits))),
        },
        Constant::F64(bits) => match ty {
            F64 | B64 | U64 | S64 => return Some(*bits),
            _ => Some(f64::from_bits(*bits)),
        },
        Constant::Unary(UnaryOp::Minus, inner) if is_float(inner) => {
            let sign = 1u64 << (ty.bits() - 1);
            return Some(evaluate(inner, ty, symbols)? ^ sign);
        }
        Constant::Unary(UnaryOp::Plus, inner) if is_float(inner) => {
            return evaluate(inner, ty, symbols);
        }
        _ => None,
    };
    if let Some(value) = float {
        return Some(match ty {
            F64 | B64 => value.to_bits(),
            F32 | B32 | Tf32 => u64::from((value as f32).to_bits()),
            _ => return None,
        });
    }
    let bits = integer(constant, symbols)?;
    Some(match ty {
        F32 => u64::from((bits as i64 as f32).to_bits()),
        F64 => (bits as i64 as f64).to_bits(),
        _ => bits & mask(ty.bits()),
    })
}

fn is_float(constant: &Constant) -> bool {
    match constant {
        Constant::F32(_) | Constant::F64(_) => true,
        Constant::Unary(_, inner) => is_float(inner),
        _ => false,
    }
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// The value of an integer expression, 64 bits of two's complement.
pub(crate) fn integer(constant: &Constant, symbols: &Symbols) -> Option<u64> {
    Some(match constant {
        Constant::Int(value) => value.bits(),
        Constant::F32(_) | Constant::F64(_) => return None,
        Constant::Symbol(name) => symbols.get(name)?.0,
        Constant::Generic(inner) => match &**inner {
            Constant::Symbol(name) => symbols.get(name)?.1,
            Constant::Binary(op, sides) => {
                let Constant::Symbol(name) = &sides.0 else {
                    return None;
                };
                let by = integer(&sides.1, symbols)?;
                match op {
                    BinaryOp::Add => symbols.get(name)?.1.wrapping_add(by),
                    BinaryOp::Sub => symbols.get(name)?.1.wrapping_sub(by),
                    _ => return None,
                }
            }
            _ => return None,
        },
        Constant::Mask(mask, inner) => {
            let shift = mask.trailing_zeros();
            (integer(inner, symbols)? & mask) >> (shift & 63)
        }
        Constant::Unary(op, inner) => {
            let value = integer(inner, symbols)?;
            match op {
                UnaryOp::Plus => value,
                UnaryOp::Minus => value.wrapping_neg(),
                UnaryOp::Not => u64::from(value == 0),
                UnaryOp::Complement => !value,
            }
        }
        Constant::Binary(op, sides) => {
            let (a, b) = (integer(&sides.0, symbols)?, integer(&sides.1, symbols)?);
            binary(*op, a, b, is_unsigned(&sides.0) || is_unsigned(&sides.1))?
        }
        Constant::Select(sides) => {
            if integer(&sides.0, symbols)? != 0 {
                integer(&sides.1, symbols)?
            } else {
                integer(&sides.2, symbols)?
            }
        }
        Constant::Cast { value, .. } => integer(value, symbols)?,
        Constant::WarpSize => 32,
    })
}

fn is_unsigned(constant: &Constant) -> bool {
    match constant {
        Constant::Int(value) => {
            value.unsigned || (!value.negative && value.magnitude > i64::MAX as u64)
        }
        Constant::Cast { signed, .. } => !signed,
        Constant::Unary(UnaryOp::Minus | UnaryOp::Plus | UnaryOp::Complement, inner) => {
            is_unsigned(inner)
        }
        Constant::Symbol(_) | Constant::Generic(_) | Constant::Mask(..) => true,
        Constant::Binary(op, sides) => {
            use BinaryOp::*;
            let takes_after_operands =
                matches!(op, Add | Sub | Mul | Div | BitAnd | BitOr | BitXor);
            matches!(op, Rem)
                || takes_after_operands && (is_unsigned(&sides.0) || is_unsigned(&sides.1))
        }
        _ => false,
    }
}

fn binary(op: BinaryOp, a: u64, b: u64, unsigned: bool) -> Option<u64> {
    use BinaryOp::*;
    let (sa, sb) = (a as i64, b as i64);
    let pick = |u: bool, s: bool| u64::from(if unsigned { u } else { s });
    Some(match op {
        Mul => a.wrapping_mul(b),
        Div if unsigned => a.checked_div(b)?,
        Div => sa.checked_div(sb)? as u64,
        // Unsigned, whatever the operands: ptxas has -7 % 4 as 1.
        Rem => a.checked_rem(b)?,
        Add => a.wrapping_add(b),
        Sub => a.wrapping_sub(b),
        Shl => a.checked_shl(b as u32).unwrap_or(0),
        Shr if unsigned => a.checked_shr(b as u32).unwrap_or(0),
        Shr => (sa >> b.min(63)) as u64,
        Lt => pick(a < b, sa < sb),
        Gt => pick(a > b, sa > sb),
        Le => pick(a <= b, sa <= sb),
        Ge => pick(a >= b, sa >= sb),
        Eq => u64::from(a == b),
        Ne => u64::from(a != b),
        BitAnd => a & b,
        BitXor => a ^ b,
        BitOr => a | b,
        And => u64::from(a != 0 && b != 0),
        Or => u64::from(a != 0 || b != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_ptx::Integer;

    fn int(value: i64) -> Constant {
        Constant::Int(Integer::decimal(value))
    }

    #[test]
    fn floats_take_the_width_that_is_asked_for() {
        let none = Symbols::default();
        assert_eq!(
            evaluate(&Constant::F64(1.5f64.to_bits()), ScalarType::F32, &none),
            Some(0x3fc0_0000)
        );
        assert_eq!(
            evaluate(&Constant::F32(0x7fc0_1234), ScalarType::B32, &none),
            Some(0x7fc0_1234)
        );
        let minus = Constant::Unary(UnaryOp::Minus, Box::new(Constant::F32(0x3f80_0000)));
        assert_eq!(evaluate(&minus, ScalarType::F32, &none), Some(0xbf80_0000));
    }

    #[test]
    fn integers_wrap_and_compare_by_their_sign() {
        let none = Symbols::default();
        assert_eq!(evaluate(&int(-1), ScalarType::U16, &none), Some(0xffff));
        let less = Constant::Binary(BinaryOp::Lt, Box::new((int(-1), int(1))));
        assert_eq!(integer(&less, &none), Some(1));
        for (op, of) in [
            (BinaryOp::Lt, [1, 0, 0]),
            (BinaryOp::Le, [1, 1, 0]),
            (BinaryOp::Gt, [0, 0, 1]),
            (BinaryOp::Ge, [0, 1, 1]),
            (BinaryOp::Eq, [0, 1, 0]),
            (BinaryOp::Ne, [1, 0, 1]),
        ] {
            let holds = [2, 3, 4].map(|value| {
                let both = Box::new((int(value), int(3)));
                integer(&Constant::Binary(op, both), &none)
            });
            assert_eq!(holds, of.map(Some), "{op:?}");
        }
        for (op, of) in [(BinaryOp::And, [0, 0, 0, 1]), (BinaryOp::Or, [0, 1, 1, 1])] {
            let holds = [(0, 0), (0, 4), (3, 0), (3, 4)].map(|(a, b)| {
                let both = Box::new((int(a), int(b)));
                integer(&Constant::Binary(op, both), &none)
            });
            assert_eq!(holds, of.map(Some), "{op:?}");
        }
        let zero = Constant::Binary(BinaryOp::Div, Box::new((int(1), int(0))));
        assert_eq!(integer(&zero, &none), None);
    }

    #[test]
    fn symbols_have_an_address_in_their_space_and_a_generic_one() {
        let mut symbols = Symbols::default();
        symbols.insert("x".into(), (8, 0x1008));
        let x = Constant::Symbol("x".into());
        assert_eq!(integer(&x, &symbols), Some(8));
        assert_eq!(
            integer(&Constant::Generic(Box::new(x.clone())), &symbols),
            Some(0x1008)
        );
        let mask = Constant::Mask(0xff00, Box::new(Constant::Generic(Box::new(x))));
        assert_eq!(integer(&mask, &symbols), Some(0x10));
    }
}
