//! Where a piece of PTX came from.
//!
//! A [`Span`] is two byte offsets and means nothing without the [`Source`] it
//! was cut from. Spans never take part in equality: two modules are equal when
//! they say the same thing, wherever they say it, which is what makes
//! `parse(print(m)) == m` a law that can be tested.

use std::fmt;
use std::hash::{Hash, Hasher};

/// A half-open range of bytes in a [`Source`].
#[derive(Clone, Copy)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The span of something that was never text, such as a built instruction.
    pub const NONE: Span = Span {
        start: u32::MAX,
        end: u32::MAX,
    };

    /// A span from `start` up to, and without, `end`.
    pub fn new(start: usize, end: usize) -> Span {
        Span {
            start: start as u32,
            end: end as u32,
        }
    }

    /// Whether this span points nowhere.
    pub fn is_none(self) -> bool {
        self.start == u32::MAX
    }

    /// The smallest span that covers both.
    pub fn to(self, other: Span) -> Span {
        match (self.is_none(), other.is_none()) {
            (true, _) => other,
            (_, true) => self,
            _ => Span {
                start: self.start.min(other.start),
                end: self.end.max(other.end),
            },
        }
    }
}

impl Default for Span {
    fn default() -> Span {
        Span::NONE
    }
}

impl PartialEq for Span {
    fn eq(&self, _: &Span) -> bool {
        true
    }
}

impl Eq for Span {}

impl Hash for Span {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            f.write_str("-")
        } else {
            write!(f, "{}..{}", self.start, self.end)
        }
    }
}

/// A line and a column, both counted from one; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// A named text and the offsets of its lines.
///
/// ```
/// use heist_ptx::{Source, Span};
/// let source = Source::new("k.ptx", ".version 8.0\n.target sm_90\n");
/// assert_eq!(source.position(Span::new(13, 20)).line, 2);
/// assert_eq!(source.line(2), ".target sm_90");
/// ```
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    line_starts: Vec<u32>,
}

impl Source {
    /// Takes a text and the name to call it by in messages.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        let text = text.into();
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at as u32 + 1))
            .collect();
        Source {
            name: name.into(),
            text,
            line_starts,
        }
    }

    /// What the text is called: usually a path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of line `line` (from 1) without its line ending; empty past the end.
    pub fn line(&self, line: u32) -> &str {
        let Some(&start) = self.line_starts.get(line as usize - 1) else {
            return "";
        };
        let end = self
            .line_starts
            .get(line as usize)
            .map_or(self.text.len(), |&next| next as usize);
        self.text[start as usize..end].trim_end_matches(['\n', '\r'])
    }

    /// The text that a span covers; empty for [`Span::NONE`].
    pub fn slice(&self, span: Span) -> &str {
        self.text
            .get(span.start as usize..span.end as usize)
            .unwrap_or("")
    }

    /// Line and column of a span's first byte; a span of nothing is at 1:1.
    pub fn position(&self, span: Span) -> Position {
        if span.is_none() {
            return Position { line: 1, column: 1 };
        }
        let at = span.start.min(self.text.len() as u32);
        let line = self.line_starts.partition_point(|&start| start <= at);
        let start = self.line_starts[line - 1] as usize;
        let column = self.text.as_bytes()[start..at as usize]
            .iter()
            .filter(|&&byte| byte & 0xC0 != 0x80)
            .count();
        Position {
            line: line as u32,
            column: column as u32 + 1,
        }
    }
}
