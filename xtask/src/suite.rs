//! Runs every test of the workspace and lists those that failed.
//!
//! `cargo test` runs one test program after the other, and most end with one long test and an idle core. So cargo
//! builds them here, and two run at a time.

use crate::shell::{self, Failed};
use serde_json::Value;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::thread;

/// Test programs that run at a time.
const LANES: usize = 2;

/// Runs all test programs, also after one has failed.
pub(crate) fn run() -> Result<(), Failed> {
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    match programs() {
        Ok(programs) => broken.extend(in_lanes(programs, &mut tally)),
        Err(Failed(why)) => broken.push(why),
    }
    // Examples in documentation: rustdoc compiles and runs them.
    let words = ["test", "--workspace", "--no-fail-fast", "--doc"];
    if let Err(Failed(why)) = tally.cargo(&words) {
        broken.push(why);
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

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// As cargo names it: the crate and the file.
    name: String,
    executable: PathBuf,
    /// The folder of its crate, in which it runs.
    folder: PathBuf,
}

/// Has cargo build all test programs, and takes down where they are.
fn programs() -> Result<Vec<Program>, Failed> {
    let words = [
        "test",
        "--workspace",
        "--tests",
        "--no-run",
        "--message-format",
        "json-render-diagnostics",
    ];
    eprintln!("$ cargo {}", words.join(" "));
    let built = shell::command("cargo")
        .args(words)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failed(format!("cargo can't be started: {error}")))?;
    if !built.status.success() {
        return Err(Failed(format!("cargo test ended with {}", built.status)));
    }
    let lines = String::from_utf8_lossy(&built.stdout);
    Ok(lines.lines().filter_map(program).collect())
}

/// The test program that a line of cargo's JSON tells of.
fn program(line: &str) -> Option<Program> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["profile"]["test"] != true {
        return None;
    }
    let manifest = PathBuf::from(line["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_path_buf();
    let source = PathBuf::from(line["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(shell::root()).unwrap_or(&source);
    Some(Program {
        name: source.display().to_string(),
        executable: PathBuf::from(line["executable"].as_str()?),
        folder,
    })
}

/// Runs programs, [`LANES`] at a time, and shows what each has printed once it has ended; those that did not succeed.
fn in_lanes(programs: Vec<Program>, tally: &mut Tally) -> Vec<String> {
    let queue = Mutex::new(VecDeque::from(programs));
    let told = Mutex::new((tally, Vec::new()));
    // What another lane's panic has left is as it should be: each holds it between two programs.
    let next = || {
        queue
            .lock()
            .unwrap_or_else(|left| left.into_inner())
            .pop_front()
    };
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let ran = shell::command(&program.executable)
                        .current_dir(&program.folder)
                        .env("CARGO_MANIFEST_DIR", &program.folder)
                        .stdin(Stdio::null())
                        .output();
                    let mut told = told.lock().unwrap_or_else(|left| left.into_inner());
                    let (tally, broken) = &mut *told;
                    println!("\n     Running {}", program.name);
                    match ran {
                        Ok(ran) => {
                            let printed = [ran.stdout, ran.stderr].concat();
                            for line in String::from_utf8_lossy(&printed).lines() {
                                println!("{line}");
                                tally.read(line);
                            }
                            if !ran.status.success() {
                                broken.push(format!("{} ended with {}", program.name, ran.status));
                            }
                        }
                        Err(error) => {
                            broken.push(format!("{} can't be started: {error}", program.name))
                        }
                    }
                }
            });
        }
    });
    let (_, broken) = told.into_inner().unwrap_or_else(|left| left.into_inner());
    broken
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
    fn of_what_cargo_builds_test_programs_are_run_in_their_crates() {
        let line = |test: &str, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/x/Cargo.toml","target":{{"src_path":"/w/crates/x/tests/y.rs"}},
                "profile":{{"test":{test}}},"executable":{executable}}}"#
            )
        };
        let expected = Program {
            name: "/w/crates/x/tests/y.rs".into(),
            executable: "/w/target/y-1".into(),
            folder: "/w/crates/x".into(),
        };
        assert_eq!(program(&line("true", r#""/w/target/y-1""#)), Some(expected));
        for other in [
            line("false", r#""/w/target/y""#),
            line("true", "null"),
            "not JSON".to_owned(),
        ] {
            assert_eq!(program(&other), None, "{other}");
        }
    }

    #[test]
    fn every_program_runs_though_others_fail() {
        let of = |executable: &str| Program {
            name: executable.into(),
            executable: executable.into(),
            folder: "/".into(),
        };
        let all = ["false", "true", "/no/such/program", "false", "true"];
        let mut tally = Tally::default();
        let mut broken = in_lanes(all.map(of).into(), &mut tally);
        broken.sort();
        assert_eq!(broken.len(), 3, "{broken:?}");
        assert!(broken[0].starts_with("/no/such/program can't be started"));
        assert!(
            broken[1..]
                .iter()
                .all(|why| why.starts_with("false ended with"))
        );
    }

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
