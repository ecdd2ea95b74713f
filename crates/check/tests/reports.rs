//! The failures of `cases/`: each is named at its line, and its mended twin is clean. What is said
//! of the files of `rules/`, in every word.

use heist_ptx::{Diagnostic, Severity, Source, parse, rule};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// Every file, and the code that is found in it without a launch. Where there is
/// none and the file is no twin, it takes a run: `heist selftest cases`.
const CASES: [(&str, Option<&str>); 15] = [
    ("clc-cluster/bad-decode-first.ptx", Some("L004")),
    ("clc-cluster/good.ptx", None),
    ("cp-async/bad-no-commit.ptx", Some("A002")),
    ("cp-async/bad-no-wait.ptx", Some("A001")),
    ("cp-async/bad-stride.ptx", Some("M007")),
    ("cp-async/good.ptx", None),
    ("shared-limit/bad-static.ptx", Some("X009")),
    ("shared-limit/dynamic.ptx", None),
    ("shared-limit/good.ptx", None),
    ("tensor-map-workspace/bad.ptx", None),
    ("tensor-map-workspace/good.ptx", None),
    ("wmma-local/bad-local.ptx", Some("T001")),
    ("wmma-local/bad-trap.ptx", Some("T013")),
    ("wmma-local/good-local.ptx", None),
    ("wmma-local/good.ptx", None),
];

fn cases() -> PathBuf {
    heist_oracle::workspace_root().join("cases")
}

fn source(name: &str) -> Source {
    let text = fs::read_to_string(cases().join(name)).expect("the case is in the repository");
    Source::new(name, text)
}

#[test]
fn each_cause_is_named_at_its_line_and_nothing_else_is() {
    for (name, code) in CASES {
        let source = source(name);
        let expected: BTreeSet<(usize, String)> = match code {
            Some(code) => (1..)
                .zip(source.text().lines())
                .filter(|(_, line)| line.ends_with(&format!("//~ {code}")))
                .map(|(number, _)| (number, code.to_owned()))
                .collect(),
            None => BTreeSet::new(),
        };
        assert_eq!(expected.is_empty(), code.is_none(), "{name}: no mark");
        let module = parse(&source).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
        let findings = heist_check::check(&module);
        let found: BTreeSet<(usize, String)> = findings
            .iter()
            .map(|finding| {
                let line = source.position(finding.span).line;
                (line as usize, finding.code.to_string())
            })
            .collect();
        assert_eq!(found, expected, "{name}");
        for finding in &findings {
            // A kernel of which only a trap is left may be meant like that.
            let certain = finding.severity == Severity::Error;
            assert!(
                certain || finding.code == rule::CUT_TO_TRAP,
                "{name}: {finding}"
            );
            assert!(!finding.helps.is_empty(), "{name}: {finding} has no remedy");
        }
    }
}

#[test]
fn every_file_is_listed() {
    let mut there = BTreeSet::new();
    for folder in fs::read_dir(cases()).expect("the cases are in the repository") {
        let folder = folder.expect("a directory entry").path();
        if !folder.is_dir() {
            continue;
        }
        for file in fs::read_dir(&folder).expect("a readable folder") {
            let path = file.expect("a directory entry").path();
            if path.extension().is_some_and(|ext| ext == "ptx") {
                let inside = path.strip_prefix(cases()).expect("a path in `cases`");
                there.insert(inside.display().to_string());
            }
        }
    }
    let listed = CASES.map(|(name, _)| name.to_owned()).into();
    assert_eq!(there, listed);
}

#[test]
fn a_launch_past_48_kib_is_told_of_the_opt_in() {
    let module = parse(&source("shared-limit/dynamic.ptx")).expect("the case parses");
    let with = |bytes| heist_check::shared_opt_in(&module, "tile", bytes);
    let found = with(57_376).expect("57,376 bytes need the opt-in");
    assert_eq!(found.code.0, "X011");
    assert!(found.message.contains("57376 bytes"), "{found}");
    assert!(with(48 << 10).is_none(), "48 KiB are everybody's");
    assert!(with(114_752).is_none(), "no opt-in gives so much: X010");
    assert!(heist_check::shared_opt_in(&module, "other", 57_376).is_none());
}

#[test]
fn registers_are_called_by_their_names() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p) {\n\
                .reg .b32 %r<4>; .reg .b32 sum; .reg .b64 %rd<2>;\n\
                ld.param.u64 %rd1, [p]; add.u32 %r1, %r2, sum; st.global.u32 [%rd1], %r1; ret; }\n";
    let module = heist_ptx::parse(&Source::new("unset.ptx", text)).expect("it parses");
    let found = heist_check::check(&module);
    let told: Vec<&str> = found.iter().map(|found| found.message.as_str()).collect();
    assert_eq!(
        told,
        [
            "uses register `%r2`, which nothing has set before",
            "uses register `sum`, which nothing has set before"
        ]
    );
}

/// Everything that a finding says, but the pages' links.
fn told(source: &Source, finding: &Diagnostic) -> String {
    let at = |span| {
        let at = source.position(span);
        format!("{}:{}", at.line, at.column)
    };
    let mut text = format!("{}: {finding}\n", at(finding.span));
    let label = Some(&finding.label).filter(|label| !label.is_empty());
    let lines = label.map(|label| format!("at: {label}")).into_iter();
    let others = finding.others.iter();
    let lines = lines.chain(others.map(|other| format!("{}: {}", at(other.span), other.text)));
    let lines = lines.chain(finding.notes.iter().map(|note| format!("note: {note}")));
    for line in lines.chain(finding.helps.iter().map(|help| format!("help: {help}"))) {
        writeln!(text, "    {line}").expect("a string");
    }
    text
}

#[test]
fn findings_are_told_as_the_golden_file_says() {
    let mut all = String::new();
    let rules = heist_oracle::workspace_root().join("rules");
    let files = |folder: &PathBuf| {
        let entries = fs::read_dir(folder).expect("a readable folder");
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.expect("an entry").path())
            .collect();
        paths.sort();
        paths
    };
    for path in files(&rules)
        .iter()
        .filter(|path| path.is_dir())
        .flat_map(files)
    {
        if path.extension().is_none_or(|ext| ext != "ptx") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable file");
        let name = path
            .strip_prefix(&rules)
            .expect("a rule's file")
            .display()
            .to_string();
        let source = Source::new(name, text);
        let Ok(module) = parse(&source) else {
            continue;
        };
        let found = heist_check::check(&module);
        if !found.is_empty() {
            writeln!(all, "{}", source.name()).expect("a string");
        }
        all.extend(found.iter().map(|finding| told(&source, finding)));
    }
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/reports.txt");
    if std::env::var_os("HEIST_BLESS").is_some() {
        fs::write(&golden, &all).expect("golden files can be written");
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    let differs = |(new, old): &(&str, &str)| new != old;
    let first = all.lines().zip(expected.lines()).find(differs);
    assert!(
        all == expected,
        "`cargo xtask bless` accepts new messages; first {first:?}"
    );
}
