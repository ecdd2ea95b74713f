//! The API's documentation: every public module of what `heist` re-exports has an example.
//!
//! That every public item is described is a lint (`missing_docs`); an example is none of its
//! subjects.

use crate::shell;
use std::fs;
use std::path::{Path, PathBuf};

/// The public modules below a file, itself included, whose files have no example in their comments.
fn without_example(file: &Path, missing: &mut Vec<PathBuf>) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    let mut comments = text.lines().map(str::trim_start);
    if !comments.any(|line| line.starts_with("//! ```") || line.starts_with("/// ```")) {
        missing.push(file.to_path_buf());
    }
    let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "mod") => file.with_file_name(""),
        _ => file.with_extension(""),
    };
    let named = |line: &str| Some(line.strip_prefix("pub mod ")?.strip_suffix(';')?.to_owned());
    for name in text.lines().filter_map(named) {
        let alone = folder.join(format!("{name}.rs"));
        let inner = match alone.exists() {
            true => alone,
            false => folder.join(name).join("mod.rs"),
        };
        without_example(&inner, missing);
    }
}

#[test]
fn every_public_module_of_the_api_has_an_example() {
    let crates = shell::root().join("crates");
    let facade = crates.join("heist/src/lib.rs");
    let text = fs::read_to_string(&facade).expect("the crate that re-exports the others");
    let other = |line: &str| {
        let name = line.strip_prefix("pub use heist_")?;
        Some(name.split([' ', ';']).next()?.to_owned())
    };
    let others: Vec<String> = text.lines().filter_map(other).collect();
    assert!(others.len() > 8, "{others:?}");
    let roots = others
        .iter()
        .map(|name| crates.join(name).join("src/lib.rs"));
    let mut missing = Vec::new();
    for root in roots.chain([facade]) {
        without_example(&root, &mut missing);
    }
    assert!(missing.is_empty(), "{missing:?}");
}
