//! Operands and constants to text.

use crate::instruction::{
    Address, AddressBase, BinaryOp, Constant, Integer, Operand, Part, Radix, UnaryOp,
};
use std::fmt::Write;

pub(super) fn operand(out: &mut String, item: &Operand) {
    match item {
        Operand::Name(name) => out.push_str(name),
        Operand::Part { name, part: p } => {
            out.push_str(name);
            part(out, *p);
        }
        Operand::NegatedPart { name, part: p } => {
            out.push('-');
            out.push_str(name);
            part(out, *p);
        }
        Operand::Constant(value) => constant_operand(out, value),
        Operand::Address(value) => address(out, value),
        Operand::Vector(items) => list(out, '{', items, '}'),
        Operand::Pair(pair) => {
            operand(out, &pair.0);
            out.push('|');
            operand(out, &pair.1);
        }
        Operand::Not(name) => {
            out.push('!');
            out.push_str(name);
        }
        Operand::Sink => out.push('_'),
        Operand::Tuple(items) => list(out, '(', items, ')'),
    }
}

fn list(out: &mut String, open: char, items: &[Operand], close: char) {
    out.push(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push_str(", ");
        }
        operand(out, item);
    }
    out.push(close);
}

fn part(out: &mut String, part: Part) {
    let _ = match part {
        Part::X => out.write_str(".x"),
        Part::Y => out.write_str(".y"),
        Part::Z => out.write_str(".z"),
        Part::W => out.write_str(".w"),
        Part::Byte(n) => write!(out, ".b{n}"),
        Part::Half(n) => write!(out, ".h{n}"),
        Part::Bytes(picks) => {
            out.push_str(".b");
            picks.digits().try_for_each(|digit| write!(out, "{digit}"))
        }
        Part::Halves(picks) => {
            out.push_str(".h");
            picks.digits().try_for_each(|digit| write!(out, "{digit}"))
        }
    };
}

fn address(out: &mut String, address: &Address) {
    out.push('[');
    match &address.base {
        AddressBase::Name(name) => out.push_str(name),
        AddressBase::Part { name, part: p } => {
            out.push_str(name);
            part(out, *p);
        }
        AddressBase::Absolute(at) => {
            let _ = write!(out, "{at}");
        }
    }
    if address.offset != 0 || address.plus_zero {
        // `+-8` is how compilers write it, and what every assembler takes.
        let _ = write!(out, "+{}", address.offset);
    }
    for item in &address.rest {
        out.push_str(", ");
        operand(out, item);
    }
    out.push(']');
}

/// A constant as an operand. A name there is taken for a register, behind which
/// only `+` and `-` go on with an expression; one that begins with a name and
/// goes on otherwise stands in parentheses.
fn constant_operand(out: &mut String, value: &Constant) {
    let parentheses = begins_with_name(value) && !is_sum(value);
    if parentheses {
        out.push('(');
    }
    constant(out, value);
    if parentheses {
        out.push(')');
    }
}

fn begins_with_name(value: &Constant) -> bool {
    match value {
        Constant::Symbol(_) => true,
        Constant::Binary(_, sides) => begins_with_name(&sides.0),
        Constant::Select(parts) => begins_with_name(&parts.0),
        _ => false,
    }
}

/// Whether it begins with `name+` or `name-` and has no `?`.
fn is_sum(value: &Constant) -> bool {
    match value {
        Constant::Binary(op, sides) => match &sides.0 {
            Constant::Symbol(_) => matches!(op, BinaryOp::Add | BinaryOp::Sub),
            left => is_sum(left),
        },
        _ => false,
    }
}

/// A constant expression.
pub(super) fn constant(out: &mut String, value: &Constant) {
    match value {
        Constant::Int(int) => integer(out, *int),
        Constant::F32(bits) => {
            let _ = write!(out, "0f{bits:08X}");
        }
        Constant::F64(bits) => {
            let _ = write!(out, "0d{bits:016X}");
        }
        Constant::Symbol(name) => out.push_str(name),
        Constant::Generic(inner) => {
            out.push_str("generic(");
            constant(out, inner);
            out.push(')');
        }
        Constant::Mask(mask, inner) => {
            let _ = write!(out, "{mask:#X}(");
            constant(out, inner);
            out.push(')');
        }
        Constant::Unary(op, inner) => {
            out.push(match op {
                UnaryOp::Plus => '+',
                UnaryOp::Minus => '-',
                UnaryOp::Not => '!',
                UnaryOp::Complement => '~',
            });
            within(out, inner, u8::MAX);
        }
        Constant::Binary(op, sides) => {
            within(out, &sides.0, op.strength());
            out.push_str(binary(*op));
            within(out, &sides.1, op.strength() + 1);
        }
        Constant::Select(parts) => {
            within(out, &parts.0, 0);
            out.push_str(" ? ");
            constant(out, &parts.1);
            out.push_str(" : ");
            constant(out, &parts.2);
        }
        Constant::Cast { signed, value } => {
            out.push_str(if *signed { "(.s64)" } else { "(.u64)" });
            within(out, value, u8::MAX);
        }
        Constant::WarpSize => out.push_str("WARP_SZ"),
    }
}

/// An inner constant, in parentheses where it binds less tightly than `strength`.
fn within(out: &mut String, value: &Constant, strength: u8) {
    let loose = match value {
        Constant::Binary(op, _) => op.strength() < strength,
        Constant::Select(_) => true,
        _ => false,
    };
    if loose {
        out.push('(');
    }
    constant(out, value);
    if loose {
        out.push(')');
    }
}

fn integer(out: &mut String, int: Integer) {
    if int.negative {
        out.push('-');
    }
    let value = int.magnitude;
    let _ = match int.radix {
        Radix::Decimal => write!(out, "{value}"),
        Radix::Hex => write!(out, "0x{value:X}"),
        Radix::Octal => write!(out, "0{value:o}"),
        Radix::Binary => write!(out, "0b{value:b}"),
    };
    if int.unsigned {
        out.push('U');
    }
}

fn binary(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Mul => "*",
        BinaryOp::Div => "/",
        BinaryOp::Rem => " % ",
        BinaryOp::Add => "+",
        BinaryOp::Sub => "-",
        BinaryOp::Shl => "<<",
        BinaryOp::Shr => ">>",
        BinaryOp::Lt => "<",
        BinaryOp::Gt => ">",
        BinaryOp::Le => "<=",
        BinaryOp::Ge => ">=",
        BinaryOp::Eq => "==",
        BinaryOp::Ne => "!=",
        BinaryOp::BitAnd => "&",
        BinaryOp::BitXor => "^",
        BinaryOp::BitOr => "|",
        BinaryOp::And => "&&",
        BinaryOp::Or => "||",
    }
}
