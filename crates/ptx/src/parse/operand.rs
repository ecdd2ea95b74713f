//! Operands of instructions.

use super::constant::fold;
use super::cursor::{Cursor, Parsed};
use crate::diagnostic::Diagnostic;
use crate::instruction::{Address, AddressBase, Constant, Operand, Part, Picks, UnaryOp};
use crate::lex::TokenKind;
use crate::rule;

impl Cursor<'_> {
    /// One operand. In a `call`, parentheses hold lists; elsewhere, expressions.
    pub(super) fn operand(&mut self, call: bool) -> Parsed<Operand> {
        let first = match self.kind() {
            TokenKind::Word => self.named_operand()?,
            TokenKind::Number => Operand::Constant(self.constant()?),
            TokenKind::Mark(b'[') => return self.address(),
            TokenKind::Mark(b'{') => {
                self.advance();
                Operand::Vector(self.operand_list(b'}', "`,` or `}` in a vector")?)
            }
            TokenKind::Mark(b'(') if call => {
                self.advance();
                Operand::Tuple(self.operand_list(b')', "`,` or `)` in a list")?)
            }
            TokenKind::Mark(b'!') if self.kind_at(1) == TokenKind::Word => {
                self.advance();
                Operand::Not(self.name("a predicate register")?.0)
            }
            TokenKind::Mark(b'-')
                if self.kind_at(1) == TokenKind::Word && self.kind_at(2) == TokenKind::DotWord =>
            {
                self.advance();
                match self.named_operand()? {
                    Operand::Part { name, part } => Operand::NegatedPart { name, part },
                    _ => return Err(self.unexpected("a part of a register")),
                }
            }
            TokenKind::Mark(b'-' | b'+' | b'~' | b'!' | b'(') => match self.constant()? {
                // Parentheses around a name change nothing.
                Constant::Symbol(name) => Operand::Name(name),
                Constant::Unary(UnaryOp::Not, inner) => match *inner {
                    Constant::Symbol(name) => Operand::Not(name),
                    inner => Operand::Constant(Constant::Unary(UnaryOp::Not, Box::new(inner))),
                },
                constant => Operand::Constant(constant),
            },
            _ => return Err(self.unexpected("an operand")),
        };
        if self.eat(b'|') {
            let second = match self.kind() {
                TokenKind::Word => self.named_operand()?,
                _ => return Err(self.unexpected("a register behind `|`")),
            };
            return Ok(Operand::Pair(Box::new((first, second))));
        }
        Ok(first)
    }

    fn operand_list(&mut self, close: u8, what: &str) -> Parsed<Vec<Operand>> {
        self.deeper(|c| {
            let mut operands = Vec::with_capacity(4);
            if c.eat(close) {
                return Ok(operands);
            }
            loop {
                operands.push(c.operand(false)?);
                if !c.eat(b',') {
                    break;
                }
            }
            c.expect(close, what)?;
            Ok(operands)
        })
    }

    /// An operand that begins with a word.
    fn named_operand(&mut self) -> Parsed<Operand> {
        match self.slice() {
            "_" => {
                self.advance();
                return Ok(Operand::Sink);
            }
            "WARP_SZ" => return Ok(Operand::Constant(self.constant()?)),
            "generic" if self.kind_at(1) == TokenKind::Mark(b'(') => {
                return Ok(Operand::Constant(self.constant()?));
            }
            _ => {}
        }
        if self.on_new_line() && self.looks_like_an_instruction() {
            return Err(self.unexpected("an operand behind `,`"));
        }
        let name = self.name("a register")?.0;
        if let Some(part) = self.part()? {
            return Ok(Operand::Part { name, part });
        }
        if matches!(self.kind(), TokenKind::Mark(b'+' | b'-')) {
            let sum = self.constant_after(Constant::Symbol(name))?;
            return Ok(Operand::Constant(sum));
        }
        Ok(Operand::Name(name))
    }

    /// Whether `word.word` stands here, as an opcode with its modifiers would.
    fn looks_like_an_instruction(&self) -> bool {
        self.kind_at(1) == TokenKind::DotWord && !self.slice().starts_with('%')
    }

    /// `.x` and its kind, if it follows.
    fn part(&mut self) -> Parsed<Option<Part>> {
        if self.kind() != TokenKind::DotWord {
            return Ok(None);
        }
        let part = match self.slice() {
            ".x" | ".r" => Part::X,
            ".y" | ".g" => Part::Y,
            ".z" | ".b" => Part::Z,
            ".w" | ".a" => Part::W,
            ".b0" => Part::Byte(0),
            ".b1" => Part::Byte(1),
            ".b2" => Part::Byte(2),
            ".b3" => Part::Byte(3),
            ".h0" => Part::Half(0),
            ".h1" => Part::Half(1),
            other => {
                let picks = |prefix| other.strip_prefix(prefix).and_then(Picks::parse);
                if let Some(part) = picks(".b")
                    .map(Part::Bytes)
                    .or_else(|| picks(".h").map(Part::Halves))
                {
                    self.advance();
                    return Ok(Some(part));
                }
                let span = self.span();
                return Err(self.fail(
                    Diagnostic::error(
                        rule::UNEXPECTED,
                        span,
                        format!("`{other}` is no part of a register"),
                    )
                    .help("parts are `.x .y .z .w` of a vector, and `.b0`-`.b3`, `.h0`, `.h1` of a video operand"),
                ));
            }
        };
        self.advance();
        Ok(Some(part))
    }

    /// `[base+offset, rest...]`
    fn address(&mut self) -> Parsed<Operand> {
        self.advance();
        let (base, offset) = match self.kind() {
            TokenKind::Word => {
                let name = self.name("a register or a variable")?.0;
                let base = match self.part()? {
                    Some(part) => AddressBase::Part { name, part },
                    None => AddressBase::Name(name),
                };
                (base, self.offset()?)
            }
            TokenKind::Number | TokenKind::Mark(b'(') => {
                let address = self.unsigned("an address")?;
                (AddressBase::Absolute(address), None)
            }
            _ => return Err(self.unexpected("a register, a variable or a number")),
        };
        let mut rest = Vec::new();
        while self.eat(b',') {
            rest.push(self.deeper(|c| c.operand(false))?);
        }
        self.expect(b']', "`]` behind the address")?;
        Ok(Operand::Address(Address {
            base,
            offset: offset.unwrap_or(0),
            plus_zero: offset == Some(0),
            rest,
        }))
    }

    /// The bytes added to an address: a sum of numbers, if one follows.
    fn offset(&mut self) -> Parsed<Option<i64>> {
        let span = self.span();
        if !matches!(self.kind(), TokenKind::Mark(b'+' | b'-')) {
            return Ok(None);
        }
        let zero = Constant::Int(crate::instruction::Integer::decimal(0));
        let sum = self.constant_after(zero)?;
        fold(&sum).map(Some).ok_or_else(|| {
            let span = self.since(span);
            self.fail(
                Diagnostic::error(
                    rule::UNEXPECTED,
                    span,
                    "only numbers can be added in an address",
                )
                .help("add two registers with `add.s64` first"),
            )
        })
    }
}
