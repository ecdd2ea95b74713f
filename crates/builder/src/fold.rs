//! Constant folding while a kernel is built.
//!
//! Whole numbers wrap as they do on the GPU. `f32` and `f64` round to nearest
//! even, as the emitted `.rn` instructions do; a NaN is left to the GPU, whose
//! payload differs.

use crate::scalar::ScalarKind;

/// An operation with two sides of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Compare {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Compare::Eq => "eq",
            Compare::Ne => "ne",
            Compare::Lt => "lt",
            Compare::Le => "le",
            Compare::Gt => "gt",
            Compare::Ge => "ge",
        }
    }

    fn holds(self, order: std::cmp::Ordering) -> bool {
        use std::cmp::Ordering::*;
        match self {
            Compare::Eq => order == Equal,
            Compare::Ne => order != Equal,
            Compare::Lt => order == Less,
            Compare::Le => order != Greater,
            Compare::Gt => order == Greater,
            Compare::Ge => order != Less,
        }
    }
}

fn mask(kind: ScalarKind) -> u64 {
    u64::MAX >> (64 - kind.width())
}

/// The number that these bits are, for a signed kind.
fn signed(kind: ScalarKind, bits: u64) -> i64 {
    let shift = 64 - kind.width();
    ((bits << shift) as i64) >> shift
}

/// The result's bits, where it can be known.
pub(crate) fn binary(op: Binary, kind: ScalarKind, a: u64, b: u64) -> Option<u64> {
    match kind {
        ScalarKind::Bool => Some(match op {
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            _ => return None,
        }),
        ScalarKind::F32 => {
            let (x, y) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
            let result = match op {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                _ => return None,
            };
            (!result.is_nan()).then(|| result.to_bits().into())
        }
        ScalarKind::F64 => {
            let (x, y) = (f64::from_bits(a), f64::from_bits(b));
            let result = match op {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                _ => return None,
            };
            (!result.is_nan()).then(|| result.to_bits())
        }
        kind if kind.integer() => integer(op, kind, a, b).map(|bits| bits & mask(kind)),
        _ => None,
    }
}

fn integer(op: Binary, kind: ScalarKind, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (signed(kind, a), signed(kind, b));
    Some(match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Div if kind.signed() => x.checked_div(y)? as u64,
        Binary::Rem if kind.signed() => x.checked_rem(y)? as u64,
        Binary::Div => a.checked_div(b)?,
        Binary::Rem => a.checked_rem(b)?,
        Binary::Min if kind.signed() => x.min(y) as u64,
        Binary::Max if kind.signed() => x.max(y) as u64,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
    })
}

/// Whether a comparison of constants holds, where it can be known.
pub(crate) fn compare(op: Compare, kind: ScalarKind, a: u64, b: u64) -> Option<bool> {
    let order = match kind {
        ScalarKind::F32 => f32::from_bits(a as u32).partial_cmp(&f32::from_bits(b as u32))?,
        ScalarKind::F64 => f64::from_bits(a).partial_cmp(&f64::from_bits(b))?,
        kind if kind.signed() => signed(kind, a).cmp(&signed(kind, b)),
        kind if kind.integer() => a.cmp(&b),
        _ => return None,
    };
    Some(op.holds(order))
}

/// The result of `a op b` when one side is a neutral or an absorbing constant.
pub(crate) enum Simple {
    Left,
    Right,
    Constant(u64),
}

/// Identities of whole numbers and predicates: `x + 0`, `x * 1`, `x & true`, ...
pub(crate) fn identity(
    op: Binary,
    kind: ScalarKind,
    a: Option<u64>,
    b: Option<u64>,
) -> Option<Simple> {
    if kind == ScalarKind::Bool {
        return match (op, a, b) {
            (Binary::And, Some(1), _) | (Binary::Or | Binary::Xor, Some(0), _) => {
                Some(Simple::Right)
            }
            (Binary::And, _, Some(1)) | (Binary::Or | Binary::Xor, _, Some(0)) => {
                Some(Simple::Left)
            }
            (Binary::And, Some(0), _) | (Binary::And, _, Some(0)) => Some(Simple::Constant(0)),
            (Binary::Or, Some(1), _) | (Binary::Or, _, Some(1)) => Some(Simple::Constant(1)),
            _ => None,
        };
    }
    if !kind.integer() {
        return None;
    }
    match (op, a, b) {
        (Binary::Add | Binary::Or | Binary::Xor, Some(0), _) => Some(Simple::Right),
        (Binary::Add | Binary::Sub | Binary::Or | Binary::Xor, _, Some(0)) => Some(Simple::Left),
        (Binary::Mul, Some(1), _) => Some(Simple::Right),
        (Binary::Mul | Binary::Div, _, Some(1)) => Some(Simple::Left),
        (Binary::Mul | Binary::And, Some(0), _) | (Binary::Mul | Binary::And, _, Some(0)) => {
            Some(Simple::Constant(0))
        }
        (Binary::Rem, _, Some(1)) => Some(Simple::Constant(0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_wrap_like_registers() {
        assert_eq!(
            binary(Binary::Add, ScalarKind::U32, 0xFFFF_FFFF, 1),
            Some(0)
        );
        assert_eq!(
            binary(Binary::Div, ScalarKind::I32, 0xFFFF_FFF8, 2),
            Some(0xFFFF_FFFC)
        );
        assert_eq!(binary(Binary::Div, ScalarKind::U32, 1, 0), None);
        assert_eq!(
            binary(Binary::Min, ScalarKind::I16, 0xFFFF, 1),
            Some(0xFFFF)
        );
    }

    #[test]
    fn a_nan_is_left_to_the_gpu() {
        let inf = u64::from(f32::INFINITY.to_bits());
        assert_eq!(binary(Binary::Sub, ScalarKind::F32, inf, inf), None);
        assert_eq!(
            compare(Compare::Eq, ScalarKind::F32, f32::NAN.to_bits().into(), 0),
            None
        );
    }

    #[test]
    fn signed_and_unsigned_compare_differently() {
        assert_eq!(
            compare(Compare::Lt, ScalarKind::I32, 0xFFFF_FFFF, 0),
            Some(true)
        );
        assert_eq!(
            compare(Compare::Lt, ScalarKind::U32, 0xFFFF_FFFF, 0),
            Some(false)
        );
    }
}
