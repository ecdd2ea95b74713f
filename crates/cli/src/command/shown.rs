//! Every `heist` command that the documents and the help show is one that the
//! program takes.

use super::{Heist, with_numbers};
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use std::fs;
use std::path::{Path, PathBuf};

/// The words of a command as a shell reads them, up to its comment: a `#`, or text
/// set apart by two spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = None;
    let mut spaces = 0;
    for c in line.chars() {
        match (quoted, c) {
            (Some(quote), c) if c == quote => quoted = None,
            (None, '\'' | '"') => quoted = Some(c),
            (None, ' ') => {
                spaces += 1;
                if spaces == 2 {
                    break;
                }
                words.push(String::new());
                continue;
            }
            (None, '#' | '|' | '>' | '&') if words.last().is_some_and(String::is_empty) => break,
            (_, c) => words.last_mut().expect("one").push(c),
        }
        spaces = 0;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The commands in a text: lines that start with one, also behind a pipe, and
/// spans of code in a line; whether it stands on a line of its own.
fn commands(text: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = text.split("\\\n").map(str::trim).collect();
    let joined = lines.join(" ");
    let mut found = Vec::new();
    for line in joined.lines() {
        let trimmed = line.trim_start();
        let piped = trimmed.find("| heist ").map(|at| &trimmed[at + 2..]);
        if trimmed.starts_with("heist ") {
            found.push((trimmed.to_owned(), true));
        } else if let Some(command) = piped {
            found.push((command.to_owned(), true));
        }
        let spans = line.split('`').skip(1).step_by(2);
        let spans = spans.filter(|span| span.starts_with("heist "));
        found.extend(spans.map(|span| (span.to_owned(), false)));
    }
    found
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![
        root.join("README.md"),
        root.join("CONTRIBUTING.md"),
        root.join("cases/README.md"),
    ];
    let page = |folder: PathBuf| fs::read_dir(folder).expect("a folder").flatten();
    for folder in ["docs", "docs/measurements"] {
        all.extend(page(root.join(folder)).map(|entry| entry.path()));
    }
    all.extend(page(root.join("rules")).map(|entry| entry.path().join("page.md")));
    all.retain(|path| path.is_file());
    all
}

fn helps(command: &Command) -> Vec<(String, String)> {
    let own = command.get_after_help().map(ToString::to_string);
    let own = own.map(|text| (format!("{} --help", command.get_name()), text));
    let below = command.get_subcommands().flat_map(helps);
    own.into_iter().chain(below).collect()
}

#[test]
fn every_command_that_is_shown_is_taken() {
    let program = with_numbers(Heist::command());
    program.clone().debug_assert();
    let mut texts = helps(&program);
    for path in documents() {
        let text = fs::read_to_string(&path).expect("text");
        texts.push((path.display().to_string(), text));
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for (place, text) in &texts {
        for (line, alone) in commands(text) {
            count += 1;
            if let Err(error) = program.clone().try_get_matches_from(words(&line)) {
                // In a sentence, a command may stand for itself.
                let named = !alone && error.kind() == ErrorKind::MissingRequiredArgument;
                let help = matches!(
                    error.kind(),
                    ErrorKind::DisplayHelp
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                        | ErrorKind::DisplayVersion
                );
                if !named && !help {
                    wrong.push(format!("{place}: {line}\n{error}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 100, "only {count} commands were found");
}

#[test]
fn words_are_read_as_a_shell_reads_them() {
    assert_eq!(
        words("heist run a --policy 'x(8) & y' b=1  what it does"),
        ["heist", "run", "a", "--policy", "x(8) & y", "b=1"]
    );
    assert_eq!(
        words("heist check a.log # explained"),
        ["heist", "check", "a.log"]
    );
    assert_eq!(words("heist emit gemm > a.ptx"), ["heist", "emit", "gemm"]);
}
