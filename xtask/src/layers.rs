//! The layering check: which crate may use which, and no import cycles inside a crate.
//!
//! The allowed dependencies are the table in `docs/architecture.md`. A crate that uses more than
//! its row allows, or has no row, fails the tests.

use crate::circles;
use crate::packages::tree;
use crate::shell::{self, Failed};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

const TABLE: &str = "docs/architecture.md";

/// Checks every `Cargo.toml` against the table, and every crate's files for import cycles.
pub(crate) fn check() -> Result<(), Failed> {
    let page = shell::root().join(TABLE);
    let text = fs::read_to_string(&page)
        .map_err(|error| Failed(format!("{}: {error}", page.display())))?;
    let allowed = table(&text);
    let crates = crates()?;
    let mut wrong = Vec::new();
    for found in &crates {
        wrong.extend(found.breaches(&allowed));
        for circle in circles::of_crate(&found.folder)? {
            let files = circle.iter().map(|file| {
                let short = file.strip_prefix(shell::root()).unwrap_or(file);
                format!("    {}", short.display())
            });
            wrong.push(format!(
                "{}: {} files import each other in a circle (at most 2 may): move what they share below them\n{}",
                found.name,
                circle.len(),
                files.collect::<Vec<_>>().join("\n")
            ));
        }
    }
    wrong.extend(heavy_in_the_checker()?);
    wrong.extend(compiled_twice()?);
    if wrong.is_empty() {
        eprintln!(
            "layers: {} crates keep to {TABLE}, without circles",
            crates.len()
        );
        return Ok(());
    }
    Err(Failed(format!("layers:\n{}", wrong.join("\n"))))
}

/// What a program that only checks PTX must not compile: the library without its features
/// has neither the command line nor the driver. And one with kernels of its own, as `heist new`
/// starts it, does without those that ship.
fn heavy_in_the_checker() -> Result<Vec<String>, Failed> {
    let library = ["--package", "heist", "--no-default-features"];
    let own = [&library[..], &["--features", "gpu,builder"]].concat();
    let mut wrong = heavy(&tree(&library, &["normal"], "{p}")?);
    if tree(&own, &["normal"], "{p}")?.contains("heist-kernels") {
        wrong.push("heist: its feature `builder` compiles the kernels that ship".to_owned());
    }
    Ok(wrong)
}

/// Crates that the tests of the workspace and the wheel resolve to different features: each is
/// compiled twice by the test command, and with it whatever uses it.
fn compiled_twice() -> Result<Vec<String>, Failed> {
    const FEATURES: &str = "{p} [{f}]";
    let tests = tree(&["--workspace"], &["normal", "build", "dev"], FEATURES)?;
    let wheel = ["--package", "heist-python"];
    let wheel = tree(&wheel, &["normal", "build"], FEATURES)?;
    Ok(differing(&tests, &wheel))
}

/// The lines of the wheel's tree that the tests' tree does not have.
fn differing(tests: &str, wheel: &str) -> Vec<String> {
    let lines = |tree: &str| -> BTreeSet<String> {
        let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
        lines.map(str::to_owned).collect()
    };
    lines(wheel)
        .difference(&lines(tests))
        .map(|line| {
            format!(
                "python: {line} is compiled twice, since the workspace's tests need other features of \
                 it: name them where the workspace's Cargo.toml names the crate"
            )
        })
        .collect()
}

/// The lines of `cargo tree` that name a crate which a checker does not need.
fn heavy(tree: &str) -> Vec<String> {
    const HEAVY: [&str; 3] = ["clap", "libloading", "heist-kernels"];
    let names: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    HEAVY
        .iter()
        .filter(|name| names.contains(*name))
        .map(|name| format!("heist: compiles {name} without any feature: put it behind one"))
        .collect()
}

/// What a row of the table allows a crate to use.
#[derive(Debug, PartialEq)]
enum Uses {
    All,
    These(BTreeSet<String>),
}

/// The rows ``| `crates/a`, `crates/b` | what it is | c, d |`` of a page.
fn table(page: &str) -> BTreeMap<String, Uses> {
    let mut rows = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').collect();
        let [folders, .., uses] = cells[..] else {
            continue;
        };
        if cells.len() != 3 {
            continue;
        }
        let uses = uses.trim();
        for folder in folders.split(',') {
            let folder = folder.trim().trim_matches('`').trim_end_matches('/');
            let outside = ["bench/programs", "python", "xtask"].contains(&folder);
            if outside || folder.starts_with("crates/") {
                let uses = match uses {
                    "all" => Uses::All,
                    "-" => Uses::These(BTreeSet::new()),
                    _ => Uses::These(uses.split(',').map(|name| name.trim().to_owned()).collect()),
                };
                let name = folder.rsplit('/').next().unwrap_or(folder);
                rows.insert(name.to_owned(), uses);
            }
        }
    }
    rows
}

/// A crate of the workspace and the project's own crates that it uses (in tests it
/// may use others).
struct Crate {
    name: String,
    folder: PathBuf,
    uses: BTreeSet<String>,
}

impl Crate {
    fn breaches(&self, allowed: &BTreeMap<String, Uses>) -> Vec<String> {
        match allowed.get(&self.name) {
            None => vec![format!("{}: has no row in the table of {TABLE}", self.name)],
            Some(Uses::All) => Vec::new(),
            Some(Uses::These(allowed)) => self
                .uses
                .difference(allowed)
                .map(|used| {
                    format!(
                        "{}: uses {used}, which its row in {TABLE} does not allow",
                        self.name
                    )
                })
                .collect(),
        }
    }
}

/// The crates of the workspace, as cargo sees them.
fn crates() -> Result<Vec<Crate>, Failed> {
    let output = shell::command("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|error| Failed(format!("`cargo metadata` can't be started: {error}")))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Failed(format!("`cargo metadata`: {error}")))?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    Ok(packages.iter().filter_map(read).collect())
}

/// One package of `cargo metadata`. A folder's name is the crate's name here.
fn read(package: &serde_json::Value) -> Option<Crate> {
    let manifest = PathBuf::from(package["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_path_buf();
    let dependencies = package["dependencies"].as_array()?;
    let uses = dependencies
        .iter()
        .filter(|dependency| dependency["kind"].is_null())
        .filter_map(|dependency| dependency["path"].as_str())
        .filter_map(|path| {
            Some(
                PathBuf::from(path)
                    .file_name()?
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .collect();
    Some(Crate {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        folder,
        uses,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_other_features_in_the_wheel_is_named() {
        let tests = "serde v1.0.0 [alloc,std]\nhalf v2.0.0 [] (*)\nproptest v1.0.0 []\n";
        assert!(differing(tests, "serde v1.0.0 [alloc,std] (*)\nhalf v2.0.0 []\n").is_empty());
        let found = differing(tests, "serde v1.0.0 [std]\nhalf v2.0.0 []\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("serde v1.0.0 [std]"), "{found:?}");
    }

    #[test]
    fn a_heavy_crate_below_the_checker_is_named() {
        let light = "heist v0.1.0\nserde v1.0.0\nclap_lex v1.0.0\n";
        assert!(heavy(light).is_empty());
        let found = heavy("heist v0.1.0\nlibloading v0.9.0\nserde v1.0.0\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("libloading"));
    }

    const PAGE: &str = "\
| crate (folder) | is | may use |
|---|---|---|
| `crates/low` | the base | - |
| `crates/a`, `crates/b` | two | low |
| `xtask` | chores | - |
";

    fn using(name: &str, uses: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            folder: PathBuf::new(),
            uses: uses.iter().map(|used| (*used).to_owned()).collect(),
        }
    }

    #[test]
    fn rows_are_read() {
        let rows = table(PAGE);
        assert_eq!(rows.keys().collect::<Vec<_>>(), ["a", "b", "low", "xtask"]);
        assert_eq!(rows["low"], Uses::These(BTreeSet::new()));
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_told() {
        let rows = table(PAGE);
        assert!(using("a", &["low"]).breaches(&rows).is_empty());
        assert!(using("low", &["a"]).breaches(&rows)[0].contains("uses a"));
        assert!(using("new", &[]).breaches(&rows)[0].contains("no row"));
    }
}
