//! The programs of tests: how they are built, what they meet, and whether one of them
//! fails.

use super::weave::{ACTIVE, TRACE, TRACE_FILE};
use super::{Tests, package};
use crate::shell::{self, Failed};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than any test needs, in KiB: a mutant that asks for all memory is stopped.
const MEMORY_KIB: u64 = 12 << 20;
/// So many of the tests that meet a mutant are tried before all of them are.
const FIRST: usize = 8;

/// A test program, and what it met without a mutant.
pub(super) struct Program {
    path: PathBuf,
    folder: PathBuf,
    took: Duration,
    /// For each mutant, which tests met it. A thread that is no test has the name `?`.
    met: BTreeMap<usize, BTreeSet<String>>,
}

/// An error of the compiler, with the place it points at.
pub(super) struct Mistake {
    /// File (relative to the root) and offset.
    pub(super) place: Option<(String, usize)>,
    /// As the compiler words it.
    pub(super) text: String,
}

/// Runs cargo and gives its messages; errors of the compiler are in them.
fn cargo(arguments: &[&str]) -> Result<(bool, Vec<Value>), Failed> {
    let output = shell::command("cargo")
        .args(arguments)
        .arg("--message-format=json")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failed(format!("cargo can't be started: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok((output.status.success(), messages.collect()))
}

/// What came of a build.
pub(super) enum Built {
    Programs(Vec<Program>),
    /// What the compiler has against it.
    Mistakes(Vec<Mistake>),
}

/// The package whose dependencies ask for features that no other's do: named beside the others, it
/// has cargo choose the features of the whole workspace, whose crates are built already. It has
/// no tests of its own to build.
const WIDEST: &str = "heist-python";

/// Builds the programs of these tests.
pub(super) fn build(tests: &[Tests]) -> Result<Built, Failed> {
    let packages: Vec<String> = tests.iter().map(|tests| package(&tests.member)).collect();
    let mut arguments = vec!["test", "--no-run", "--quiet", "--package", WIDEST];
    for package in &packages {
        arguments.extend(["--package", package]);
    }
    let programs: Option<Vec<&str>> = tests.iter().map(Tests::integration).collect();
    match &programs {
        Some(programs) => arguments.extend(programs.iter().flat_map(|name| ["--test", name])),
        None => arguments.push("--tests"),
    }
    let (good, messages) = cargo(&arguments)?;
    if !good {
        return Ok(Built::Mistakes(mistakes(&messages)));
    }
    let programs = messages.iter().filter_map(|message| {
        let test = message["profile"]["test"] == true;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        test.then_some(Program {
            path: PathBuf::from(message["executable"].as_str()?),
            folder: folder.to_owned(),
            took: Duration::ZERO,
            met: BTreeMap::new(),
        })
    });
    let wanted = programs.filter(|program| tests.iter().any(|tests| program.is_of(tests)));
    Ok(Built::Programs(wanted.collect()))
}

fn mistakes(messages: &[Value]) -> Vec<Mistake> {
    let errors = messages.iter().map(|message| &message["message"]);
    errors
        .filter(|message| message["level"] == "error")
        .map(|message| {
            let spans = message["spans"].as_array();
            let first =
                spans.and_then(|spans| spans.iter().find(|span| span["is_primary"] == true));
            let place = first.and_then(|span| {
                let offset = usize::try_from(span["byte_start"].as_u64()?).ok()?;
                Some((span["file_name"].as_str()?.to_owned(), offset))
            });
            let text = message["rendered"].as_str().unwrap_or_default().to_owned();
            Mistake { place, text }
        })
        .collect()
}

impl Program {
    /// The program's name, without the compiler's hash.
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        name.split('-').next().unwrap_or_default().to_owned()
    }

    fn is_of(&self, tests: &Tests) -> bool {
        let named = |name: &String| *name == self.name();
        self.folder.ends_with(&tests.member) && tests.program.as_ref().is_none_or(named)
    }

    /// Runs it without a mutant, and learns which mutants its tests meet.
    pub(super) fn learn(&mut self, trace: &Path) -> Result<(), Failed> {
        let _ = fs::remove_file(trace);
        let start = Instant::now();
        let mut command = self.command(&[]);
        command.env(ACTIVE, TRACE).env(TRACE_FILE, trace);
        if !passes(&mut command, Duration::from_secs(1800))? {
            let path = self.path.display();
            return Err(Failed(format!("{path} fails without a mutant")));
        }
        self.took = start.elapsed();
        let met = fs::read_to_string(trace).unwrap_or_default();
        let tests = self.list()?;
        for line in met.lines() {
            let Some((number, thread)) = line.split_once(' ') else {
                continue;
            };
            let test = if tests.contains(thread) { thread } else { "?" };
            let number = number.parse().unwrap_or(0);
            self.met.entry(number).or_default().insert(test.to_owned());
        }
        let (seconds, met) = (self.took.as_secs_f64(), self.met.len());
        eprintln!("  {}: {seconds:.1} s, meets {met} mutants", self.name());
        Ok(())
    }

    fn list(&self) -> Result<BTreeSet<String>, Failed> {
        let listed = self.command(&["--list"]).output();
        let listed = listed.map_err(|error| Failed(format!("{}: {error}", self.path.display())))?;
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    }

    /// A command with as much memory as a test may have, in the package's folder.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""))
            .arg(&self.path)
            .args(arguments)
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder)
            // Inputs that break a mutant are no regressions.
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .stdin(Stdio::null());
        command
    }

    fn fails(&self, number: Option<usize>, tests: &[&str]) -> Result<bool, Failed> {
        let mut arguments = Vec::new();
        if !tests.is_empty() {
            arguments.push("--exact");
            arguments.extend(tests);
        }
        let mut command = self.command(&arguments);
        if let Some(number) = number {
            command.env(ACTIVE, number.to_string());
        }
        // A mutant that never ends is caught as well.
        Ok(!passes(
            &mut command,
            self.took * 4 + Duration::from_secs(30),
        )?)
    }
}

/// The program that catches a woven mutant. A few tests that met it are tried first.
pub(super) fn catcher(programs: &[Program], number: usize) -> Result<Option<String>, Failed> {
    let mut there: Vec<(&Program, Vec<&str>, bool)> = Vec::new();
    for program in programs {
        if let Some(met) = program.met.get(&number) {
            let named = met.iter().map(String::as_str).filter(|&test| test != "?");
            there.push((program, named.collect(), met.contains("?")));
        }
    }
    there.sort_by_key(|(program, ..)| program.took);
    for (program, named, _) in &there {
        let first = &named[..named.len().min(FIRST)];
        if !first.is_empty() && program.fails(Some(number), first)? {
            return Ok(Some(program.name()));
        }
    }
    for (program, named, elsewhere) in &there {
        let all: &[&str] = if *elsewhere { &[] } else { named };
        if (*elsewhere || named.len() > FIRST) && program.fails(Some(number), all)? {
            return Ok(Some(program.name()));
        }
    }
    Ok(None)
}

/// The program that fails with the mutant that is built in.
pub(super) fn catcher_of_all(programs: &[Program]) -> Result<Option<String>, Failed> {
    for program in programs {
        if program.fails(None, &[])? {
            return Ok(Some(program.name()));
        }
    }
    Ok(None)
}

/// Takes over how long the programs of an earlier build took, and their order.
pub(super) fn in_order(mut programs: Vec<Program>, earlier: &[Program]) -> Vec<Program> {
    for program in &mut programs {
        let known = earlier
            .iter()
            .find(|other| (&other.folder, other.name()) == (&program.folder, program.name()));
        program.took = known.map_or(Duration::from_secs(600), |known| known.took);
    }
    programs.sort_by_key(|program| program.took);
    programs
}

fn passes(command: &mut Command, limit: Duration) -> Result<bool, Failed> {
    let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = silent.process_group(0).spawn();
    let mut child = child.map_err(|error| Failed(format!("a test can't be started: {error}")))?;
    let start = Instant::now();
    loop {
        let ended = child.try_wait();
        match ended.map_err(|error| Failed(format!("a test is lost: {error}")))? {
            Some(status) => return Ok(status.success()),
            None if start.elapsed() > limit => {
                kill(&mut child);
                return Ok(false);
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Ends a test and the processes it has started.
fn kill(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
}
