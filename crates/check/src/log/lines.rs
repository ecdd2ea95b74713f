//! A log, line by line.

use heist_ptx::{Source, Span};

/// The lines of a text with where each stands.
pub(super) fn lines(source: &Source) -> impl Iterator<Item = (Span, &str)> {
    let text = source.text();
    text.split_inclusive('\n').scan(0usize, |at, line| {
        let start = *at;
        *at += line.len();
        let trimmed = line.trim_end();
        Some((Span::new(start, start + trimmed.len()), trimmed))
    })
}
