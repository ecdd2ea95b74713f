//! The cheat sheet names what is there: every call of it is a word of the crates' code, and every
//! `Name::Variant` of an enum is a variant of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|end| end == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("a text"));
        }
    }
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn first_name(text: &str) -> &str {
    text.split(|letter| !is_name(letter)).next().unwrap_or("")
}

fn variants(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let enums = text.split("pub enum ").skip(1).map(|rest| {
        let body = rest.split("\n}").next().unwrap_or("");
        let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
        let variants = lines.filter(|line| line.starts_with(char::is_uppercase));
        (first_name(rest), variants.map(first_name).collect())
    });
    enums.collect()
}

/// What stands between backticks in the tables.
fn spans(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let spans = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    spans.map(|span| span.replace("\\|", "|")).collect()
}

#[test]
fn the_cheat_sheet_names_what_is_there() {
    let mut text = String::new();
    for part in ["builder", "sched", "run", "heist"] {
        sources(&root().join("crates").join(part).join("src"), &mut text);
    }
    // Some functions are made by macros, which have their names as words.
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let known: BTreeSet<&str> = code.flat_map(|line| line.split(|c| !is_name(c))).collect();
    let enums = variants(&text);
    let page = std::fs::read_to_string(root().join("docs/cheatsheet.md")).expect("the page");
    let mut unknown = Vec::new();
    for span in spans(&page) {
        if span.starts_with("for i in") {
            continue; // Rust, as the page says
        }
        let mut rest = span.as_str();
        while let Some(start) = rest.find(is_name) {
            let name = first_name(&rest[start..]);
            let after = &rest[start + name.len()..];
            rest = after;
            let alone = span.len() == name.len() && name.contains('_');
            let called = after.starts_with('(') || after.starts_with("::<") || alone;
            let of = span[..span.len() - after.len() - name.len()].strip_suffix("::");
            let of = of.and_then(|of| of.rsplit(|letter| !is_name(letter)).next());
            let there = match of.and_then(|of| enums.get(of)) {
                Some(variants) => variants.contains(name) || !name.starts_with(char::is_uppercase),
                None => !called || known.contains(name),
            };
            if !there {
                unknown.push(format!("{name} in `{span}`"));
            }
        }
    }
    assert_eq!(unknown, [] as [String; 0], "of docs/cheatsheet.md");
}
