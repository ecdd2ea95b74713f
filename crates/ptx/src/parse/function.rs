//! Kernels, device functions, and the other items of a file.

use super::cursor::{Cursor, ITEMS, Parsed};
use super::directive::unknown_directive;
use crate::diagnostic::Diagnostic;
use crate::lex::TokenKind;
use crate::module::{Function, FunctionDirective, FunctionKind, Item, Linkage, Name, Variable};
use crate::rule;
use crate::types::Space;

/// The directives between a function's parameters and its body, with how many
/// numbers each takes at the least and at the most.
pub(crate) const FUNCTION_DIRECTIVES: &[(&str, usize, usize)] = &[
    (".maxntid", 1, 3),
    (".reqntid", 1, 3),
    (".minnctapersm", 1, 1),
    (".maxnctapersm", 1, 1),
    (".maxnreg", 1, 1),
    (".noreturn", 0, 0),
    (".reqnctapercluster", 0, 3),
    (".explicitcluster", 0, 0),
    (".maxclusterrank", 1, 1),
    (".blocksareclusters", 0, 0),
    (".unique", 0, 0),
    (".abi_preserve", 1, 1),
    (".abi_preserve_control", 1, 1),
];

impl Cursor<'_> {
    /// One item; a declaration of several variables gives several.
    pub(super) fn item(&mut self, items: &mut Vec<Item>) -> Parsed<()> {
        let start = self.span();
        if self.eat(b';') {
            return Ok(());
        }
        if self.kind() != TokenKind::DotWord {
            return Err(self.unexpected("a directive, such as `.visible .entry`"));
        }
        match self.slice() {
            ".file" => items.push(Item::File(self.file()?)),
            ".section" => items.push(Item::Section(self.section()?)),
            ".pragma" => items.push(Item::Pragma(self.pragma()?)),
            ".alias" => {
                self.advance();
                let name = self.name("the new name")?.0;
                self.expect(b',', "`,` and the function that it stands for")?;
                let aliasee = self.name("the function that it stands for")?.0;
                let span = self.since(start);
                self.end_statement("the alias")?;
                items.push(Item::Alias {
                    name,
                    aliasee,
                    span,
                });
            }
            ".version" | ".target" | ".address_size" => {
                let word = self.slice();
                return Err(self.fail(
                    Diagnostic::error(
                        rule::MISPLACED_DIRECTIVE,
                        start,
                        format!("`{word}` a second time, or out of its place"),
                    )
                    .help("the file begins with `.version`, `.target` and `.address_size`, once each, in this order"),
                ));
            }
            _ => return self.linked_item(items),
        }
        Ok(())
    }

    /// What can have a linkage: a function or variables.
    fn linked_item(&mut self, items: &mut Vec<Item>) -> Parsed<()> {
        let linkage = match self.slice() {
            ".visible" => Linkage::Visible,
            ".extern" => Linkage::Extern,
            ".weak" => Linkage::Weak,
            ".common" => Linkage::Common,
            _ => Linkage::Private,
        };
        if linkage != Linkage::Private {
            self.advance();
        }
        let kind = match self.slice() {
            ".entry" => FunctionKind::Entry,
            ".func" => FunctionKind::Func,
            _ => {
                return match self.space() {
                    Some(Space::Global | Space::Const | Space::Shared | Space::Tex) => {
                        let variables = self.variables(linkage)?;
                        items.extend(variables.into_iter().map(Item::Variable));
                        Ok(())
                    }
                    Some(space) => {
                        let span = self.span();
                        Err(self.fail(
                            Diagnostic::error(
                                rule::MISPLACED_DIRECTIVE,
                                span,
                                format!("`.{space}` can't be declared outside a function"),
                            )
                            .help("move it into the function that uses it"),
                        ))
                    }
                    None if self.kind() == TokenKind::DotWord => {
                        let diagnostic = unknown_directive(self.slice(), self.span(), ITEMS);
                        Err(self.fail(diagnostic))
                    }
                    None => Err(self.unexpected("`.entry`, `.func` or a state space")),
                };
            }
        };
        self.advance();
        items.push(Item::Function(self.function(linkage, kind)?));
        Ok(())
    }

    fn function(&mut self, linkage: Linkage, kind: FunctionKind) -> Parsed<Function> {
        match self.signature(linkage, kind) {
            Ok(mut function) => {
                if self.eat(b'{') {
                    function.body = Some(self.body()?);
                } else if !self.eat(b';') {
                    return Err(self.unexpected("`{` and the body, or `;` for a declaration"));
                }
                Ok(function)
            }
            // The body may have errors of its own worth telling.
            Err(broken) => {
                if self.skip_to_body() {
                    self.body()?;
                }
                Err(broken)
            }
        }
    }

    /// All of a function but its body.
    fn signature(&mut self, linkage: Linkage, kind: FunctionKind) -> Parsed<Function> {
        let attributes = if self.is_word(".attribute") {
            self.attributes()?
        } else {
            Vec::new()
        };
        let returns = if kind == FunctionKind::Func && self.is(b'(') {
            self.parameters()?
        } else {
            Vec::new()
        };
        let (name, span) = self.name("the name of the function")?;
        let params = if self.is(b'(') {
            self.parameters()?
        } else {
            Vec::new()
        };
        Ok(Function {
            linkage,
            kind,
            attributes,
            returns,
            name,
            params,
            directives: self.function_directives()?,
            body: None,
            span,
        })
    }

    /// `(.param .u64 a, .param .u32 b)`
    pub(super) fn parameters(&mut self) -> Parsed<Vec<Variable>> {
        self.expect(b'(', "`(` and the parameters")?;
        let mut parameters = Vec::new();
        if self.eat(b')') {
            return Ok(parameters);
        }
        loop {
            parameters.push(self.parameter()?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b')', "`,` or `)` behind a parameter")?;
        Ok(parameters)
    }

    pub(super) fn function_directives(&mut self) -> Parsed<Vec<FunctionDirective>> {
        let mut directives = Vec::new();
        while self.kind() == TokenKind::DotWord {
            let start = self.span();
            let word = self.slice();
            if word == ".pragma" {
                directives.push(FunctionDirective::Pragma(self.pragma()?));
                continue;
            }
            let Some(&(_, least, most)) = FUNCTION_DIRECTIVES.iter().find(|row| row.0 == word)
            else {
                let known: Vec<&str> = FUNCTION_DIRECTIVES.iter().map(|row| row.0).collect();
                let diagnostic = unknown_directive(word, start, &known);
                return Err(self.fail(diagnostic));
            };
            self.advance();
            let mut values = Vec::new();
            while values.len() < most && self.kind() == TokenKind::Number {
                values.push(self.unsigned("a number")?);
                if values.len() < most && self.is(b',') {
                    self.advance();
                }
            }
            if values.len() < least {
                return Err(self.unexpected("a number"));
            }
            directives.push(FunctionDirective::Numbers {
                name: Name::new(&word[1..]),
                values,
                span: self.since(start),
            });
        }
        Ok(directives)
    }
}
