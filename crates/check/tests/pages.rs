//! Every rule has a page, every page a rule, and the index of them is current.

use heist_check::log::{TextKind, read, recognise};
use heist_ptx::{RULES, Rule, Source, rule};
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// What the letters of the codes stand for, in the order of the table.
const LETTERS: [(char, &str); 10] = [
    ('P', "Text and structure of PTX"),
    ('M', "Memory"),
    ('R', "Races"),
    ('B', "Barriers, and what else threads do together"),
    ('A', "Asynchronous copies and mbarriers"),
    ('T', "Tensor cores"),
    ('L', "Cluster launch control"),
    ('X', "Execution and its limits"),
    ('G', "The GPU, its driver, and the logs of other tools"),
    ('S', "Policies that are loaded as data"),
];

/// The folders of `rules/`, by name.
fn folders() -> Vec<PathBuf> {
    let rules = heist_oracle::workspace_root().join("rules");
    let mut folders: Vec<PathBuf> = fs::read_dir(rules)
        .expect("the rules are in the repository")
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

fn name_of(folder: &Path) -> String {
    folder
        .file_name()
        .expect("a folder has a name")
        .to_string_lossy()
        .into_owned()
}

/// The folder of a rule: exactly one.
fn folder_of(rule: &Rule, folders: &[PathBuf]) -> String {
    let prefix = format!("{}-", rule.code);
    let mut names = folders
        .iter()
        .map(|folder| name_of(folder))
        .filter(|name| name.starts_with(&prefix));
    let name = names
        .next()
        .unwrap_or_else(|| panic!("no folder rules/{prefix}..."));
    assert_eq!(names.next(), None, "two folders for {}", rule.code);
    name
}

/// Letters and digits alone, in lower case.
fn plain(text: &str) -> String {
    text.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

#[test]
fn every_rule_has_a_page_that_says_more_than_its_title() {
    let mut wrong = Vec::new();
    for rule in RULES {
        let page = heist_check::explain(rule.code.0).expect("a rule of the table");
        let Some(text) = page.text else {
            wrong.push(format!("{}: no page.md", rule.code));
            continue;
        };
        if text.trim().len() < 200 {
            wrong.push(format!("{}: only {} bytes", rule.code, text.trim().len()));
        }
        if text.starts_with('#') {
            wrong.push(format!("{}: the command prints the heading", rule.code));
        }
        if plain(text).starts_with(&plain(rule.title)) {
            wrong.push(format!("{}: begins by repeating its title", rule.code));
        }
        if text.trim().split("\n\n").count() < 3 {
            wrong.push(format!(
                "{}: what happens, why, and what to do are three paragraphs",
                rule.code
            ));
        }
        if let Some(line) = text.lines().find(|line| line.chars().count() > 110) {
            wrong.push(format!("{}: a line too long: {line}", rule.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pages_name_only_rules_that_exist() {
    let mut wrong = Vec::new();
    for rule in RULES {
        let text = heist_check::explain(rule.code.0)
            .and_then(|page| page.text)
            .unwrap_or_default();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric()) {
            // A100 is a GPU: the numbers of rules begin with 0.
            let number = word.trim_start_matches(|c| LETTERS.iter().any(|(l, _)| *l == c));
            let looks_like_a_code = word.len() == 4
                && number.len() == 3
                && number.starts_with('0')
                && number.bytes().all(|b| b.is_ascii_digit());
            if looks_like_a_code && rule::find(word).is_none() {
                wrong.push(format!("{} refers to {word}", rule.code));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_folder_is_of_a_rule_and_every_bad_kernel_has_its_twin() {
    let folders = folders();
    let mut wrong = Vec::new();
    for folder in &folders {
        let name = name_of(folder);
        let code = name.split('-').next().unwrap_or_default();
        if !RULES.iter().any(|rule| rule.code.0 == code) {
            wrong.push(format!("{name}: there is no rule {code}"));
        }
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a directory entry").path();
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let twin = match (file.strip_prefix("bad"), file.strip_prefix("good")) {
                (Some(rest), _) => format!("good{rest}"),
                (_, Some(rest)) => format!("bad{rest}"),
                _ if file == "page.md" => continue,
                _ => {
                    wrong.push(format!("{name}/{file}: neither a page nor a kernel"));
                    continue;
                }
            };
            if !folder.join(&twin).exists() {
                wrong.push(format!("{name}/{file}: no {twin}"));
            }
        }
    }
    for rule in RULES {
        folder_of(rule, &folders);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rules that no kernel by itself can break, and who finds them.
const WITHOUT_A_KERNEL: &[(&str, &str)] = &[
    (
        "G0",
        "of the driver and of logs: tests of the GPU and of the readers of logs",
    ),
    (
        "S0",
        "of policies that are loaded: tests/loaded of the scheduler's crate",
    ),
    (
        "R010",
        "of whole programs: crates/cudart/tests/programs/bad_stream_order.cu",
    ),
    (
        "R011",
        "of whole programs: crates/cudart/tests/programs/bad_host_order.cu",
    ),
    ("T012", "what ptxas says it did: read from its log"),
    (
        "X011",
        "of the launch, which a file test makes right by itself: tests/reports.rs",
    ),
];

/// What is in the table can be found: every rule has a kernel that breaks it, which the
/// file tests hold to its code, or a reason not to.
#[test]
fn every_rule_is_found_in_a_kernel_of_its_own() {
    let mut wrong = Vec::new();
    for rule in RULES {
        let folder = heist_oracle::workspace_root()
            .join("rules")
            .join(folder_of(rule, &folders()));
        let excused = WITHOUT_A_KERNEL
            .iter()
            .any(|(start, _)| rule.code.0.starts_with(start));
        let mut kernels = 0;
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a directory entry").path();
            if !name_of(&path).starts_with("bad") {
                continue;
            }
            kernels += 1;
            let text = fs::read_to_string(&path).expect("a kernel can be read");
            let expects = |line: &str| {
                (line.contains("//~") || line.contains("// heist: finds"))
                    && line.contains(rule.code.0)
            };
            if !text.lines().any(expects) {
                wrong.push(format!("{}: does not expect {}", path.display(), rule.code));
            }
        }
        if (kernels == 0) != excused {
            wrong.push(format!("{}: {kernels} kernels break it", rule.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every rule is named by something that reports, outside of the table.
#[test]
fn every_rule_is_reported_by_some_code() {
    let root = heist_oracle::workspace_root();
    let mut text = String::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("a directory entry").path();
            let name = name_of(&path);
            if path.is_dir() && !matches!(name.as_str(), "tests" | "target" | "examples") {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "rule.rs" {
                text += &fs::read_to_string(&path).expect("source can be read");
            }
        }
    }
    let table = fs::read_to_string(root.join("crates/ptx/src/rule.rs")).expect("the table");
    let words: HashSet<&str> = text
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .collect();
    let silent: Vec<&str> = RULES
        .iter()
        .map(|rule| rule.code.0)
        .filter(|code| {
            let name = table
                .lines()
                .find(|line| line.contains(&format!("= \"{code}\"")))
                .and_then(|line| line.split_whitespace().next())
                .expect("a line of the table");
            !words.contains(name)
        })
        .collect();
    assert!(silent.is_empty(), "nothing reports {silent:?}");
}

/// A page may show what a log says when its rule is broken; then our readers of logs say the same.
#[test]
fn excerpts_of_logs_are_read_as_the_rule_of_their_page() {
    let (mut excerpts, mut wrong) = (0, Vec::new());
    for rule in RULES {
        let text = heist_check::explain(rule.code.0)
            .and_then(|page| page.text)
            .unwrap_or_default();
        for excerpt in text.split("```\n").skip(1).step_by(2) {
            let Some(kind) = recognise(excerpt).filter(|kind| *kind != TextKind::Ptx) else {
                continue;
            };
            excerpts += 1;
            let found = read(kind, &Source::new("excerpt", excerpt)).findings;
            if !found.iter().any(|finding| finding.code == rule.code) {
                let codes: Vec<&str> = found.iter().map(|finding| finding.code.0).collect();
                wrong.push(format!("{}: read as {codes:?}", rule.code));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(excerpts >= 20, "only {excerpts} excerpts");
}

/// `docs/rules.md` is made from the table; `HEIST_BLESS=1` makes it anew.
#[test]
fn a_page_has_its_title_its_text_and_both_kernels() {
    let page = heist_check::explain("A001").expect("A001 has a page");
    let text = page.markdown();
    assert!(text.starts_with("# A001: "), "{text}");
    for part in [page.text, page.bad, page.good] {
        let part = part.expect("A001 has all of them").trim();
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn index_is_golden() {
    let folders = folders();
    let mut index = String::from(
        "# The rules\n\n\
         Everything that Heist can report, by its code. `heist explain CODE` shows the page of a rule with a kernel that\n\
         breaks it and one that keeps it, from `rules/`. Made from the table in `crates/ptx/src/rule.rs` by a golden test;\n\
         not edited by hand.\n",
    );
    let mut told = 0;
    for (letter, subject) in LETTERS {
        let _ = write!(
            index,
            "\n## {letter}: {subject}\n\n| code | severity | what is wrong |\n|---|---|---|\n"
        );
        for rule in RULES.iter().filter(|rule| rule.code.0.starts_with(letter)) {
            let folder = folder_of(rule, &folders);
            let _ = writeln!(
                index,
                "| [{}](../rules/{folder}/page.md) | {} | {} |",
                rule.code, rule.severity, rule.title
            );
            told += 1;
        }
    }
    assert_eq!(told, RULES.len(), "a letter is missing in LETTERS");
    let path = heist_oracle::workspace_root().join("docs/rules.md");
    if std::env::var_os("HEIST_BLESS").is_some() {
        fs::write(&path, &index).expect("docs/ can be written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        there, index,
        "docs/rules.md is not what the table says: `HEIST_BLESS=1 cargo test -p heist-check golden`"
    );
}
