//! The compiler of the test build: what is compiled for the tests is linted as it is compiled.
//!
//! `cargo clippy` compiles the whole workspace once more, and unit tests without optimisation
//! would have every crate below them compiled once more. A copy of this program stands between
//! cargo and rustc instead (`RUSTC_WORKSPACE_WRAPPER`), so that each target is compiled once.

use crate::shell::{self, Failed};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::{env, fs, io};

/// The name that the copy goes by.
const NAME: &str = "compile-and-lint";

/// Puts a copy of this program where cargo is told to find its compiler.
///
/// A copy, because cargo writes this program anew when it builds the workspace.
pub(crate) fn install() -> Result<PathBuf, Failed> {
    let place = shell::root().join("target/xtask").join(NAME);
    let cannot = |error: io::Error| Failed(format!("{}: {error}", place.display()));
    fs::create_dir_all(shell::root().join("target/xtask")).map_err(cannot)?;
    let new = place.with_extension("new");
    fs::copy(env::current_exe().map_err(cannot)?, &new).map_err(cannot)?;
    fs::rename(&new, &place).map_err(cannot)?;
    Ok(place)
}

/// Compiles what cargo asks for, if this is the copy.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let mut words = env::args_os();
    let own = PathBuf::from(words.next()?);
    if own.file_name()? != NAME {
        return None;
    }
    let rustc = words.next()?;
    let arguments: Vec<OsString> = words.collect();
    let text: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    // A test that starts cargo elsewhere is no part of this workspace.
    let here = env::current_dir().is_ok_and(|folder| folder == shell::root());
    let how = if here { how(&text) } else { How::AsAsked };
    let mut compiler = match how {
        How::AsAsked => Command::new(&rustc),
        How::Linted { .. } => Command::new("clippy-driver"),
    };
    if matches!(how, How::Linted { .. }) {
        compiler.arg(&rustc);
    }
    compiler.args(&arguments);
    if how == (How::Linted { plain: true }) {
        compiler.args(["-C", "opt-level=0"]);
    }
    Some(match compiler.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!(
                "error: {:?} can't be started: {error}",
                compiler.get_program()
            );
            ExitCode::FAILURE
        }
    })
}

/// How a target is compiled.
#[derive(Debug, PartialEq, Eq)]
enum How {
    /// By rustc alone.
    AsAsked,
    /// By clippy, which is rustc with more lints; `plain` is without optimisation.
    Linted { plain: bool },
}

/// Chooses by what cargo says to rustc.
fn how(arguments: &[&str]) -> How {
    let asks = arguments
        .iter()
        .any(|word| word.starts_with("--print") || *word == "-vV");
    let optimised = arguments
        .iter()
        .any(|word| word.starts_with("opt-level=") && *word != "opt-level=0");
    let library = !arguments.contains(&"--test")
        && arguments
            .iter()
            .any(|word| Path::new(word).ends_with("src/lib.rs"));
    match (asks, library, optimised) {
        (true, ..) => How::AsAsked,
        // Tests run these for minutes, and clippy leaves out rustc's own optimisations. The same
        // lines are linted with their unit tests.
        (_, true, true) => How::AsAsked,
        // Tests and examples spend their time in libraries, and to optimise them takes minutes.
        (_, false, true) => How::Linted { plain: true },
        (_, _, false) => How::Linted { plain: false },
    }
}

/// Builds all that the workspace has. What the compiler warns of is counted, not refused: a
/// crate with a warning has tests to run.
pub(crate) fn build() -> Result<(), Failed> {
    // `--all-targets` has libraries and programs compiled as benchmarks too, also where they have
    // no tests.
    let targets = ["--lib", "--bins", "--examples", "--tests", "--bench", "*"];
    let words = [&["build", "--workspace", "--keep-going"][..], &targets].concat();
    eprintln!("$ cargo {}", words.join(" "));
    let mut cargo = shell::command("cargo")
        .args(&words)
        .args(["--message-format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Failed(format!("cargo can't be started: {error}")))?;
    let mut warnings = 0;
    if let Some(output) = cargo.stdout.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if let Some(message) = message(&line) {
                eprintln!("{message}");
                warnings += 1;
            }
        }
    }
    let status = cargo
        .wait()
        .map_err(|error| Failed(format!("cargo: {error}")))?;
    match (status.success(), warnings) {
        (true, 0) => Ok(()),
        (true, _) => Err(Failed(format!(
            "the compiler and clippy have {warnings} things to say: they are above"
        ))),
        (false, _) => Err(Failed(format!("cargo build ended with {status}"))),
    }
}

/// What the compiler says in a line of cargo's JSON, as it would be shown.
fn message(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["reason"] != "compiler-message" {
        return None;
    }
    let message = &line["message"];
    // Sums, such as "3 warnings emitted", belong to no place.
    let places = message["spans"].as_array()?;
    if places.is_empty() && message["code"].is_null() {
        return None;
    }
    message["rendered"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_linted_once_and_what_tests_run_is_optimised() {
        let library = ["--crate-name", "x", "crates/x/src/lib.rs"];
        let optimised = ["-C", "opt-level=2"];
        let linted = |plain| How::Linted { plain };
        for (words, expected) in [
            (vec![], linted(false)),
            (vec!["--test"], linted(false)),
            (optimised.to_vec(), How::AsAsked),
            ([&optimised[..], &["--test"]].concat(), linted(true)),
            (vec!["--print=file-names"], How::AsAsked),
        ] {
            assert_eq!(how(&[&library[..], &words].concat()), expected, "{words:?}");
        }
        for other in [
            &["crates/x/tests/y.rs", "--test"][..],
            &["crates/x/examples/y.rs"],
        ] {
            assert_eq!(
                how(&[other, &optimised].concat()),
                linted(true),
                "{other:?}"
            );
        }
    }

    #[test]
    fn only_what_has_a_place_or_a_code_counts() {
        let line = |message: &str| {
            format!(r#"{{"reason":"compiler-message","message":{{{message},"rendered":"it"}}}}"#)
        };
        let said = |text: &str| message(&line(text)).is_some();
        assert!(said(r#""spans":[{"line_start":1}],"code":null"#));
        assert!(said(r#""spans":[],"code":{"code":"clippy::all"}"#));
        assert!(!said(r#""spans":[],"code":null"#));
        assert!(message(r#"{"reason":"compiler-artifact"}"#).is_none());
        assert!(message("warning: not JSON").is_none());
    }
}
