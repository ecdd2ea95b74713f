//! What is said of a number in a flag that is none: which numbers it takes.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Error};
use std::error::Error as _;
use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};

/// Reads the words. A number that is wrong is told with the numbers that are right.
pub(super) fn matches(mut command: Command, words: &[OsString]) -> Result<ArgMatches, Error> {
    command.try_get_matches_from_mut(words).map_err(|error| {
        let better = told(&error, &command, words);
        better.unwrap_or(error)
    })
}

fn told(error: &Error, command: &Command, words: &[OsString]) -> Option<Error> {
    let (flag, value) = wrong_value(error)?;
    let wanted = match error.source()?.downcast_ref::<ParseIntError>() {
        Some(why) if *why.kind() == IntErrorKind::PosOverflow => "it is too large".to_owned(),
        Some(_) => {
            let least = least(command, words, flag, value);
            format!("a whole number from {least} on is wanted")
        }
        None => wanted(error, value)?,
    };
    let message = format!(
        "invalid value '{value}' for '{flag}': {wanted}\n\nFor more information, try '--help'.\n"
    );
    Some(Error::raw(ErrorKind::ValueValidation, message))
}

/// The flag and the value that an error is about.
fn wrong_value(error: &Error) -> Option<(&str, &str)> {
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    Some((
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    ))
}

/// The same of a number out of its range: where the range ends only because numbers do, its end
/// is left out.
fn wanted(error: &Error, value: &str) -> Option<String> {
    let (first, last) = range(error, value)?;
    let ends = [u16::MAX.into(), u32::MAX.into(), u64::MAX];
    Some(match ends.contains(&last) {
        true => format!("a whole number from {first} on is wanted"),
        false => format!("a whole number from {first} to {last} is wanted"),
    })
}

/// The numbers that a flag takes: clap says `0 is not in 1..=8`.
fn range(error: &Error, value: &str) -> Option<(u64, u64)> {
    let text = error.source()?.to_string();
    let (first, last) = text
        .strip_prefix(value)?
        .strip_prefix(" is not in ")?
        .split_once("..=")?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The smallest number that a flag takes: what it says to a zero in place of this value.
fn least(command: &Command, words: &[OsString], flag: &str, value: &str) -> u64 {
    let zeroed = words.iter().map(|word| match word.to_str() {
        Some(word) if word == value => "0".into(),
        Some(word) => match word.strip_suffix(value) {
            Some(name) if name.starts_with('-') && name.ends_with('=') => format!("{name}0").into(),
            _ => word.into(),
        },
        None => word.clone(),
    });
    let zeroed: Vec<OsString> = zeroed.collect();
    let Err(error) = command.clone().try_get_matches_from(zeroed) else {
        return 0;
    };
    match wrong_value(&error) {
        Some((same, "0")) if same == flag => range(&error, "0").map_or(0, |(first, _)| first),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::whole;
    use super::*;

    fn told(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = matches(whole(), &words).expect_err("a wrong number");
        error.to_string()
    }

    #[test]
    fn a_wrong_number_is_told_with_the_right_ones() {
        let end = "\n\nFor more information, try '--help'.\n";
        for (words, says) in [
            (
                &["heist", "run", "gemm", "--seed", "-1"][..],
                "'-1' for '--seed <SEED>': a whole number from 0 on is wanted",
            ),
            (
                &["heist", "run", "gemm", "--seed=two"],
                "'two' for '--seed <SEED>': a whole number from 0 on is wanted",
            ),
            (
                &["heist", "run", "gemm", "--seed", "1.5"],
                "'1.5' for '--seed <SEED>': a whole number from 0 on is wanted",
            ),
            (
                &["heist", "run", "gemm", "--seed", "99999999999999999999"],
                "'99999999999999999999' for '--seed <SEED>': it is too large",
            ),
            (
                &["heist", "run", "gemm", "--in-flight", "-2"],
                "'-2' for '--in-flight <N>': a whole number from 0 on is wanted",
            ),
            (
                &["heist", "tune", "gemm", "--limit", "many"],
                "'many' for '--limit <N>': a whole number from 1 on is wanted",
            ),
            (
                &["heist", "tune", "gemm", "--limit=0"],
                "'0' for '--limit <N>': a whole number from 1 on is wanted",
            ),
            (
                &["heist", "qualify", "--limit", "0"],
                "'0' for '--limit <SECONDS>': a whole number from 1 to 86400 is wanted",
            ),
        ] {
            assert_eq!(
                told(words),
                format!("error: invalid value {says}{end}"),
                "{words:?}"
            );
        }
        // Other mistakes are told as before.
        let other = told(&["heist", "run", "gemm", "--cluster", "x"]);
        assert!(!other.contains("a whole number from"), "{other}");
    }
}
