//! What is printed, for all commands: the macros here stand in for those of the
//! standard library, which panic when a reader has gone away (`| head -1`).
//!
//! A reader that went away is no error, and
//! changes no exit status; an answer that could not be written (a full disk) is
//! one, with exit status 2.

use std::fmt::Arguments;
use std::io::{ErrorKind, Result, Write};

macro_rules! print {
    ($($words:tt)*) => { $crate::say::out(format_args!($($words)*)) };
}

macro_rules! println {
    () => { print!("\n") };
    ($($words:tt)*) => { print!("{}\n", format_args!($($words)*)) };
}

macro_rules! eprintln {
    ($($words:tt)*) => { $crate::say::err(format_args!($($words)*)) };
}

/// Writes to standard output, as it stands.
pub(crate) fn out(words: Arguments<'_>) {
    answer(std::io::stdout().lock().write_fmt(words));
}

/// Writes a text with colours to standard output, without them where that is no
/// terminal or they are not wanted (`NO_COLOR`).
pub(crate) fn painted(text: &str) {
    answer(anstream::stdout().lock().write_all(text.as_bytes()));
}

/// Writes a line to standard error; its colours as [`painted`] does.
pub(crate) fn err(words: Arguments<'_>) {
    // There is nowhere to report an error of standard error.
    let _ = writeln!(anstream::stderr().lock(), "{words}");
}

/// Writes what is still held back.
pub(crate) fn flush() {
    answer(std::io::stdout().lock().flush());
}

fn answer(written: Result<()>) {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            err(format_args!("heist: can't write the answer: {error}"));
            std::process::exit(2);
        }
        _ => {}
    }
}
