//! The Python package: its wheel, and its tests in an environment of their own.

use crate::shell::{self, Failed};
use std::fs;
use std::path::{Path, PathBuf};

/// What builds the wheel.
const BUILDER: &str = "maturin>=1.16,<2";
/// What its tests need in any case.
const ALWAYS: &[&str] = &["pytest", "numpy"];

/// What its tests need besides, and those that are skipped without it.
const TESTED_WITH: [(&str, &str); 2] = [
    (
        "torch",
        "the tests of operations for PyTorch (python/tests/test_torch_*.py), and with Triton those of its kernels \
         (test_triton*.py, test_inductor.py, test_pytest_plugin.py)",
    ),
    (
        "transformers",
        "models of Hugging Face (python/tests/test_transformers.py)",
    ),
];

/// Builds the wheel to install: `target/wheels/heist-*.whl`.
pub(crate) fn wheel() -> Result<PathBuf, Failed> {
    let python = environment()?;
    install(&python, &[BUILDER])?;
    let wheel = build(&python, &["--release"], "target/wheels")?;
    let size = fs::metadata(&wheel).map_or(0, |file| file.len());
    println!("{} ({:.1} MB)", wheel.display(), size as f64 / 1e6);
    Ok(wheel)
}

/// Builds the wheel as the Rust tests are built, installs it, and runs the tests of
/// the package. Those of the operations for PyTorch need PyTorch: a machine that
/// can't have it is told so, and they are skipped by name.
pub(crate) fn test() -> Result<(), Failed> {
    // The download goes on while cargo builds what the Rust tests need.
    let python = environment()?;
    let all: Vec<&str> = TESTED_WITH.iter().map(|(package, _)| *package).collect();
    if install(&python, &all).is_err() {
        for (package, skipped) in TESTED_WITH {
            if let Err(Failed(why)) = install(&python, &[package]) {
                eprintln!("{why}\n{package} can't be had here: {skipped} are skipped");
            }
        }
    }
    let python = installed()?;
    let tests = shell::root().join("python");
    shell::run(
        shell::command(&python)
            .args([
                "-m",
                "pytest",
                "-ra",
                "-p",
                "no:cacheprovider",
                "--durations=25",
            ])
            .current_dir(tests.join("tests"))
            .arg("--rootdir")
            .arg(&tests),
    )
}

/// Runs the tests of Triton kernels with other versions of Triton, each in a folder of its own in
/// front of the environment's: PyTorch stays as it is.
pub(crate) fn test_with(versions: &[&str]) -> Result<(), Failed> {
    let python = installed()?;
    install(&python, &["torch"])?;
    let tests = shell::root().join("python/tests");
    let mut failed = Vec::new();
    for version in versions {
        let folder = shell::root().join(format!("target/python/triton-{version}"));
        if !folder.join("triton").is_dir() {
            let target = ["--no-deps", "--target", &folder.display().to_string()];
            let package = format!("triton=={version}");
            install(&python, &[&target[..], &[&package]].concat())?;
        }
        println!("Triton {version}");
        let done = shell::run(
            shell::command(&python)
                .args([
                    "-m",
                    "pytest",
                    "-q",
                    "-ra",
                    "-p",
                    "no:cacheprovider",
                    "--durations=25",
                ])
                .args(["-W", "ignore::heist.triton.CompilerWarning"])
                .args(["test_triton.py", "test_triton_bugs.py", "test_gluon.py"])
                .env("PYTHONPATH", &folder)
                .current_dir(&tests),
        );
        if done.is_err() {
            failed.push(*version);
        }
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(Failed(format!(
            "tests failed with Triton {}",
            failed.join(", ")
        ))),
    }
}

/// Runs what Triton compiles on simulated GPUs, and counts what the checker says.
pub(crate) fn foreign(words: &[&str]) -> Result<(), Failed> {
    let python = installed()?;
    install(&python, &["torch"])?;
    let script = shell::root().join("corpus/foreign.py");
    shell::run(shell::command(&python).arg(script).args(words))
}

/// The interpreter of the environment with the package in it, as the Rust tests are built.
fn installed() -> Result<PathBuf, Failed> {
    let python = environment()?;
    install(&python, &[&[BUILDER], ALWAYS].concat())?;
    let wheel = build(&python, &[], "target/python/wheels")?;
    shell::run(
        shell::command(&python)
            .args(["-m", "pip", "install", "--quiet", "--force-reinstall"])
            .args(["--no-deps", "--no-index"])
            .arg(&wheel),
    )?;
    Ok(python)
}

/// The interpreter of the environment, which is made where there is none.
fn environment() -> Result<PathBuf, Failed> {
    let folder = shell::root().join("target/python/venv");
    let python = folder.join("bin/python");
    if !has_pip(&python) {
        // What an interrupted set-up left behind is cleared away.
        let make = ["-m", "venv", "--clear"];
        shell::run(shell::command("python3").args(make).arg(&folder)).map_err(|Failed(why)| {
            Failed(format!(
                "{why}\nthe Python package is built and tested in a virtual environment: \
                 this needs python3 with its `venv` module"
            ))
        })?;
    }
    Ok(python)
}

fn has_pip(python: &Path) -> bool {
    let answer = shell::command(python)
        .args(["-m", "pip", "--version"])
        .output();
    answer.is_ok_and(|answer| answer.status.success())
}

/// Installs packages that are not there yet.
fn install(python: &Path, packages: &[&str]) -> Result<(), Failed> {
    shell::run(
        shell::command(python)
            .args(["-m", "pip", "install", "--quiet"])
            // Thousands of files of which the tests import some: Python compiles those itself.
            .args(["--no-compile", "--disable-pip-version-check"])
            .args(packages),
    )
}

/// Puts the library that records launches where the package has it.
fn add_recorder(how: &[&str]) -> Result<(), Failed> {
    // With the package's own crate, so that both are built with the same features.
    let parts = ["build", "-p", "heist-recorder", "-p", "heist-python"];
    shell::cargo(&[&parts[..], how].concat())?;
    let kind = if how.is_empty() { "debug" } else { "release" };
    let file = "libheist_recorder.so";
    let built = shell::root().join("target").join(kind).join(file);
    let inside = shell::root().join("python/heist").join(file);
    fs::copy(&built, &inside).map_err(|error| Failed(format!("{}: {error}", built.display())))?;
    shell::run(shell::command("strip").arg(&inside))
}

/// Builds a wheel into an empty folder, and finds it there.
fn build(python: &Path, how: &[&str], folder: &str) -> Result<PathBuf, Failed> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        add_recorder(how)?;
    }
    let folder = shell::root().join(folder);
    // One wheel is to be found; an older one may have another name.
    let _ = fs::remove_dir_all(&folder);
    shell::run(
        shell::command(python)
            .args(["-m", "maturin", "build", "--quiet"])
            .args(["--manifest-path", "python/Cargo.toml", "--out"])
            .arg(&folder)
            .args(how),
    )?;
    let found = fs::read_dir(&folder).ok().and_then(|files| {
        let mut files = files.flatten().map(|file| file.path());
        files.find(|path| path.extension().is_some_and(|e| e == "whl"))
    });
    found.ok_or_else(|| Failed(format!("there is no wheel in {}", folder.display())))
}
