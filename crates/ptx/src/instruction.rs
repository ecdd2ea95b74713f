//! Instructions and their operands.
//!
//! An [`Opcode`] keeps the whole dotted spelling, `ld.global.v4.f32`, in one
//! short string: it prints as it is, compares in one go, and its parts are
//! found by walking the dots.

use crate::module::Name;
use crate::span::Span;
use smol_str::SmolStr;

/// `@!%p1 add.s32 %r1, %r2, 5;`
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// `@%p` or `@!%p`.
    pub guard: Option<Guard>,
    /// The opcode with its modifiers.
    pub opcode: Opcode,
    /// The operands, in order.
    pub operands: Vec<Operand>,
    /// From the guard to the semicolon.
    pub span: Span,
}

impl Instruction {
    /// An unguarded instruction that was never text.
    pub fn new(opcode: impl Into<Opcode>, operands: Vec<Operand>) -> Instruction {
        Instruction {
            guard: None,
            opcode: opcode.into(),
            operands,
            span: Span::NONE,
        }
    }
}

/// The predicate in front of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// The predicate register.
    pub register: Name,
    /// `@!`.
    pub negated: bool,
}

/// An opcode and its modifiers: `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`.
///
/// ```
/// use heist_ptx::Opcode;
/// let op = Opcode::from("ld.global.v4.f32");
/// assert_eq!(op.base(), "ld");
/// assert!(op.has("v4") && !op.has("v"));
/// assert!(op.starts_with("ld.global"));
/// assert!(!op.starts_with("ld.glob"));
/// assert_eq!(op.modifiers().last(), Some("f32"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(SmolStr);

impl Opcode {
    /// The whole spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands before the first dot.
    pub fn base(&self) -> &str {
        let end = self.0.bytes().position(|byte| byte == b'.');
        end.map_or(&*self.0, |end| &self.0[..end])
    }

    /// What stands after each dot, in order.
    pub fn modifiers(&self) -> impl DoubleEndedIterator<Item = &str> {
        let mut parts = self.0.split('.');
        parts.next();
        parts
    }

    /// Whether one of the modifiers is exactly `modifier` (written without its dot).
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers().any(|m| m == modifier)
    }

    /// Whether the opcode begins with these parts, whole: `cp.async.bulk`.
    pub fn starts_with(&self, parts: &str) -> bool {
        self.0
            .strip_prefix(parts)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

impl<T: Into<SmolStr>> From<T> for Opcode {
    fn from(text: T) -> Opcode {
        Opcode(text.into())
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an instruction works on.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, a label, a function, or a variable's address.
    Name(Name),
    /// One part of a register: `%tid.x`, `v.y`, `%r1.b0`.
    Part {
        /// The register.
        name: Name,
        /// The part.
        part: Part,
    },
    /// `-%r1.h0`: one part of a register, negated, in `vmad`.
    NegatedPart {
        /// The register.
        name: Name,
        /// The part.
        part: Part,
    },
    /// A number, or an address that the assembler knows.
    Constant(Constant),
    /// `[base+offset]`, or a tuple of them for textures and tensors.
    Address(Address),
    /// `{a, b, c, d}`.
    Vector(Vec<Operand>),
    /// `a|b`.
    Pair(Box<(Operand, Operand)>),
    /// `!p`.
    Not(Name),
    /// `_`.
    Sink,
    /// `(a, b)`: what a call takes or returns.
    Tuple(Vec<Operand>),
}

impl Operand {
    /// A name as an operand.
    pub fn name(name: impl Into<Name>) -> Operand {
        Operand::Name(name.into())
    }

    /// A whole number as an operand.
    pub fn int(value: i64) -> Operand {
        Operand::Constant(Constant::Int(Integer::decimal(value)))
    }

    /// `[base+offset]`.
    pub fn address(base: impl Into<Name>, offset: i64) -> Operand {
        Operand::Address(Address {
            base: AddressBase::Name(base.into()),
            offset,
            plus_zero: false,
            rest: Vec::new(),
        })
    }
}

/// A part of a vector register, of a special register, or of a packed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// `.x` (also written `.r`)
    X,
    /// `.y` (also written `.g`)
    Y,
    /// `.z` (also written `.b`)
    Z,
    /// `.w` (also written `.a`)
    W,
    /// `.b0` … `.b3`: a byte, in video instructions.
    Byte(u8),
    /// `.h0`, `.h1`: a half, in video instructions.
    Half(u8),
    /// `.b3210`, `.b76`: several bytes of one or two registers, highest first,
    /// in SIMD video instructions.
    Bytes(Picks),
    /// `.h10`, `.h32`: two halves likewise.
    Halves(Picks),
}

/// Which bytes or halves are taken, as the digits that spell them.
///
/// ```
/// use heist_ptx::Picks;
/// let picks = Picks::parse("3210").unwrap();
/// assert_eq!(picks.digits().collect::<Vec<_>>(), [3, 2, 1, 0]);
/// assert!(Picks::parse("9").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Picks {
    digits: [u8; 4],
    count: u8,
}

impl Picks {
    /// Two to four digits from 0 to 7.
    pub fn parse(text: &str) -> Option<Picks> {
        let mut digits = [0; 4];
        if !(2..=4).contains(&text.len()) {
            return None;
        }
        for (slot, byte) in digits.iter_mut().zip(text.bytes()) {
            *slot = byte.checked_sub(b'0').filter(|&digit| digit < 8)?;
        }
        Some(Picks {
            digits,
            count: text.len() as u8,
        })
    }

    /// The digits, as written.
    pub fn digits(self) -> impl Iterator<Item = u8> {
        self.digits.into_iter().take(usize::from(self.count))
    }
}

/// `[base+offset, rest...]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// What it is counted from.
    pub base: AddressBase,
    /// Bytes added to it.
    pub offset: i64,
    /// Whether `+0` is written out: it changes nothing, but an assembler that
    /// does not optimise makes an addition of it.
    pub plus_zero: bool,
    /// What follows a comma: a sampler and coordinates, a tensor's coordinates.
    pub rest: Vec<Operand>,
}

/// What an address is counted from.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressBase {
    /// A register or a variable.
    Name(Name),
    /// A part of a vector register.
    Part {
        /// The register.
        name: Name,
        /// The part.
        part: Part,
    },
    /// An absolute address.
    Absolute(u64),
}

/// How a whole number was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Radix {
    /// `10`
    Decimal,
    /// `0xA`
    Hex,
    /// `012`
    Octal,
    /// `0b1010`
    Binary,
}

/// A whole number, remembered as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integer {
    /// The magnitude.
    pub magnitude: u64,
    /// Whether a minus stands before it.
    pub negative: bool,
    /// Whether a `U` stands behind it.
    pub unsigned: bool,
    /// How it is written.
    pub radix: Radix,
}

impl Integer {
    /// A number in decimal.
    pub fn decimal(value: i64) -> Integer {
        Integer {
            magnitude: value.unsigned_abs(),
            negative: value < 0,
            unsigned: false,
            radix: Radix::Decimal,
        }
    }

    /// A number in hexadecimal.
    pub fn hex(value: u64) -> Integer {
        Integer {
            magnitude: value,
            negative: false,
            unsigned: false,
            radix: Radix::Hex,
        }
    }

    /// Its 64-bit two's complement.
    pub fn bits(self) -> u64 {
        if self.negative {
            self.magnitude.wrapping_neg()
        } else {
            self.magnitude
        }
    }
}

/// A value known when the file is assembled.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// A whole number.
    Int(Integer),
    /// `0f3F800000`: the bits of an f32.
    F32(u32),
    /// `0d3FF0000000000000`: the bits of an f64. A decimal number such as `1.5`
    /// is this too, for PTX reads it as an f64 wherever it stands.
    F64(u64),
    /// The address of a variable or function, or a debug label.
    Symbol(Name),
    /// `generic(variable)`.
    Generic(Box<Constant>),
    /// `0xFF00(variable)`: some bytes of an address.
    Mask(u64, Box<Constant>),
    /// `-x`, `!x`, `~x`, `+x`.
    Unary(UnaryOp, Box<Constant>),
    /// `a + b` and its kind.
    Binary(BinaryOp, Box<(Constant, Constant)>),
    /// `c ? a : b`.
    Select(Box<(Constant, Constant, Constant)>),
    /// `(.s64) x` when signed, `(.u64) x` when not.
    Cast {
        /// Whether to `.s64`.
        signed: bool,
        /// What is cast.
        value: Box<Constant>,
    },
    /// `WARP_SZ`.
    WarpSize,
}

/// An operator with one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum UnaryOp {
    Plus,
    Minus,
    Not,
    Complement,
}

/// An operator with two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Mul,
    Div,
    Rem,
    Add,
    Sub,
    Shl,
    Shr,
    Lt,
    Gt,
    Le,
    Ge,
    Eq,
    Ne,
    BitAnd,
    BitXor,
    BitOr,
    And,
    Or,
}

impl BinaryOp {
    /// How tightly it binds; a larger number binds tighter.
    pub(crate) fn strength(self) -> u8 {
        use BinaryOp::*;
        match self {
            Or => 1,
            And => 2,
            BitOr => 3,
            BitXor => 4,
            BitAnd => 5,
            Eq | Ne => 6,
            Lt | Gt | Le | Ge => 7,
            Shl | Shr => 8,
            Add | Sub => 9,
            Mul | Div | Rem => 10,
        }
    }
}
