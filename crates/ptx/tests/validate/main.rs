//! The structural rules against ptxas: what it accepts is clean here, what is
//! an error here it rejects.

mod mutants;
mod pairs;

use heist_oracle::{Ptxas, parallel, workspace_root};
use heist_ptx::arch::Arch;
use heist_ptx::{Diagnostic, RULES, Severity, Source, parse, validate::validate};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Every `.ptx` file under `folder`, in order.
fn ptx_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "ptx") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Source {
    let text = std::fs::read_to_string(path).expect("the file can be read");
    let name = path.strip_prefix(workspace_root()).unwrap_or(path);
    Source::new(name.display().to_string(), text)
}

/// A diagnostic as the golden files have it.
fn told(source: &Source, diagnostic: &Diagnostic) -> String {
    let at = source.position(diagnostic.span);
    let mut text = format!("{}:{}: {diagnostic}\n", at.line, at.column);
    if !diagnostic.span.is_none() {
        writeln!(text, "    at: {}", source.slice(diagnostic.span)).expect("a string");
    }
    if !diagnostic.label.is_empty() {
        writeln!(text, "    {}", diagnostic.label).expect("a string");
    }
    for other in &diagnostic.others {
        let at = source.position(other.span);
        writeln!(text, "    {}:{}: {}", at.line, at.column, other.text).expect("a string");
    }
    for note in &diagnostic.notes {
        writeln!(text, "    note: {note}").expect("a string");
    }
    for help in &diagnostic.helps {
        writeln!(text, "    help: {help}").expect("a string");
    }
    text
}

fn errors(source: &Source) -> Vec<Diagnostic> {
    let module = parse(source).unwrap_or_else(|found| {
        panic!("{} does not parse: {}", source.name(), found[0]);
    });
    let mut found = validate(&module, Some(source));
    found.retain(|diagnostic| diagnostic.severity == Severity::Error);
    found
}

#[test]
fn nothing_that_ptxas_accepts_is_an_error() {
    let root = workspace_root();
    let mut files = ptx_files(&root.join("corpus"));
    assert!(files.len() > 20, "the corpus is missing");
    files.extend(ptx_files(&root.join("tests/ptx")));
    files.extend(ptx_files(&root.join("rules")));
    let ptxas = Ptxas::find();
    let mut wrong = String::new();
    for file in &files {
        let source = read(file);
        // The halves of a pair that do not parse are the parser's business.
        let Ok(module) = parse(&source) else {
            assert!(
                file.ends_with("bad.ptx"),
                "{} does not parse",
                file.display()
            );
            continue;
        };
        let found = errors(&source);
        if found.is_empty() {
            continue;
        }
        // A file that is meant to be broken, in a way that the assembler sees too.
        let target = module.target.arch;
        if let Some(ptxas) = &ptxas
            && !ptxas.accepts(source.text(), &target)
        {
            continue;
        }
        for diagnostic in found {
            wrong += source.name();
            wrong += ":";
            wrong += &told(&source, &diagnostic);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    println!("{} files", files.len());
}

/// `P030-load.ptx` breaks `P030`.
fn invalid_files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/invalid");
    let files: Vec<(PathBuf, String)> = ptx_files(&folder)
        .into_iter()
        .map(|path| {
            let name = path.file_name().expect("a file").to_string_lossy();
            let code = name.split('-').next().unwrap_or("").to_string();
            (path, code)
        })
        .collect();
    assert!(!files.is_empty());
    files
}

#[test]
fn every_structural_rule_has_a_file_that_breaks_it() {
    let files = invalid_files();
    for rule in RULES {
        let structural = rule.code.0.starts_with('P') && rule.code.0 >= "P020";
        assert!(
            !structural || files.iter().any(|(_, code)| code == rule.code.0),
            "nothing breaks {}: {}",
            rule.code,
            rule.title
        );
    }
}

#[test]
fn invalid_files_are_told_as_the_golden_files_say() {
    for (path, code) in invalid_files() {
        let source = read(&path);
        let found = errors(&source);
        assert!(!found.is_empty(), "{} is clean", path.display());
        for diagnostic in &found {
            assert_eq!(diagnostic.code.0, code, "{}", path.display());
            assert!(!diagnostic.message.ends_with('.'), "{diagnostic}");
        }
        let text: String = found.iter().map(|found| told(&source, found)).collect();
        let golden = path.with_extension("txt");
        if std::env::var_os("HEIST_BLESS").is_some() {
            std::fs::write(&golden, &text).expect("golden files can be written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(
            text,
            expected,
            "{}: `cargo xtask bless` accepts a new message",
            path.display()
        );
    }
}

#[test]
fn ptxas_rejects_every_invalid_file() {
    let Some(ptxas) = Ptxas::find_or_say_skipped() else {
        return;
    };
    let accepted: Vec<PathBuf> = parallel(&invalid_files(), |(path, _)| {
        let source = read(path);
        let target = parse(&source).expect("it parses").target.arch;
        // A target that does not exist is to be refused as text, not as an option.
        let target = Arch::parse(&target).map_or("sm_121", Arch::name);
        ptxas.accepts(source.text(), target).then(|| path.clone())
    })
    .into_iter()
    .flatten()
    .collect();
    assert_eq!(accepted, Vec::<PathBuf>::new(), "ptxas accepts these");
}

#[test]
fn a_file_of_nothing_but_mistakes_is_told_a_hundred() {
    let lines = "mov.b32 %r1, %r2;\n".repeat(150);
    let text =
        format!(".version 8.0\n.target sm_80\n.address_size 64\n.func f()\n{{\n{lines}ret;\n}}\n");
    assert_eq!(errors(&Source::new("many.ptx", text)).len(), 100);
}
