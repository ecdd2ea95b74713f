//! What we depend on, as cargo tells it: for licences, and for the list of parts of a release.

use crate::advisories;
use crate::shell::{self, Failed};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// One package of the build.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: String,
    /// The registry or repository; `None` is this workspace.
    pub(crate) source: Option<String>,
}

/// Every package that a build for Linux takes, without asking the network.
pub(crate) fn packages() -> Result<Vec<Package>, Failed> {
    let answer = shell::command("cargo")
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .map_err(|error| Failed(format!("cargo can't be started: {error}")))?;
    if !answer.status.success() {
        return Err(Failed(String::from_utf8_lossy(&answer.stderr).into_owned()));
    }
    let read: Value = serde_json::from_slice(&answer.stdout)
        .map_err(|error| Failed(format!("what cargo metadata says: {error}")))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = read["packages"].as_array().into_iter().flatten();
    let package = |one: &Value| Package {
        name: text(&one["name"]),
        version: text(&one["version"]),
        license: text(&one["license"]),
        source: one["source"].as_str().map(str::to_owned),
    };
    Ok(list.map(package).collect())
}

/// What `cargo tree` prints of some packages, a line for each crate that they use.
pub(crate) fn tree(packages: &[&str], edges: &[&str], format: &str) -> Result<String, Failed> {
    let output = shell::command("cargo")
        .arg("tree")
        .args(packages)
        .args(["--edges", &edges.join(","), "--format", format])
        .args(["--prefix", "none"])
        .output()
        .map_err(|error| Failed(format!("`cargo tree` can't be started: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failed(format!("`cargo tree`: {said}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The workspace's own crates that the command is made of.
pub(crate) fn of_the_command() -> Result<BTreeSet<String>, Failed> {
    let lines = tree(&["--package", "heist-cli"], &["normal"], "{p}")?;
    // A crate of ours has its folder in brackets.
    let own = lines.lines().filter(|line| line.contains(" (/"));
    let names = own.filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

/// Licences, sources, doubles and advisories, against `deny.toml`.
pub(crate) fn deny() -> Result<(), Failed> {
    let rules = fs::read_to_string(shell::root().join("deny.toml"))
        .map_err(|error| Failed(format!("deny.toml: {error}")))?;
    let allowed = list(&rules, "allow");
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let packages = packages()?;
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let Package {
            name,
            version,
            license,
            source,
        } = package;
        if !fits(license, &allowed) {
            wrong.push(format!(
                "{name} {version}: the licence `{license}` is not in deny.toml"
            ));
        }
        if !source
            .as_deref()
            .is_some_and(|from| from.starts_with("registry+"))
        {
            wrong.push(format!(
                "{name} {version}: comes from {source:?}, which is no registry"
            ));
        }
        versions
            .entry(name.clone())
            .or_default()
            .insert(version.clone());
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let list: Vec<&str> = versions.iter().map(String::as_str).collect();
        println!("{name} is there more than once: {}", list.join(", "));
    }
    match wrong.is_empty() {
        true => {
            println!(
                "{} packages of others, all with licences that deny.toml allows",
                versions.len()
            );
            println!("{}", advisories::check(&list(&rules, "ignore"))?);
            Ok(())
        }
        false => Err(Failed(wrong.join("\n"))),
    }
}

/// The strings of a list of `deny.toml`.
fn list<'a>(rules: &'a str, name: &str) -> BTreeSet<&'a str> {
    let list = rules.split_once(&format!("\n{name} = ["));
    let list = list.map_or("", |(_, rest)| rest);
    let list = list.split_once(']').map_or(list, |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be met.
fn fits(license: &str, allowed: &BTreeSet<&str>) -> bool {
    let plain = license.replace(['(', ')'], " ").replace('/', " OR ");
    !plain.trim().is_empty()
        && plain.split(" AND ").all(|part| {
            let mut choices = part.split(" OR ").map(str::trim);
            choices.any(|choice| allowed.contains(choice))
        })
}

/// What a release is made of, as CycloneDX says it.
pub(crate) fn parts(version: &str, packages: &[Package]) -> Value {
    let component = |package: &Package| {
        json!({
            "type": "library",
            "name": package.name,
            "version": package.version,
            "purl": format!("pkg:cargo/{}@{}", package.name, package.version),
            "licenses": [{ "expression": package.license.replace('/', " OR ") }],
        })
    };
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "heist", "version": version } },
        "components": packages.iter().map(component).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dependency_may_be_depended_on() {
        if let Err(Failed(why)) = deny() {
            panic!("{why}");
        }
    }

    #[test]
    fn every_dependency_has_its_reason_in_the_decisions() {
        let read = |path: &str| fs::read_to_string(shell::root().join(path)).expect("a file");
        let (manifest, decisions) = (read("Cargo.toml"), read("docs/decisions.md"));
        let (_, list) = manifest
            .split_once("[workspace.dependencies]\n")
            .expect("the list");
        let list = list.split("\n[").next().unwrap_or(list);
        let names = list.lines().filter_map(|line| line.split_once(" = "));
        let names: Vec<&str> = names.map(|(name, _)| name).collect();
        assert!(names.len() > 30, "{names:?}");
        let words: BTreeSet<&str> = decisions
            .split(|c: char| !(c.is_alphanumeric() || "-_".contains(c)))
            .collect();
        let missing = |name: &&&str| !name.starts_with("heist") && !words.contains(**name);
        let missing: Vec<&&str> = names.iter().filter(missing).collect();
        assert_eq!(missing, [&""; 0], "docs/decisions.md does not name them");
    }

    #[test]
    fn licences_are_read_as_expressions() {
        let rules = "[licenses]\nallow = [\n \"MIT\",\n \"Zlib\",\n]\n[bans]\nx = [\"no\"]";
        let allowed = list(rules, "allow");
        assert_eq!(allowed, BTreeSet::from(["MIT", "Zlib"]));
        assert_eq!(list(rules, "ignore"), BTreeSet::new());
        for (license, wanted) in [
            ("MIT", true),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("(MIT OR GPL-3.0) AND Zlib", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0", false),
            ("", false),
        ] {
            assert_eq!(fits(license, &allowed), wanted, "{license}");
        }
    }

    #[test]
    fn the_parts_of_a_release_are_named() {
        let package = Package {
            name: "half".to_owned(),
            version: "2.7.1".to_owned(),
            license: "MIT/Apache-2.0".to_owned(),
            source: None,
        };
        let list = parts("0.1.0", &[package]);
        assert_eq!(list["components"][0]["purl"], "pkg:cargo/half@2.7.1");
        assert_eq!(
            list["components"][0]["licenses"][0]["expression"],
            "MIT OR Apache-2.0"
        );
    }
}
