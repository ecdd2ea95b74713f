//! Runs every test of the workspace and lists those that failed.

use crate::shell::{self, Failed};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Runs all test programs, also after one has failed.
pub(crate) fn run() -> Result<(), Failed> {
    let phases = [&["--tests"][..], &["--doc"]];
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for phase in phases {
        let arguments = [&["test", "--workspace", "--no-fail-fast"][..], phase].concat();
        if let Err(Failed(why)) = tally.cargo(&arguments) {
            broken.push(why);
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if broken.is_empty() {
        return Ok(());
    }
    let names = match &tally.names[..] {
        [] => "a test program did not build, or ended early: its lines are above".to_owned(),
        names => names.join("\n  "),
    };
    Err(Failed(format!("{}\n  {names}", broken.join("\n"))))
}

/// What the lines of test programs add up to.
#[derive(Debug, Default)]
struct Tally {
    passed: u64,
    failed: u64,
    names: Vec<String>,
}

impl Tally {
    /// Runs cargo, and adds up what its test programs print.
    fn cargo(&mut self, arguments: &[&str]) -> Result<(), Failed> {
        eprintln!("$ cargo {}", arguments.join(" "));
        let mut cargo = shell::command("cargo")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Failed(format!("cargo can't be started: {error}")))?;
        if let Some(output) = cargo.stdout.take() {
            // A line that is not text is shown as far as it is.
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                println!("{line}");
                self.read(&line);
            }
        }
        let status = cargo
            .wait()
            .map_err(|error| Failed(format!("cargo: {error}")))?;
        match status.success() {
            true => Ok(()),
            false => Err(Failed(format!("cargo test ended with {status}"))),
        }
    }

    /// Reads `test NAME ... FAILED` and `test result: ok. N passed; N failed; …`.
    fn read(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let count = |what: &str| {
                let at = counts.split([';', '.']).map(str::trim);
                at.filter_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok())
                    .sum::<u64>()
            };
            self.passed += count("passed");
            self.failed += count("failed");
        } else if let Some(name) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.names.push(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_programs_add_up() {
        let mut tally = Tally::default();
        for line in [
            "test one ... ok",
            "test two::three ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.1s",
            "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        ] {
            tally.read(line);
        }
        assert_eq!((tally.passed, tally.failed), (8, 1));
        assert_eq!(tally.names, ["two::three"]);
    }
}
