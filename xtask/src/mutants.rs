//! Tests that bite: small mistakes are made in the code, one at a time, and each must
//! fail a test.
//!
//! Rust code is mutated by cargo-mutants, which this command installs below `target`.
//! What it can't see into, code that is emitted, is mutated as PTX
//! (`cargo xtask mutate-ptx`). Neither is part of the tests: a sample takes minutes to hours.

use crate::shell::{self, Failed};
use std::fs;
use std::path::PathBuf;

/// The version that is installed; survivors are compared between runs of one version.
const VERSION: &str = "27.1.0";

/// What to mutate.
pub(crate) struct Plan {
    /// A crate's folder; the whole workspace without one.
    pub(crate) member: Option<String>,
    /// About how many mutants, spread over the crate; without it only lines that
    /// changed since `base` are mutated.
    pub(crate) sample: Option<usize>,
    /// What counts as changed.
    pub(crate) base: String,
}

impl Plan {
    /// Reads `[CRATE] [--sample N] [--base REV]`.
    pub(crate) fn read(words: &[&str]) -> Result<Plan, Failed> {
        let mut plan = Plan {
            member: None,
            sample: None,
            base: "HEAD".to_owned(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = |what: &str| {
                let missing = || Failed(format!("{word} needs {what}"));
                words.next().copied().ok_or_else(missing)
            };
            match *word {
                "--sample" => {
                    let number = value("a number of mutants")?;
                    let whole = number.parse().ok().filter(|&count| count > 0);
                    let wrong =
                        || Failed(format!("--sample takes a number from 1 up, not {number}"));
                    plan.sample = Some(whole.ok_or_else(wrong)?);
                }
                "--base" => plan.base = value("a revision")?.to_owned(),
                name if !name.starts_with('-') && plan.member.is_none() => {
                    plan.member = Some(name.to_owned());
                }
                other => return Err(Failed(format!("mutants does not take {other}"))),
            }
        }
        if plan.sample.is_some() && plan.member.is_none() {
            return Err(Failed("--sample needs a crate, such as `sim`".to_owned()));
        }
        Ok(plan)
    }
}

/// Runs cargo-mutants; survivors are listed in `target/mutants/mutants.out/missed.txt`.
pub(crate) fn run(plan: &Plan) -> Result<(), Failed> {
    let program = install()?;
    let base = || {
        let mut command = shell::command(&program);
        command.args(["mutants", "--output", "target/mutants"]);
        if let Some(member) = &plan.member {
            command.arg("--package").arg(package(member));
        }
        command
    };
    match plan.sample {
        Some(wanted) => {
            let listed = base().arg("--list").output();
            let listed = listed.map_err(|error| Failed(format!("cargo-mutants: {error}")))?;
            let all = String::from_utf8_lossy(&listed.stdout).lines().count();
            // A shard takes every n-th mutant, so it is spread over all files.
            let shards = (all / wanted).max(1);
            eprintln!("{all} mutants; every {shards}th is tried");
            shell::run(
                base()
                    .args(["--sharding", "round-robin"])
                    .arg(format!("--shard=0/{shards}")),
            )
        }
        None => {
            let difference = shell::command("git")
                .args(["diff", &plan.base])
                .output()
                .map_err(|error| Failed(format!("git: {error}")))?;
            let file = shell::root().join("target/mutants.diff");
            fs::write(&file, difference.stdout)
                .map_err(|error| Failed(format!("{}: {error}", file.display())))?;
            shell::run(base().arg("--in-diff").arg(file))
        }
    }
}

/// A crate's package: folders leave out the prefix.
fn package(member: &str) -> String {
    match member {
        "heist" | "xtask" => member.to_owned(),
        _ if member.starts_with("heist-") => member.to_owned(),
        _ => format!("heist-{member}"),
    }
}

/// Installs cargo-mutants below `target` unless this version is there.
fn install() -> Result<PathBuf, Failed> {
    let folder = shell::root()
        .join("target/tools")
        .join(format!("cargo-mutants-{VERSION}"));
    let program = folder.join("bin/cargo-mutants");
    if !program.is_file() {
        shell::run(
            shell::command("cargo")
                .args(["install", "--locked", "cargo-mutants", "--version", VERSION])
                .arg("--root")
                .arg(&folder),
        )?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let plan = Plan::read(&["sim", "--sample", "60"]).ok().unwrap();
        assert_eq!(plan.member.as_deref(), Some("sim"));
        assert_eq!((plan.sample, &plan.base[..]), (Some(60), "HEAD"));
        for wrong in [
            &["--sample", "60"][..],
            &["sim", "--sample"],
            &["sim", "--sample", "0"],
            &["sim", "ptx"],
            &["--all"],
        ] {
            assert!(Plan::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn packages_are_named_after_folders() {
        assert_eq!(package("sim"), "heist-sim");
        assert_eq!(package("heist"), "heist");
    }
}
