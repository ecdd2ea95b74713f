//! The project's own chores.
//!
//! `cargo xtask test` is the one command that a fresh machine needs: it sets up
//! what the tests ask (an assembler in a virtual environment, a browser) and runs
//! them all.

mod advisories;
#[cfg(test)]
mod api_docs;
mod book;
mod browser;
mod circles;
mod compiler;
mod dist;
mod fuzz_check;
mod layers;
mod mutants;
mod packages;
mod shell;
mod suite;
mod tools;
mod wheel;

use shell::{Aside, Failed};
use std::process::ExitCode;
use std::thread;

const HELP: &str = "\
cargo xtask COMMAND

  setup        make the virtual environment with ptxas that the tests ask
  test         setup, a browser (Debian's chromium, where it may be installed), then
               formatting, layers, lints, every test, and those of the Python package
  python [--triton VERSION...]
               the Python package, built as the Rust tests are, and its tests; or those of
               Triton kernels with other versions of Triton, such as 3.6.0
  book         the programs written into the pages of docs, links checked, and HTML where mdbook is
  wheel        the Python package, to install: target/wheels/heist-*.whl
  dist         a release in target/dist: the command, the wheel, notes, the list of parts, checksums
  deny         licences, sources and security advisories of what we depend on, against deny.toml
               and advisories.json, without a network
  advisories [REPOSITORY]
               advisories.json made anew from RustSec's database, or from a copy of it
  layers       who uses whom, against the table in docs/architecture.md, and circles of
               imports inside a crate
  mutants CRATE,... [--base REV | --sample N [--offset K] | --from FILE] [--tests CRATE,...] [--woven]
               small mistakes in what changed since REV (HEAD unless told), or N of them all
               over a crate (another K, another sample), or those that FILE names: each must
               fail a test of those that --tests names, as CRATE or CRATE:PROGRAM (all of
               CRATE itself unless told)
  mutate-ptx [--values] [--only TEXT] [--every N] [--schedules N] [--kernel WORDS] [PATH...]
               mistakes in the PTX of test files: each must be found
  bless        rewrite the golden files with what the code prints now
  fuzz [N]     put N mutated inputs (10 million unless told) through the parser
  fuzz-check [N [SEED [HEIST]]]
               put N mutated test files (100,000 unless told) through `heist check` with
               their launches: time and memory are kept, and the status is 0, 1 or 2
  foreign [--every N] [--device NAME]
               run what Triton compiles on simulated GPUs of sm_80, sm_90 and sm_100: the
               checker must say nothing
  bench check  check the largest kernel of the corpus without a launch
  bench parse  parse the corpus beside the crate ptx-syntax
  bench simulate
               run a matrix product beside the crate ptoxide
";

fn main() -> ExitCode {
    if let Some(status) = compiler::stand_in() {
        return status;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["setup"] => tools::setup(),
        ["test"] => test(),
        ["python"] => wheel::test(),
        ["python", "--triton", ref versions @ ..] if !versions.is_empty() => {
            wheel::test_with(versions)
        }
        ["book"] => book::book(),
        ["wheel"] => wheel::wheel().map(drop),
        ["dist"] => dist::dist(),
        ["deny"] => packages::deny(),
        ["advisories"] => advisories::update(None),
        ["advisories", source] => advisories::update(Some(source)),
        ["layers"] => layers::check(),
        ["mutants", ref words @ ..] => {
            mutants::Plan::read(words).and_then(|plan| mutants::run(&plan))
        }
        ["mutate-ptx", ref words @ ..] => mutate_ptx(words),
        ["bless"] => bless(),
        ["fuzz"] => fuzz("10000000"),
        ["fuzz", inputs] if inputs.parse::<u64>().is_ok() => fuzz(inputs),
        ["fuzz-check", ref words @ ..] => fuzz_check(words),
        ["foreign", ref words @ ..] => wheel::foreign(words),
        ["bench", "check"] => bench_check(),
        ["bench", name] => bench(name),
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that must hold before a commit lands. A step that fails does not hide
/// the next: all of them run, and the end lists what failed.
fn test() -> Result<(), Failed> {
    shell::build_once_if_fresh();
    shell::compile_with(compiler::install()?);
    // Downloads take minutes and little of the processor: they go on while cargo builds.
    let python = Aside::start("python")?;
    let tools = thread::spawn(|| {
        let tools = tools::setup();
        browser::setup();
        tools
    });
    type Step<'a> = Box<dyn FnOnce() -> Result<(), Failed> + 'a>;
    let steps: [(&str, Step<'_>); 6] = [
        ("layers", Box::new(layers::check)),
        (
            "formatting",
            Box::new(|| shell::cargo(&["fmt", "--all", "--check"])),
        ),
        ("build and lints", Box::new(compiler::build)),
        (
            "set-up",
            Box::new(|| {
                tools
                    .join()
                    .unwrap_or_else(|_| Err(Failed("it panicked".into())))
            }),
        ),
        ("tests", Box::new(suite::run)),
        ("the Python package", Box::new(|| python.finish())),
    ];
    let mut failed = Vec::new();
    for (name, step) in steps {
        if let Err(Failed(why)) = step() {
            failed.push(format!("{name}: {why}"));
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failed(format!("what failed:\n{}", failed.join("\n"))))
}

/// Mistakes in PTX: what cargo-mutants can't see into.
fn mutate_ptx(words: &[&str]) -> Result<(), Failed> {
    let program = ["run", "--release", "-p", "heist-mutants", "--"];
    shell::cargo(&[&program[..], words].concat())
}

fn bless() -> Result<(), Failed> {
    shell::run(
        shell::command("cargo")
            .args(["test", "--workspace", "golden"])
            .env("HEIST_BLESS", "1"),
    )
}

fn fuzz(inputs: &str) -> Result<(), Failed> {
    shell::run(
        shell::command("cargo")
            .args(["test", "--release", "-p", "heist-ptx", "--test", "fuzz"])
            .args(["--", "--nocapture"])
            .env("HEIST_FUZZ_INPUTS", inputs),
    )
}

fn fuzz_check(words: &[&str]) -> Result<(), Failed> {
    let number = |word: &&str| {
        let wrong = || Failed(format!("fuzz-check takes numbers, not `{word}`"));
        word.parse::<u64>().map_err(|_| wrong())
    };
    let inputs = words.first().map_or(Ok(100_000), number)?;
    let seed = words.get(1).map_or(Ok(0), number)?;
    fuzz_check::run(inputs, seed, words.get(2).copied())
}

fn bench_check() -> Result<(), Failed> {
    let program = [
        "run",
        "--release",
        "-p",
        "heist-bench",
        "--bin",
        "check_time",
    ];
    shell::cargo(&program)
}

/// Runs a benchmark of the workspace of peers.
fn bench(name: &str) -> Result<(), Failed> {
    let peers = shell::root().join("bench/peers");
    shell::run(
        shell::command("cargo")
            .args(["run", "--release", "--features", name, "--bin", name])
            .current_dir(peers),
    )
}
