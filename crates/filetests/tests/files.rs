//! The repository's own test files: that they are well-formed.

use heist_filetests::{Action, find_files, read_directives};
use heist_ptx::Source;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_directive_can_be_read() {
    let mut cases = 0;
    let mut errors = Vec::new();
    let folders = ["tests/ptx", "rules", "cases", "corpus"].map(|folder| root().join(folder));
    let there: Vec<PathBuf> = folders.into_iter().filter(|path| path.exists()).collect();
    for path in find_files(&there).unwrap() {
        let text = fs::read_to_string(&path).unwrap();
        match read_directives(Source::new(path.display().to_string(), text)) {
            Ok(file) => cases += file.cases.len(),
            Err(found) => errors.extend(found.iter().map(ToString::to_string)),
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert!(cases > 100, "only {cases} cases were found");
}

#[test]
fn instruction_tests_expect_something() {
    let mut empty = Vec::new();
    for path in find_files(&[root().join("tests/ptx")]).unwrap() {
        let text = fs::read_to_string(&path).unwrap();
        let Ok(file) = read_directives(Source::new(path.display().to_string(), text)) else {
            continue;
        };
        for case in &file.cases {
            let expects = match &case.action {
                Action::Run(run) => !run.expects.is_empty(),
                Action::Check => false,
            };
            if !expects && file.expected_codes(case).is_empty() {
                empty.push(format!("{}::{}", path.display(), case.name));
            }
        }
    }
    assert!(
        empty.is_empty(),
        "cases without an expectation:\n{}",
        empty.join("\n")
    );
}
