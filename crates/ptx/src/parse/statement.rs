//! Statements: the inside of functions.

use super::cursor::{Broken, Cursor, Parsed};
use super::directive::unknown_directive;
use crate::diagnostic::Diagnostic;
use crate::instruction::{Guard, Instruction, Opcode};
use crate::lex::TokenKind;
use crate::module::{CallPrototype, Linkage, Name, Statement};
use crate::rule;
use crate::span::Span;
use crate::types::Space;

/// The directives that can begin a statement.
const STATEMENTS: &[&str] = &[
    ".reg", ".local", ".shared", ".param", ".const", ".global", ".loc", ".pragma",
];

impl Cursor<'_> {
    /// The statements of a scope whose `{` was read, and its `}`.
    pub(super) fn body(&mut self) -> Parsed<Vec<Statement>> {
        let open = self.previous();
        self.deeper(|c| {
            let mut statements = Vec::new();
            loop {
                let comments = c.comments_before_token(!statements.is_empty());
                statements.extend(comments.into_iter().map(Statement::Comment));
                if c.eat(b'}') {
                    return Ok(statements);
                }
                if c.at_end() || c.exhausted() {
                    return Err(c.unclosed(open));
                }
                let (from, count) = (c.place(), statements.len());
                if c.statement(&mut statements).is_err() {
                    c.skip_statement(from);
                }
                let inside = c.comments_inside();
                if !inside.is_empty() {
                    statements.splice(count..count, inside.into_iter().map(Statement::Comment));
                }
            }
        })
    }

    fn unclosed(&mut self, open: Span) -> Broken {
        if self.cut_short() {
            return Broken;
        }
        let end = self.previous().end as usize;
        let diagnostic = Diagnostic::error(
            rule::UNEXPECTED,
            Span::new(end, end),
            "expected `}`, found the end of the file",
        )
        .other(open, "this scope is still open")
        .help("close it; or is the file cut short?");
        self.fail(diagnostic)
    }

    /// One statement; a declaration of several variables gives several.
    fn statement(&mut self, statements: &mut Vec<Statement>) -> Parsed<()> {
        match self.kind() {
            TokenKind::Word if self.kind_at(1) == TokenKind::Mark(b':') => {
                let (name, span) = self.name("a label")?;
                self.advance();
                statements.push(self.labelled(name, span)?);
            }
            TokenKind::Word | TokenKind::Mark(b'@') => {
                statements.push(Statement::Instruction(self.instruction()?));
            }
            TokenKind::DotWord => self.directive_statement(statements)?,
            TokenKind::Mark(b'{') => {
                self.advance();
                statements.push(Statement::Block(self.body()?));
            }
            TokenKind::Mark(b';') => {
                self.advance();
            }
            _ => return Err(self.unexpected("an instruction, a label or a directive")),
        }
        Ok(())
    }

    fn directive_statement(&mut self, statements: &mut Vec<Statement>) -> Parsed<()> {
        match self.slice() {
            ".reg" => statements.push(Statement::Registers(self.registers()?)),
            ".loc" => statements.push(Statement::Loc(self.loc()?)),
            ".pragma" => statements.push(Statement::Pragma(self.pragma()?)),
            word => {
                let linkage = match word {
                    ".extern" => Linkage::Extern,
                    ".visible" => Linkage::Visible,
                    ".weak" => Linkage::Weak,
                    _ => Linkage::Private,
                };
                if linkage != Linkage::Private {
                    self.advance();
                }
                if self.space().is_none_or(|space| space == Space::Sreg) {
                    let diagnostic = unknown_directive(self.slice(), self.span(), STATEMENTS);
                    return Err(self.fail(diagnostic));
                }
                let variables = self.variables(linkage)?;
                statements.extend(variables.into_iter().map(Statement::Variable));
            }
        }
        Ok(())
    }

    /// What follows `label:`; for most labels, nothing that belongs to them.
    fn labelled(&mut self, label: Name, span: Span) -> Parsed<Statement> {
        if self.kind() != TokenKind::DotWord {
            return Ok(Statement::Label { name: label, span });
        }
        match self.slice() {
            ".branchtargets" => {
                self.advance();
                let targets = self.names("a label")?;
                self.end_statement("the branch targets")?;
                Ok(Statement::BranchTargets {
                    label,
                    targets,
                    span,
                })
            }
            ".calltargets" => {
                self.advance();
                let targets = self.names("a function")?;
                self.end_statement("the call targets")?;
                Ok(Statement::CallTargets {
                    label,
                    targets,
                    span,
                })
            }
            ".callprototype" => {
                self.advance();
                let returns = if self.is(b'(') {
                    self.parameters()?
                } else {
                    Vec::new()
                };
                let name = self.name("`_`")?.0;
                let params = if self.is(b'(') {
                    self.parameters()?
                } else {
                    Vec::new()
                };
                let directives = self.function_directives()?;
                self.end_statement("the prototype")?;
                Ok(Statement::CallPrototype(CallPrototype {
                    label,
                    returns,
                    name,
                    params,
                    directives,
                    span,
                }))
            }
            _ => Ok(Statement::Label { name: label, span }),
        }
    }

    fn instruction(&mut self) -> Parsed<Instruction> {
        let start = self.span();
        let guard = if self.eat(b'@') {
            let negated = self.eat(b'!');
            let register = self.name("a predicate register")?.0;
            Some(Guard { register, negated })
        } else {
            None
        };
        let opcode = self.opcode()?;
        let call = opcode.base() == "call";
        let mut operands = Vec::new();
        if !self.is(b';') {
            operands.reserve(4);
            loop {
                operands.push(self.operand(call)?);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        let span = self.since(start);
        self.end_statement(format_args!("`{}`", opcode.base()))?;
        Ok(Instruction {
            guard,
            opcode,
            operands,
            span,
        })
    }

    fn opcode(&mut self) -> Parsed<Opcode> {
        if self.kind() != TokenKind::Word {
            return Err(self.unexpected("an instruction"));
        }
        let mut span = self.advance().span();
        // Blanks or comments between an opcode and its modifiers are legal and
        // rare; only then is it put together piece by piece.
        let mut pieces: Option<String> = None;
        while self.kind() == TokenKind::DotWord {
            if pieces.is_none() && !self.is_glued() {
                pieces = Some(self.slice_of(span).to_owned());
            }
            let modifier = self.advance().span();
            if let Some(pieces) = &mut pieces {
                pieces.push_str(self.slice_of(modifier));
            }
            span = span.to(modifier);
        }
        Ok(match pieces {
            Some(pieces) => Opcode::from(pieces),
            None => Opcode::from(self.slice_of(span)),
        })
    }
}
