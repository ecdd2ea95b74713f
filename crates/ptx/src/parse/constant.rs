//! Numbers and constant expressions.

use super::cursor::{Cursor, Parsed};
use crate::diagnostic::Diagnostic;
use crate::instruction::{BinaryOp, Constant, Integer, Radix, UnaryOp};
use crate::lex::TokenKind;
use crate::rule;

/// Operators in one constant expression.
const MAX_TERMS: u32 = 64;

impl Cursor<'_> {
    /// A constant expression.
    pub(super) fn constant(&mut self) -> Parsed<Constant> {
        self.terms = 0;
        self.select()
    }

    /// `?:` and all that binds tighter.
    fn select(&mut self) -> Parsed<Constant> {
        self.deeper(|c| {
            let condition = c.binary(0)?;
            if !c.eat(b'?') {
                return Ok(condition);
            }
            let yes = c.select()?;
            c.expect(b':', "`:` of `?:`")?;
            let no = c.select()?;
            Ok(Constant::Select(Box::new((condition, yes, no))))
        })
    }

    /// Precedence climbing over the binary operators, weakest first.
    fn binary(&mut self, weakest: u8) -> Parsed<Constant> {
        let left = self.unary()?;
        self.binary_after(left, weakest)
    }

    /// `name+offset`, whose name was read.
    pub(super) fn constant_after(&mut self, first: Constant) -> Parsed<Constant> {
        self.terms = 0;
        self.binary_after(first, 0)
    }

    fn binary_after(&mut self, first: Constant, weakest: u8) -> Parsed<Constant> {
        let mut left = first;
        while let Some(op) = self.operator() {
            if op.strength() < weakest {
                break;
            }
            // A chain such as a+b+c is read without recursion, but walking or dropping it recurses:
            // so its length is limited too.
            self.terms += 1;
            if self.terms > MAX_TERMS {
                let span = self.span();
                return Err(self.fail_at(
                    rule::TOO_LARGE,
                    span,
                    format!("more than {MAX_TERMS} operators in one constant expression"),
                ));
            }
            self.advance();
            let right = self.deeper(|c| c.binary(op.strength() + 1))?;
            left = Constant::Binary(op, Box::new((left, right)));
        }
        Ok(left)
    }

    fn operator(&self) -> Option<BinaryOp> {
        use BinaryOp::*;
        Some(match self.kind() {
            TokenKind::Double(b'|', b'|') => Or,
            TokenKind::Double(b'&', b'&') => And,
            TokenKind::Mark(b'|') => BitOr,
            TokenKind::Mark(b'^') => BitXor,
            TokenKind::Mark(b'&') => BitAnd,
            TokenKind::Double(b'=', b'=') => Eq,
            TokenKind::Double(b'!', b'=') => Ne,
            TokenKind::Mark(b'<') => Lt,
            TokenKind::Mark(b'>') => Gt,
            TokenKind::Double(b'<', b'=') => Le,
            TokenKind::Double(b'>', b'=') => Ge,
            TokenKind::Double(b'<', b'<') => Shl,
            TokenKind::Double(b'>', b'>') => Shr,
            TokenKind::Mark(b'+') => Add,
            TokenKind::Mark(b'-') => Sub,
            TokenKind::Mark(b'*') => Mul,
            TokenKind::Mark(b'/') => Div,
            TokenKind::Mark(b'%') => Rem,
            _ => return None,
        })
    }

    fn unary(&mut self) -> Parsed<Constant> {
        let op = match self.kind() {
            TokenKind::Mark(b'-') => UnaryOp::Minus,
            TokenKind::Mark(b'+') => UnaryOp::Plus,
            TokenKind::Mark(b'!') => UnaryOp::Not,
            TokenKind::Mark(b'~') => UnaryOp::Complement,
            _ => return self.primary(),
        };
        self.advance();
        let value = self.deeper(Self::unary)?;
        Ok(match (op, value) {
            // `-5` is one number, so that it prints and compares as one.
            (UnaryOp::Minus, Constant::Int(int)) if !int.negative && int.magnitude != 0 => {
                Constant::Int(Integer {
                    negative: true,
                    ..int
                })
            }
            (UnaryOp::Minus, Constant::F64(bits)) => Constant::F64(bits ^ (1 << 63)),
            (op, value) => Constant::Unary(op, Box::new(value)),
        })
    }

    fn primary(&mut self) -> Parsed<Constant> {
        match self.kind() {
            TokenKind::Number => {
                let number = self.number()?;
                match number {
                    Constant::Int(mask) if self.is(b'(') => {
                        self.advance();
                        let value = self.select()?;
                        self.expect(b')', "`)` behind the masked address")?;
                        Ok(Constant::Mask(mask.magnitude, Box::new(value)))
                    }
                    number => Ok(number),
                }
            }
            TokenKind::Word if self.is_word("WARP_SZ") => {
                self.advance();
                Ok(Constant::WarpSize)
            }
            TokenKind::Word
                if self.is_word("generic") && self.kind_at(1) == TokenKind::Mark(b'(') =>
            {
                self.advance();
                self.advance();
                let value = self.select()?;
                self.expect(b')', "`)` of `generic(...)`")?;
                Ok(Constant::Generic(Box::new(value)))
            }
            TokenKind::Word if !self.is_word("_") => Ok(Constant::Symbol(self.name("a name")?.0)),
            TokenKind::Mark(b'(') => {
                self.advance();
                if let Some(signed) = self.cast() {
                    self.advance();
                    self.expect(b')', "`)` behind the type of a cast")?;
                    let value = Box::new(self.deeper(Self::unary)?);
                    return Ok(Constant::Cast { signed, value });
                }
                let value = self.select()?;
                self.expect(b')', "`)`")?;
                Ok(value)
            }
            _ => Err(self.unexpected("a number or a name")),
        }
    }

    fn cast(&self) -> Option<bool> {
        if self.is_word(".s64") {
            Some(true)
        } else if self.is_word(".u64") {
            Some(false)
        } else {
            None
        }
    }

    /// One number in any notation.
    pub(super) fn number(&mut self) -> Parsed<Constant> {
        if self.kind() != TokenKind::Number {
            return Err(self.unexpected("a number"));
        }
        let span = self.span();
        let text = self.slice_of(span);
        match read_number(text) {
            Ok(value) => {
                self.advance();
                Ok(value)
            }
            Err(reason) => Err(self.fail(
                Diagnostic::error(rule::BAD_NUMBER, span, format!("`{text}` is not a number"))
                    .label(reason)
                    .help("PTX has `10`, `0x0A`, `012`, `0b1010`, `1.5e3`, and the exact bits of a float as `0f` with 8 or `0d` with 16 hex digits"),
            )),
        }
    }

    /// A whole number that is not negative; an expression is worked out.
    pub(super) fn unsigned(&mut self, what: &str) -> Parsed<u64> {
        let span = self.span();
        if !matches!(self.kind(), TokenKind::Number | TokenKind::Mark(b'(')) {
            return Err(self.unexpected(what));
        }
        let constant = self.constant()?;
        match fold(&constant) {
            Some(value) if value >= 0 || matches!(constant, Constant::Int(_)) => Ok(value as u64),
            _ => {
                let span = self.since(span);
                Err(self.fail_at(rule::BAD_NUMBER, span, format!("expected {what}")))
            }
        }
    }

    /// An [`unsigned`](Self::unsigned) that fits in 32 bits.
    pub(super) fn unsigned32(&mut self, what: &str) -> Parsed<u32> {
        let span = self.span();
        let value = self.unsigned(what)?;
        u32::try_from(value).map_err(|_| {
            let span = self.since(span);
            self.fail_at(
                rule::BAD_NUMBER,
                span,
                format!("{value} is too large for {what}"),
            )
        })
    }
}

/// Works out an expression of whole numbers, in 64-bit two's complement.
pub(super) fn fold(constant: &Constant) -> Option<i64> {
    use BinaryOp::*;
    Some(match constant {
        Constant::Int(int) => int.bits() as i64,
        Constant::WarpSize => 32,
        Constant::Unary(op, value) => {
            let value = fold(value)?;
            match op {
                UnaryOp::Plus => value,
                UnaryOp::Minus => value.wrapping_neg(),
                UnaryOp::Not => i64::from(value == 0),
                UnaryOp::Complement => !value,
            }
        }
        Constant::Binary(op, sides) => {
            let (a, b) = (fold(&sides.0)?, fold(&sides.1)?);
            match op {
                Mul => a.wrapping_mul(b),
                Div => a.checked_div(b)?,
                // Unsigned, whatever the operands: ptxas has -7 % 4 as 1.
                Rem => (a as u64).checked_rem(b as u64)? as i64,
                Add => a.wrapping_add(b),
                Sub => a.wrapping_sub(b),
                Shl => a.checked_shl(u32::try_from(b).ok()?)?,
                Shr => a.checked_shr(u32::try_from(b).ok()?)?,
                Lt => i64::from(a < b),
                Gt => i64::from(a > b),
                Le => i64::from(a <= b),
                Ge => i64::from(a >= b),
                Eq => i64::from(a == b),
                Ne => i64::from(a != b),
                BitAnd => a & b,
                BitXor => a ^ b,
                BitOr => a | b,
                And => i64::from(a != 0 && b != 0),
                Or => i64::from(a != 0 || b != 0),
            }
        }
        Constant::Select(parts) => {
            if fold(&parts.0)? != 0 {
                fold(&parts.1)?
            } else {
                fold(&parts.2)?
            }
        }
        Constant::Cast { value, .. } => fold(value)?,
        _ => return None,
    })
}

fn read_number(text: &str) -> Result<Constant, &'static str> {
    let bytes = text.as_bytes();
    if let [b'0', b'f' | b'F', digits @ ..] = bytes {
        return match (digits.len(), u32::from_str_radix(&text[2..], 16)) {
            (8, Ok(bits)) => Ok(Constant::F32(bits)),
            _ => Err("an f32 is `0f` and 8 hex digits"),
        };
    }
    if let [b'0', b'd' | b'D', digits @ ..] = bytes {
        return match (digits.len(), u64::from_str_radix(&text[2..], 16)) {
            (16, Ok(bits)) => Ok(Constant::F64(bits)),
            _ => Err("an f64 is `0d` and 16 hex digits"),
        };
    }
    if text.contains('.') || (is_decimal_exponent(text)) {
        return match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Constant::F64(value.to_bits())),
            Ok(_) => Err("too large for an f64"),
            Err(_) => Err("not a decimal number"),
        };
    }
    let (digits, unsigned) = match text.strip_suffix('U') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let (digits, radix, base) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], Radix::Hex, 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], Radix::Binary, 2),
        [b'0', _, ..] => (&digits[1..], Radix::Octal, 8),
        _ => (digits, Radix::Decimal, 10),
    };
    let mut magnitude = 0u64;
    if digits.is_empty() {
        return Err("no digits");
    }
    for byte in digits.bytes() {
        let digit = (byte as char)
            .to_digit(base)
            .ok_or("not a digit of this notation")?;
        magnitude = magnitude
            .checked_mul(u64::from(base))
            .and_then(|value| value.checked_add(u64::from(digit)))
            .ok_or("does not fit in 64 bits")?;
    }
    Ok(Constant::Int(Integer {
        magnitude,
        negative: false,
        unsigned,
        radix,
    }))
}

fn is_decimal_exponent(text: &str) -> bool {
    let mantissa = text.trim_start_matches(|c: char| c.is_ascii_digit());
    mantissa.len() < text.len() && mantissa.starts_with(['e', 'E'])
}
