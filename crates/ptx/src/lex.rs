//! Text to tokens.
//!
//! One pass over bytes. A token is its kind and its two offsets; the text stays
//! in the source. Comments go to a list of their own, for the parser to put
//! back between statements. The lexer never fails: what it can't read becomes
//! an error token's diagnostic and is skipped.

use crate::diagnostic::Diagnostic;
use crate::rule;
use crate::span::Span;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// `%r1`, `add`, `$L__BB0_1`, `_`
    Word,
    /// `.global`, `.shared::cluster`, `.1d`
    DotWord,
    /// A number in any notation, not yet read.
    Number,
    /// `"..."`
    Text,
    /// `,` and every other mark of one byte.
    Mark(u8),
    /// `<<`, `>>`, `<=`, `>=`, `==`, `!=`, `&&`, `||`
    Double(u8, u8),
    /// The end of the file.
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Token {
    pub(crate) fn span(self) -> Span {
        Span {
            start: self.start,
            end: self.end,
        }
    }
}

/// A comment with its markers, as two offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawComment {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

pub(crate) struct Lexed {
    pub(crate) tokens: Vec<Token>,
    pub(crate) comments: Vec<RawComment>,
    pub(crate) errors: Vec<Diagnostic>,
}

/// What a byte can be part of.
const WORD: u8 = 1;
const START: u8 = 2;
const BLANK: u8 = 4;

const CLASS: [u8; 256] = {
    let mut class = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        if b.is_ascii_alphabetic() || b == b'_' || b == b'$' {
            class[byte] = WORD | START;
        } else if b.is_ascii_digit() {
            class[byte] = WORD;
        } else if b == b' ' || b == b'\t' || b == b'\n' || b == b'\r' || b == 0x0c || b == 0x0b {
            class[byte] = BLANK;
        }
        byte += 1;
    }
    class
};

/// Cuts `text` into tokens.
///
/// The driver and NVRTC end a text with a zero byte, and some compilers write it
/// into their files; what is asked is what stands before.
pub(crate) fn lex(text: &str) -> Lexed {
    let text = text.trim_end_matches('\0');
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        at: 0,
        out: Lexed {
            tokens: Vec::with_capacity(text.len() / 4 + 1),
            comments: Vec::new(),
            errors: Vec::new(),
        },
    };
    lexer.run();
    lexer.out
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    out: Lexed,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn class(&self, ahead: usize) -> u8 {
        self.bytes
            .get(self.at + ahead)
            .map_or(0, |&byte| CLASS[byte as usize])
    }

    fn push(&mut self, kind: TokenKind, start: usize) {
        self.out.tokens.push(Token {
            kind,
            start: start as u32,
            end: self.at as u32,
        });
    }

    fn run(&mut self) {
        while self.at < self.bytes.len() {
            let start = self.at;
            let byte = self.bytes[start];
            let class = CLASS[byte as usize];
            if class & BLANK != 0 {
                self.at += 1;
            } else if class & START != 0 {
                self.word();
                self.push(TokenKind::Word, start);
            } else if class & WORD != 0 {
                self.number();
                self.push(TokenKind::Number, start);
            } else {
                self.mark(byte, start);
            }
        }
        let end = self.bytes.len();
        self.push(TokenKind::End, end);
    }

    fn word(&mut self) {
        self.at += 1;
        while self.class(0) & WORD != 0 {
            self.at += 1;
        }
    }

    fn mark(&mut self, byte: u8, start: usize) {
        match byte {
            b'%' if self.class(1) & START != 0 => {
                self.at += 1;
                self.word();
                self.push(TokenKind::Word, start);
            }
            b'.' if self.class(1) & WORD != 0 => {
                self.word();
                while self.peek(0) == b':' && self.peek(1) == b':' && self.class(2) & WORD != 0 {
                    self.at += 2;
                    self.word();
                }
                self.push(TokenKind::DotWord, start);
            }
            b'/' if self.peek(1) == b'/' => self.line_comment(start),
            b'/' if self.peek(1) == b'*' => self.block_comment(start),
            b'"' => self.text_literal(start),
            b'<' | b'>' | b'=' | b'!' | b'&' | b'|' => {
                let next = self.peek(1);
                let double = matches!(
                    (byte, next),
                    (b'<', b'<' | b'=')
                        | (b'>', b'>' | b'=')
                        | (b'=' | b'!', b'=')
                        | (b'&', b'&')
                        | (b'|', b'|')
                );
                if double {
                    self.at += 2;
                    self.push(TokenKind::Double(byte, next), start);
                } else {
                    self.at += 1;
                    self.push(TokenKind::Mark(byte), start);
                }
            }
            b',' | b';' | b':' | b'{' | b'}' | b'(' | b')' | b'[' | b']' | b'@' | b'+' | b'-'
            | b'*' | b'/' | b'%' | b'^' | b'~' | b'?' => {
                self.at += 1;
                self.push(TokenKind::Mark(byte), start);
            }
            _ => self.stray(start),
        }
    }

    fn line_comment(&mut self, start: usize) {
        let rest = &self.bytes[start..];
        let length = rest
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(rest.len());
        self.at = start + length;
        self.comment(start);
    }

    fn block_comment(&mut self, start: usize) {
        match self.text[start + 2..].find("*/") {
            Some(length) => {
                self.at = start + 2 + length + 2;
                self.comment(start);
            }
            None => {
                self.at = self.bytes.len();
                self.out.errors.push(
                    Diagnostic::error(
                        rule::UNTERMINATED,
                        Span::new(start, start + 2),
                        "this comment never ends",
                    )
                    .label("opened here")
                    .help("close it with `*/`; comments do not nest"),
                );
            }
        }
    }

    fn comment(&mut self, start: usize) {
        self.out.comments.push(RawComment {
            start: start as u32,
            end: self.at as u32,
        });
    }

    /// A string ends on its own line: PTX has no other, and a missing quote
    /// must not swallow the rest of the file.
    fn text_literal(&mut self, start: usize) {
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    self.push(TokenKind::Text, start);
                    return;
                }
                b'\\' if !matches!(self.peek(1), b'\n' | 0) => self.at += 2,
                b'\n' | 0 if self.at >= self.bytes.len() || self.peek(0) == b'\n' => break,
                _ => self.at += 1,
            }
        }
        // An escape may have stepped over a lead byte; the end is a newline or
        // the end of the text, so it is a boundary all the same.
        self.at = self.at.min(self.bytes.len());
        self.out.errors.push(
            Diagnostic::error(
                rule::UNTERMINATED,
                Span::new(start, self.at),
                "this string never ends",
            )
            .help("close it with `\"` on the same line"),
        );
        self.push(TokenKind::Text, start);
    }

    /// Takes everything that could belong to a number; the parser reads it.
    fn number(&mut self) {
        let start = self.at;
        self.word();
        let whole = &self.bytes[start..self.at];
        let decimal = whole.iter().all(u8::is_ascii_digit);
        if decimal && self.peek(0) == b'.' && self.peek(1).is_ascii_digit() {
            self.at += 1;
            self.word();
        } else if decimal && self.peek(0) == b'.' && self.class(1) & START == 0 {
            self.at += 1;
        }
        let so_far = &self.bytes[start..self.at];
        let is_float = decimal
            || so_far
                .iter()
                .all(|b| b.is_ascii_digit() || matches!(b, b'e' | b'E'));
        let exponent = matches!(so_far.last(), Some(b'e' | b'E'));
        if exponent
            && (is_float || so_far.contains(&b'.'))
            && matches!(self.peek(0), b'+' | b'-')
            && self.peek(1).is_ascii_digit()
        {
            self.at += 1;
            self.word();
        }
    }

    fn stray(&mut self, start: usize) {
        let stray = self.text[start..].chars().next().unwrap_or('\0');
        // One message for a run of the same nonsense.
        while self.text[self.at..].starts_with(stray) {
            self.at += stray.len_utf8();
        }
        let shown = if stray.is_control() {
            format!("byte 0x{:02x}", u32::from(stray))
        } else {
            format!("`{stray}`")
        };
        self.out.errors.push(
            Diagnostic::error(
                rule::UNEXPECTED,
                Span::new(start, self.at),
                format!("{shown} has no place in PTX"),
            )
            .help("remove it, or put it in a comment"),
        );
    }
}
