//! The parser's place in the tokens: looking, taking, failing, recovering.

use super::limits::Limits;
use crate::diagnostic::{Code, Diagnostic};
use crate::lex::{Lexed, RawComment, Token, TokenKind, lex};
use crate::module::{Comment, Module, Name};
use crate::rule;
use crate::span::Span;

/// What can begin an item.
pub(super) const ITEMS: &[&str] = &[
    ".visible", ".extern", ".weak", ".common", ".entry", ".func", ".global", ".const", ".shared",
    ".tex", ".file", ".section", ".alias", ".pragma",
];

/// A statement could not be parsed; the reason is already in the error list.
pub(super) struct Broken;

/// What a parsing step gives.
pub(super) type Parsed<T> = Result<T, Broken>;

pub(super) struct Cursor<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    comments: Vec<RawComment>,
    next_comment: usize,
    depth: u32,
    /// Operators so far in the constant expression being read.
    pub(super) terms: u32,
    limits: Limits,
    errors: Vec<Diagnostic>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, limits: Limits) -> Cursor<'a> {
        let Lexed {
            tokens,
            comments,
            errors,
        } = lex(text);
        Cursor {
            text,
            tokens,
            at: 0,
            comments,
            next_comment: 0,
            depth: 0,
            terms: 0,
            limits,
            errors,
        }
    }

    /// The module, if nothing was wrong.
    pub(super) fn finish(mut self, module: Module) -> Result<Module, Vec<Diagnostic>> {
        if self.errors.is_empty() {
            return Ok(module);
        }
        self.errors.sort_by_key(|error| error.span.start);
        self.errors.truncate(self.limits.errors);
        Err(self.errors)
    }

    // Looking.

    pub(super) fn kind(&self) -> TokenKind {
        self.tokens[self.at].kind
    }

    /// The kind of the token `ahead` of this one.
    pub(super) fn kind_at(&self, ahead: usize) -> TokenKind {
        self.tokens
            .get(self.at + ahead)
            .map_or(TokenKind::End, |token| token.kind)
    }

    pub(super) fn span(&self) -> Span {
        self.tokens[self.at].span()
    }

    pub(super) fn slice(&self) -> &'a str {
        self.slice_of(self.span())
    }

    pub(super) fn slice_of(&self, span: Span) -> &'a str {
        self.text
            .get(span.start as usize..span.end as usize)
            .unwrap_or("")
    }

    pub(super) fn is(&self, mark: u8) -> bool {
        self.kind() == TokenKind::Mark(mark)
    }

    pub(super) fn at_end(&self) -> bool {
        self.kind() == TokenKind::End
    }

    /// Whether the next token is the word or dotted word `text`.
    pub(super) fn is_word(&self, text: &str) -> bool {
        matches!(self.kind(), TokenKind::Word | TokenKind::DotWord) && self.slice() == text
    }

    /// Whether this token follows the one before it with nothing in between.
    pub(super) fn is_glued(&self) -> bool {
        self.at > 0 && self.tokens[self.at - 1].end == self.tokens[self.at].start
    }

    /// The span of the token before this one.
    pub(super) fn previous(&self) -> Span {
        match self.at {
            0 => Span::new(0, 0),
            at => self.tokens[at - 1].span(),
        }
    }

    pub(super) fn on_new_line(&self) -> bool {
        let from = self.previous().end as usize;
        let to = self.span().start as usize;
        self.at == 0 || self.text.get(from..to).is_none_or(|gap| gap.contains('\n'))
    }

    // Taking.

    pub(super) fn advance(&mut self) -> Token {
        let token = self.tokens[self.at];
        if token.kind != TokenKind::End {
            self.at += 1;
        }
        token
    }

    /// Takes `mark` if it is next.
    pub(super) fn eat(&mut self, mark: u8) -> bool {
        let found = self.is(mark);
        if found {
            self.at += 1;
        }
        found
    }

    /// Takes the word or dotted word `text` if it is next.
    pub(super) fn eat_word(&mut self, text: &str) -> bool {
        let found = self.is_word(text);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn expect(&mut self, mark: u8, what: &str) -> Parsed<()> {
        if self.eat(mark) {
            Ok(())
        } else {
            Err(self.unexpected(what))
        }
    }

    /// Ends a statement. A missing `;` is reported where it is missing, after what was read, and
    /// the next line is not skipped.
    pub(super) fn end_statement(&mut self, what: impl std::fmt::Display) -> Parsed<()> {
        if self.eat(b';') || self.swallowed_the_line() {
            return Ok(());
        }
        if self.on_new_line() || self.at_end() || self.is(b'}') {
            let end = self.previous().end as usize;
            self.error(
                Diagnostic::error(
                    rule::UNEXPECTED,
                    Span::new(end, end),
                    format!("expected `;` after {what}"),
                )
                .label("here"),
            );
            return Ok(());
        }
        Err(self.unexpected("`,` or `;`"))
    }

    /// Whether what was just read is a string without its end: it took the rest of its line along,
    /// and that was reported.
    fn swallowed_the_line(&self) -> bool {
        let text = self.slice_of(self.previous());
        text.starts_with('"') && (text.len() < 2 || !text.ends_with('"'))
    }

    /// Whether the lexer gave up on the rest of the file.
    pub(super) fn cut_short(&self) -> bool {
        self.errors
            .iter()
            .any(|error| error.code == rule::UNTERMINATED && self.slice_of(error.span) == "/*")
    }

    /// A name, and where it is.
    pub(super) fn name(&mut self, what: &str) -> Parsed<(Name, Span)> {
        if self.kind() != TokenKind::Word {
            return Err(self.unexpected(what));
        }
        let token = self.advance();
        Ok((Name::new(self.slice_of(token.span())), token.span()))
    }

    /// The inside of a string.
    pub(super) fn string(&mut self, what: &str) -> Parsed<String> {
        if self.kind() != TokenKind::Text {
            return Err(self.unexpected(what));
        }
        let token = self.advance();
        let quoted = self.slice_of(token.span());
        let inner = quoted.strip_prefix('"').unwrap_or(quoted);
        Ok(inner.strip_suffix('"').unwrap_or(inner).to_owned())
    }

    // Depth.

    /// Runs `inner` one level deeper, or refuses.
    pub(super) fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= self.limits.depth {
            let depth = self.limits.depth;
            let span = self.span();
            return Err(self.fail(
                Diagnostic::error(
                    rule::TOO_LARGE,
                    span,
                    format!("nested more than {depth} deep"),
                )
                .help("no compiler nests this deep; is a bracket missing?"),
            ));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    // Failing.

    pub(super) fn error(&mut self, diagnostic: Diagnostic) {
        // Errors past the limit would not be shown; keep what memory they take bounded too.
        if self.errors.len() <= self.limits.errors {
            self.errors.push(diagnostic);
        }
    }

    pub(super) fn fail(&mut self, diagnostic: Diagnostic) -> Broken {
        self.error(diagnostic);
        Broken
    }

    pub(super) fn fail_at(&mut self, code: Code, span: Span, message: impl Into<String>) -> Broken {
        self.fail(Diagnostic::error(code, span, message))
    }

    /// Says that `what` was expected here.
    pub(super) fn unexpected(&mut self, what: &str) -> Broken {
        let found = self.describe();
        let span = if self.at_end() {
            Span::new(self.previous().end as usize, self.previous().end as usize)
        } else {
            self.span()
        };
        self.fail(
            Diagnostic::error(
                rule::UNEXPECTED,
                span,
                format!("expected {what}, found {found}"),
            )
            .label(format!("expected {what}")),
        )
    }

    fn describe(&self) -> String {
        let shown: String = self.slice().chars().take(40).collect();
        match self.kind() {
            TokenKind::End => "the end of the file".into(),
            TokenKind::Text => "a string".into(),
            TokenKind::Number => format!("the number `{shown}`"),
            _ => format!("`{shown}`"),
        }
    }

    /// Whether it is time to give up.
    pub(super) fn exhausted(&self) -> bool {
        self.errors.len() > self.limits.errors
    }

    // Recovering.

    /// Skips to behind the next `;` of this scope, or to what looks like the
    /// start of another statement on a line of its own, or to this scope's `}`.
    pub(super) fn skip_statement(&mut self, from: usize) {
        if self.at == from {
            self.advance();
        }
        let mut open = 0u32;
        while !self.at_end() {
            match self.kind() {
                TokenKind::Mark(b';') if open == 0 => {
                    self.advance();
                    return;
                }
                TokenKind::Mark(b'}') if open == 0 => return,
                TokenKind::Mark(b'{') => open += 1,
                TokenKind::Mark(b'}') => open -= 1,
                TokenKind::Word | TokenKind::DotWord | TokenKind::Mark(b'@')
                    if open == 0 && self.on_new_line() =>
                {
                    return;
                }
                _ => {}
            }
            self.advance();
        }
    }

    /// Skips to what looks like the start of a top-level item.
    pub(super) fn skip_item(&mut self, from: usize) {
        if self.at == from {
            self.advance();
        } else if self.tokens[self.at - 1].kind == TokenKind::Mark(b'}') {
            return;
        }
        let mut open = 0u32;
        while !self.at_end() {
            match self.kind() {
                TokenKind::Mark(b'{') => open += 1,
                TokenKind::Mark(b'}') if open <= 1 => {
                    self.advance();
                    return;
                }
                TokenKind::Mark(b'}') => open -= 1,
                TokenKind::Mark(b';') if open == 0 => {
                    self.advance();
                    return;
                }
                TokenKind::DotWord if self.starts_item(open > 0) => return,
                _ => {}
            }
            self.advance();
        }
    }

    /// Whether a line begins here with what can begin an item; inside a
    /// broken body, only with what can begin a function.
    fn starts_item(&self, inside: bool) -> bool {
        let word = self.slice();
        self.on_new_line()
            && ITEMS.contains(&word)
            && (!inside || matches!(word, ".visible" | ".extern" | ".weak" | ".entry" | ".func"))
    }

    /// Skips to behind the `{` of the function whose head is broken, if there is one.
    pub(super) fn skip_to_body(&mut self) -> bool {
        while !self.at_end() && !self.is(b';') && !self.starts_item(true) {
            if self.eat(b'{') {
                return true;
            }
            self.advance();
        }
        false
    }

    pub(super) fn place(&self) -> usize {
        self.at
    }

    // Comments.

    /// Takes the comments that stand before the next token. `after` says
    /// whether there is something before them whose line they can share.
    pub(super) fn comments_before_token(&mut self, after: bool) -> Vec<Comment> {
        if self
            .comments
            .get(self.next_comment)
            .is_none_or(|comment| comment.start >= self.tokens[self.at].start)
        {
            return Vec::new();
        }
        self.drain_comments(self.span().start, after)
    }

    /// Takes the comments that stand inside what was just read.
    pub(super) fn comments_inside(&mut self) -> Vec<Comment> {
        if self
            .comments
            .get(self.next_comment)
            .is_none_or(|comment| comment.start >= self.previous().start)
        {
            return Vec::new();
        }
        self.drain_comments(self.previous().start, false)
    }

    fn drain_comments(&mut self, until: u32, after: bool) -> Vec<Comment> {
        let mut line_from = self.previous().end;
        let mut shares = after;
        let mut taken = Vec::new();
        while let Some(raw) = self.comments.get(self.next_comment).copied() {
            if raw.start >= until {
                break;
            }
            self.next_comment += 1;
            let gap = self.slice_of(Span {
                start: line_from,
                end: raw.start,
            });
            shares &= raw.start >= line_from && !gap.contains('\n');
            let marked = self.slice_of(Span {
                start: raw.start,
                end: raw.end,
            });
            let inner = match marked.strip_prefix("/*") {
                Some(rest) => rest.strip_suffix("*/").unwrap_or(rest),
                None => marked.strip_prefix("//").unwrap_or(marked),
            };
            let text = inner.trim().to_owned();
            taken.push(Comment {
                trailing: shares && taken.is_empty() && !text.contains('\n'),
                text,
                span: Span {
                    start: raw.start,
                    end: raw.end,
                },
            });
            line_from = raw.end;
        }
        taken
    }
}
