//! Declarations and the other directives that stand alike inside and outside
//! of functions.

use super::cursor::{Cursor, Parsed};
use crate::diagnostic::Diagnostic;
use crate::instruction::{BinaryOp, Constant};
use crate::lex::TokenKind;
use crate::module::{
    Attribute, FileDirective, Initializer, InlinedAt, Linkage, Loc, Name, PointerInfo, Pragma,
    RegisterName, Registers, Section, SectionLine, Variable,
};
use crate::rule;
use crate::span::Span;
use crate::types::{ScalarType, Space, VectorWidth};

/// What a declaration says before its first name.
struct Declarator {
    linkage: Linkage,
    space: Space,
    bank: Option<u32>,
    attributes: Vec<Attribute>,
    align: Option<u32>,
    vector: Option<VectorWidth>,
    ty: ScalarType,
    pointer: Option<PointerInfo>,
}

impl Cursor<'_> {
    /// The state space that the next token names, if it names one.
    pub(super) fn space(&self) -> Option<Space> {
        if self.kind() != TokenKind::DotWord {
            return None;
        }
        self.slice()[1..].parse().ok()
    }

    /// `.shared .align 16 .b8 a[64], b[32] = {1, 2};`, from its space on.
    pub(super) fn variables(&mut self, linkage: Linkage) -> Parsed<Vec<Variable>> {
        let first = self.declarator(linkage)?;
        let mut variables = Vec::with_capacity(1);
        loop {
            let mut variable = self.declared(&first)?;
            if self.eat(b'=') {
                variable.init = Some(self.initializer()?);
            }
            variables.push(variable);
            if !self.eat(b',') {
                break;
            }
        }
        self.end_statement("the declaration")?;
        Ok(variables)
    }

    /// A parameter of a function: a declaration with one name and no `;`.
    pub(super) fn parameter(&mut self) -> Parsed<Variable> {
        if !matches!(self.space(), Some(Space::Param | Space::Reg)) {
            return Err(self.unexpected("`.param`"));
        }
        let declarator = self.declarator(Linkage::Private)?;
        self.declared(&declarator)
    }

    fn declarator(&mut self, linkage: Linkage) -> Parsed<Declarator> {
        let Some(space) = self.space() else {
            return Err(self.unexpected("a state space, such as `.global`"));
        };
        self.advance();
        let mut bank = None;
        if space == Space::Const && self.eat(b'[') {
            bank = Some(self.unsigned32("the number of a constant bank")?);
            self.expect(b']', "`]` behind the constant bank")?;
        }
        let mut attributes = Vec::new();
        let mut align = None;
        let mut vector = None;
        let mut ty = None;
        let mut pointer = None;
        while self.kind() == TokenKind::DotWord {
            let span = self.span();
            match self.slice() {
                ".attribute" => attributes.extend(self.attributes()?),
                ".align" => {
                    self.advance();
                    align = Some(self.unsigned32("an alignment in bytes")?);
                }
                ".ptr" => {
                    self.advance();
                    pointer = Some(self.pointer()?);
                }
                word => {
                    if let Some(width) = vector_width(word) {
                        vector = Some(width);
                    } else if let Ok(scalar) = word[1..].parse() {
                        if ty.is_some() {
                            return Err(self.fail_at(
                                rule::MISPLACED_DIRECTIVE,
                                span,
                                "a second type in one declaration",
                            ));
                        }
                        ty = Some(scalar);
                    } else {
                        return Err(self.fail(
                            Diagnostic::error(
                                rule::UNKNOWN_DIRECTIVE,
                                span,
                                format!("`{word}` is no type, alignment or attribute"),
                            )
                            .help("a declaration is a space, then `.align N`, then a type such as `.b32`, then a name"),
                        ));
                    }
                    self.advance();
                }
            }
        }
        let Some(ty) = ty else {
            return Err(self.unexpected("a type, such as `.b32`"));
        };
        Ok(Declarator {
            linkage,
            space,
            bank,
            attributes,
            align,
            vector,
            ty,
            pointer,
        })
    }

    fn declared(&mut self, from: &Declarator) -> Parsed<Variable> {
        let (name, span) = self.name("the name of what is declared")?;
        let mut dims = Vec::new();
        while self.eat(b'[') {
            if self.eat(b']') {
                dims.push(None);
                continue;
            }
            dims.push(Some(self.unsigned("an array size")?));
            self.expect(b']', "`]` behind the array size")?;
        }
        Ok(Variable {
            linkage: from.linkage,
            space: from.space,
            bank: from.bank,
            attributes: from.attributes.clone(),
            align: from.align,
            vector: from.vector,
            ty: from.ty,
            pointer: from.pointer,
            name,
            dims,
            init: None,
            span,
        })
    }

    /// What follows `.ptr`.
    fn pointer(&mut self) -> Parsed<PointerInfo> {
        let space = self.space().filter(|space| {
            matches!(
                space,
                Space::Const | Space::Global | Space::Local | Space::Shared
            )
        });
        if space.is_some() {
            self.advance();
        }
        let align = if self.eat_word(".align") {
            Some(self.unsigned32("an alignment in bytes")?)
        } else {
            None
        };
        Ok(PointerInfo { space, align })
    }

    /// `.attribute(.managed, .unified(1, 2))`.
    pub(super) fn attributes(&mut self) -> Parsed<Vec<Attribute>> {
        self.advance();
        self.expect(b'(', "`(` behind `.attribute`")?;
        let mut attributes = Vec::new();
        loop {
            if self.kind() != TokenKind::DotWord {
                return Err(self.unexpected("an attribute, such as `.managed`"));
            }
            let name = Name::new(&self.slice()[1..]);
            self.advance();
            let mut values = Vec::new();
            if self.eat(b'(') {
                loop {
                    values.push(self.unsigned("a number")?);
                    if !self.eat(b',') {
                        break;
                    }
                }
                self.expect(b')', "`)`")?;
            }
            attributes.push(Attribute { name, values });
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')', "`)` behind the attributes")?;
        Ok(attributes)
    }

    fn initializer(&mut self) -> Parsed<Initializer> {
        if !self.eat(b'{') {
            return Ok(Initializer::Value(self.constant()?));
        }
        self.deeper(|c| {
            let mut list = Vec::new();
            while !c.is(b'}') {
                if c.kind() == TokenKind::Word && c.kind_at(1) == TokenKind::Mark(b'=') {
                    let name = c.name("a field")?.0;
                    c.advance();
                    list.push(Initializer::Field(name, c.constant()?));
                } else {
                    list.push(c.initializer()?);
                }
                if !c.eat(b',') {
                    break;
                }
            }
            c.expect(b'}', "`,` or `}` in the initialiser")?;
            Ok(Initializer::List(list))
        })
    }

    /// `.reg .b32 %r<10>, %x;`
    pub(super) fn registers(&mut self) -> Parsed<Registers> {
        self.advance();
        let mut vector = None;
        let mut ty = None;
        while self.kind() == TokenKind::DotWord {
            let word = self.slice();
            if let Some(width) = vector_width(word) {
                vector = Some(width);
            } else if let Ok(scalar) = word[1..].parse() {
                ty = Some(scalar);
            } else {
                return Err(self.unexpected("a register type, such as `.b32`"));
            }
            self.advance();
        }
        let Some(ty) = ty else {
            return Err(self.unexpected("a register type, such as `.b32`"));
        };
        let mut names = Vec::with_capacity(1);
        loop {
            let (name, span) = self.name("a register name, such as `%r<10>`")?;
            let count = if self.eat(b'<') {
                let count = self.plain_number32("how many registers")?;
                self.expect(b'>', "`>` behind the number of registers")?;
                Some(count)
            } else {
                None
            };
            names.push(RegisterName { name, count, span });
            if !self.eat(b',') {
                break;
            }
        }
        self.end_statement("the register declaration")?;
        Ok(Registers { vector, ty, names })
    }

    /// A number that is no expression: in `%r<10>` the `>` is no operator.
    pub(super) fn plain_number32(&mut self, what: &str) -> Parsed<u32> {
        let span = self.span();
        if self.kind() != TokenKind::Number {
            return Err(self.unexpected(what));
        }
        match self.number()? {
            Constant::Int(int) if int.magnitude <= u64::from(u32::MAX) => Ok(int.magnitude as u32),
            _ => Err(self.fail_at(
                rule::BAD_NUMBER,
                span,
                format!("expected {what}, as a number below 2^32"),
            )),
        }
    }

    /// `.pragma "a", "b";`
    pub(super) fn pragma(&mut self) -> Parsed<Pragma> {
        let start = self.span();
        self.advance();
        let mut strings = vec![self.string("the text of the pragma, in quotes")?];
        while self.eat(b',') {
            strings.push(self.string("another pragma, in quotes")?);
        }
        let span = self.since(start);
        self.end_statement("the pragma")?;
        Ok(Pragma { strings, span })
    }

    /// `.file 1 "path" [, time, size]`
    pub(super) fn file(&mut self) -> Parsed<FileDirective> {
        let start = self.span();
        self.advance();
        let index = self.plain_number32("the number of the file")?;
        let path = self.string("the path of the file, in quotes")?;
        let stamp = if self.eat(b',') {
            let time = self.unsigned("a time stamp")?;
            self.expect(b',', "`,` and the size of the file")?;
            Some((time, self.unsigned("the size of the file")?))
        } else {
            None
        };
        Ok(FileDirective {
            index,
            path,
            stamp,
            span: self.since(start),
        })
    }

    /// `.loc 1 20 5 [, function_name L, inlined_at 1 30 2]`
    pub(super) fn loc(&mut self) -> Parsed<Loc> {
        let start = self.span();
        self.advance();
        let file = self.plain_number32("the number of a `.file`")?;
        let line = self.plain_number32("a line")?;
        let column = self.plain_number32("a column")?;
        let inlined = if self.eat(b',') {
            Some(self.inlined_at()?)
        } else {
            None
        };
        Ok(Loc {
            file,
            line,
            column,
            inlined,
            span: self.since(start),
        })
    }

    fn inlined_at(&mut self) -> Parsed<InlinedAt> {
        if !self.eat_word("function_name") {
            return Err(self.unexpected("`function_name`"));
        }
        let function = self.name("the label of a function's name")?.0;
        let offset = if self.eat(b'+') {
            self.unsigned("an offset")?
        } else {
            0
        };
        self.expect(b',', "`,` and `inlined_at`")?;
        if !self.eat_word("inlined_at") {
            return Err(self.unexpected("`inlined_at`"));
        }
        let file = self.plain_number32("the number of a `.file`")?;
        let line = self.plain_number32("a line")?;
        let column = self.plain_number32("a column")?;
        Ok(InlinedAt {
            function,
            offset,
            at: (file, line, column),
        })
    }

    /// `.section .debug_str { ... }`
    pub(super) fn section(&mut self) -> Parsed<Section> {
        self.advance();
        let span = self.span();
        if !matches!(self.kind(), TokenKind::DotWord | TokenKind::Word) {
            return Err(self.unexpected("the name of a section"));
        }
        let name = Name::new(self.slice());
        self.advance();
        self.expect(b'{', "`{` behind the name of the section")?;
        let mut lines = Vec::new();
        while !self.eat(b'}') {
            if self.kind() == TokenKind::Word && self.kind_at(1) == TokenKind::Mark(b':') {
                let (label, _) = self.name("a label")?;
                self.advance();
                lines.push(SectionLine::Label(label));
                continue;
            }
            let ty = match self.kind() {
                TokenKind::DotWord => self.slice()[1..].parse::<ScalarType>().ok(),
                _ => None,
            };
            let Some(ty) = ty else {
                return Err(self.unexpected("data such as `.b8 1, 2`, a label, or `}`"));
            };
            self.advance();
            let mut values = vec![self.section_value()?];
            while self.eat(b',') {
                values.push(self.section_value()?);
            }
            self.eat(b';');
            lines.push(SectionLine::Data { ty, values });
        }
        Ok(Section { name, lines, span })
    }

    /// A constant in which another section's name is a symbol.
    fn section_value(&mut self) -> Parsed<Constant> {
        if self.kind() != TokenKind::DotWord {
            return self.constant();
        }
        let symbol = Constant::Symbol(Name::new(self.slice()));
        self.advance();
        if self.eat(b'+') {
            let offset = self.constant()?;
            return Ok(Constant::Binary(BinaryOp::Add, Box::new((symbol, offset))));
        }
        Ok(symbol)
    }
}

fn vector_width(word: &str) -> Option<VectorWidth> {
    match word {
        ".v2" => Some(VectorWidth::V2),
        ".v4" => Some(VectorWidth::V4),
        ".v8" => Some(VectorWidth::V8),
        _ => None,
    }
}

/// The closest of `candidates` to `word`, if one is close enough to suggest.
pub(super) fn closest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    if word.len() > 32 {
        return None;
    }
    candidates
        .iter()
        .map(|&candidate| (edits(word.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|&(distance, candidate)| distance <= 1 + candidate.len() / 5)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Says that `word` is no directive here, and what it may have been meant to be.
pub(super) fn unknown_directive(word: &str, span: Span, known: &[&str]) -> Diagnostic {
    let diagnostic = Diagnostic::error(
        rule::UNKNOWN_DIRECTIVE,
        span,
        format!("`{word}` is no directive that can stand here"),
    );
    match closest(word, known) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(format!("what can stand here: {}", known.join(" "))),
    }
}
