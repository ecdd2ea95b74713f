//! The rule pairs of the letter P: the kernel that breaks a rule is reported
//! at the marked line with that code and nothing else, its twin is clean, and
//! ptxas agrees about both.

use super::{ptx_files, read};
use heist_oracle::{Ptxas, parallel, workspace_root};
use heist_ptx::arch::Arch;
use heist_ptx::validate::validate;
use heist_ptx::{RULES, Source, parse};
use std::path::{Path, PathBuf};

/// The files of `rules/P...`, with the code of their folder.
fn files() -> Vec<(PathBuf, String)> {
    ptx_files(&workspace_root().join("rules"))
        .into_iter()
        .filter_map(|path| {
            let folder = path.parent()?.file_name()?.to_str()?;
            let code = folder.split('-').next()?.to_string();
            code.starts_with('P').then_some((path, code))
        })
        .collect()
}

/// Line and code of everything that is said about a file.
fn findings(source: &Source) -> Vec<(u32, String)> {
    let found = match parse(source) {
        Ok(module) => validate(&module, Some(source)),
        Err(errors) => errors,
    };
    found
        .iter()
        .map(|found| {
            let line = source.position(found.span).line;
            (line, found.code.to_string())
        })
        .collect()
}

/// What the `//~ CODE` marks say.
fn marks(source: &Source) -> Vec<(u32, String)> {
    (1..)
        .zip(source.text().lines())
        .filter_map(|(line, text)| {
            let (_, code) = text.split_once("//~ ")?;
            Some((line, code.trim().to_string()))
        })
        .collect()
}

#[test]
fn pairs_are_reported_where_they_are_marked() {
    let files = files();
    for rule in RULES.iter().filter(|rule| rule.code.0.starts_with('P')) {
        for half in ["bad.ptx", "good.ptx"] {
            let there = files
                .iter()
                .any(|(path, code)| code == rule.code.0 && path.ends_with(half));
            assert!(there, "{} has no {half}", rule.code);
        }
    }
    for (path, code) in &files {
        let source = read(path);
        let found = findings(&source);
        assert_eq!(found, marks(&source), "{}", path.display());
        assert_eq!(!found.is_empty(), is_bad(path), "{}", path.display());
        assert!(found.iter().all(|(_, found)| found == code));
    }
}

fn is_bad(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("bad"))
}

#[test]
fn ptxas_agrees_about_the_pairs() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let wrong: Vec<String> = parallel(&files(), |(path, code)| {
        let source = read(path);
        let target = parse(&source)
            .ok()
            .and_then(|module| Arch::parse(&module.target.arch));
        let machine = target.unwrap_or(Arch::SM_80);
        let accepted = ptxas.accepts(source.text(), machine.name());
        // How deep a file may be nested is our own bound.
        let expected = !is_bad(path) || code == "P005";
        (accepted != expected).then(|| path.display().to_string())
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
