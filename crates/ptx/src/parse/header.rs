//! `.version`, `.target`, `.address_size`, and the items that follow them.

use super::cursor::{Cursor, Parsed};
use crate::diagnostic::Diagnostic;
use crate::lex::TokenKind;
use crate::module::{AddressSize, Item, Module, Name, Target, Version};
use crate::rule;
use crate::span::Span;

impl Cursor<'_> {
    /// A whole file.
    pub(super) fn module(&mut self) -> Module {
        let mut module = Module::new(Version::new(0, 0), "");
        module.preamble = self.comments_before_token(false);
        match self.version() {
            Ok(version) => module.version = version,
            Err(_) => self.skip_line(),
        }
        module.preamble.extend(self.comments_before_token(false));
        match self.target() {
            Ok(target) => module.target = target,
            Err(_) => self.skip_line(),
        }
        if self.is_word(".address_size") {
            module.preamble.extend(self.comments_before_token(false));
            match self.address_size() {
                Ok(size) => module.address_size = size,
                Err(_) => self.skip_line(),
            }
        }
        self.items(&mut module.items);
        module
    }

    fn items(&mut self, items: &mut Vec<Item>) {
        while !self.exhausted() {
            let comments = self.comments_before_token(!items.is_empty());
            items.extend(comments.into_iter().map(Item::Comment));
            if self.at_end() {
                return;
            }
            let from = self.place();
            if self.item(items).is_err() {
                self.skip_item(from);
            }
        }
    }

    fn version(&mut self) -> Parsed<Version> {
        if !self.eat_word(".version") {
            return Err(self.missing_header(".version", "`.version 8.0`, then `.target sm_90`"));
        }
        let span = self.span();
        let text = self.slice();
        let parts = text.split_once('.').and_then(|(major, minor)| {
            Some(Version::new(major.parse().ok()?, minor.parse().ok()?))
        });
        match parts {
            Some(version) if self.kind() == TokenKind::Number => {
                self.advance();
                Ok(version)
            }
            _ => {
                let broken = self.fail(
                    Diagnostic::error(
                        rule::BAD_HEADER,
                        span,
                        format!("`{text}` is not a PTX version"),
                    )
                    .help("a version is two numbers with a dot, such as `.version 8.6`"),
                );
                Err(broken)
            }
        }
    }

    fn target(&mut self) -> Parsed<Target> {
        if !self.eat_word(".target") {
            return Err(self.missing_header(".target", "`.target sm_90`, behind `.version`"));
        }
        let (arch, span) = self.name("an architecture, such as `sm_90`")?;
        let mut options = Vec::new();
        while self.eat(b',') {
            options.push(self.name("a target option, such as `debug`")?.0);
        }
        Ok(Target {
            arch,
            options,
            span,
        })
    }

    fn address_size(&mut self) -> Parsed<AddressSize> {
        self.advance();
        let span = self.span();
        match self.unsigned("32 or 64")? {
            32 => Ok(AddressSize::Bits32),
            64 => Ok(AddressSize::Bits64),
            other => Err(self.fail_at(
                rule::BAD_HEADER,
                span,
                format!("addresses have 32 or 64 bits, not {other}"),
            )),
        }
    }

    fn missing_header(&mut self, directive: &str, remedy: &str) -> super::cursor::Broken {
        let span = self.span();
        self.fail(
            Diagnostic::error(
                rule::BAD_HEADER,
                span,
                format!("expected `{directive}` at the start of the file"),
            )
            .help(format!("a PTX file begins with {remedy}")),
        )
    }

    /// After a broken header line: the next directive, whatever it is.
    fn skip_line(&mut self) {
        while !self.at_end() && self.kind() != TokenKind::DotWord {
            self.advance();
        }
    }

    /// The names in a comma-separated list.
    pub(super) fn names(&mut self, what: &str) -> Parsed<Vec<Name>> {
        let mut names = vec![self.name(what)?.0];
        while self.eat(b',') {
            names.push(self.name(what)?.0);
        }
        Ok(names)
    }

    /// Everything from `start` to what was read last.
    pub(super) fn since(&self, start: Span) -> Span {
        start.to(self.previous())
    }
}
