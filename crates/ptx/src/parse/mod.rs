//! Tokens to a [`Module`].
//!
//! A hand-written recursive-descent parser. When a statement is broken it says
//! what it expected, skips to where the next one seems to begin, and goes on,
//! so that one run reports all of a file's errors. Nothing in a file can make
//! it panic, loop, or recurse without bound: every loop consumes a token, and
//! depth and sizes are limited by [`Limits`].

mod constant;
mod cursor;
mod directive;
mod function;
mod header;
mod limits;
mod operand;
mod statement;

use crate::diagnostic::Diagnostic;
use crate::module::Module;
use crate::rule;
use crate::span::{Source, Span};
use cursor::Cursor;
pub use limits::Limits;

/// Parses a file.
///
/// ```
/// use heist_ptx::{Source, parse};
/// let source = Source::new("k.ptx", "
///     .version 8.0
///     .target sm_90
///     .address_size 64
///     .visible .entry k(.param .u64 out) { ret; }
/// ");
/// let module = parse(&source).unwrap();
/// assert_eq!(module.entries().next().unwrap().name, "k");
/// ```
///
/// # Errors
///
/// Everything that is wrong with the text, in the order of the text.
pub fn parse(source: &Source) -> Result<Module, Vec<Diagnostic>> {
    parse_within(source, Limits::default())
}

/// Parses a file within limits of the caller's own.
///
/// # Errors
///
/// Everything that is wrong with the text, in the order of the text.
pub fn parse_within(source: &Source, limits: Limits) -> Result<Module, Vec<Diagnostic>> {
    let bytes = source.text().len();
    if bytes > limits.bytes {
        return Err(vec![
            Diagnostic::error(
                rule::TOO_LARGE,
                Span::NONE,
                format!(
                    "the file has {bytes} bytes; at most {} are read",
                    limits.bytes
                ),
            )
            .help("split it into several modules"),
        ]);
    }
    let mut cursor = Cursor::new(source.text(), limits);
    let module = cursor.module();
    cursor.finish(module)
}
