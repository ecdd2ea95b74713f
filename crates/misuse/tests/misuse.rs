//! Misuse that must not compile, and what the compiler says about it.
//!
//! The expected messages are part of the interface: they are what a user reads.
//! `HEIST_BLESS=1 cargo test -p heist-misuse` writes them anew.
//!
//! Each case is given to rustc alone, with the builder that this test was built with: a case costs
//! a tenth of a second, and nothing below it is compiled again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a case must come to.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    /// The types are wrong: a check refuses it.
    Refused,
    /// Assertions about constants are evaluated by a build and not by a check.
    RefusedLate,
    /// It is right.
    Accepted,
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

/// The folder of what this test was linked with.
fn built() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    own.parent().expect("a folder").to_path_buf()
}

/// The builder as it was compiled last: one with other features or flags may stand beside it.
fn builder() -> PathBuf {
    let files = fs::read_dir(built()).expect("a folder").flatten();
    let found = files.filter(|file| {
        let name = file.file_name().to_string_lossy().into_owned();
        name.starts_with("libheist_builder-") && name.ends_with(".rlib")
    });
    let newest = found.max_by_key(|file| file.metadata().and_then(|file| file.modified()).ok());
    newest.expect("the builder is compiled").path()
}

/// What rustc says of a case, or nothing where it takes it.
fn said(case: &str, verdict: Verdict, builder: &Path) -> Option<String> {
    let name = case.replace(['/', '.'], "-");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let emitted = match verdict {
        Verdict::Refused => "metadata",
        Verdict::RefusedLate | Verdict::Accepted => "obj",
    };
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let ran = Command::new(rustc)
        .current_dir(root())
        .args(["--edition", "2024", "--crate-type", "bin"])
        .args(["--emit", emitted, "-A", "unused"])
        .arg("-o")
        .arg(&out)
        .arg("-L")
        .arg(format!("dependency={}", built().display()))
        .arg("--extern")
        .arg(format!("heist_builder={}", builder.display()))
        .arg(format!("crates/misuse/{case}"))
        .output()
        .expect("rustc");
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    (!ran.status.success()).then(|| normal(&text, case))
}

/// The message without what changes when lines move in other files, or between machines.
fn normal(text: &str, case: &str) -> String {
    let is_gutter = |c: char| c == ' ' || c.is_ascii_digit();
    let mut lines = Vec::new();
    let mut own = true;
    for line in text.lines() {
        let dropped = ["error: aborting due to", "For more information about"];
        let about_types = [
            "the full name for the type has",
            "consider using `--verbose`",
        ];
        if dropped.iter().any(|start| line.starts_with(start))
            || about_types.iter().any(|words| line.contains(words))
        {
            continue;
        }
        let rest = line.trim_start_matches(is_gutter);
        let number = line[..line.len() - rest.len()].trim();
        let arrow = ["--> ", "::: "]
            .iter()
            .find(|arrow| rest.starts_with(*arrow));
        if let Some(arrow) = arrow {
            let place = &rest[arrow.len()..];
            own = place.contains(case);
            lines.push(format!("   {arrow}{}", shown_place(place, own)));
        } else if rest.starts_with(['|', '=']) && line.starts_with(is_gutter) {
            // The gutter is as wide as the largest number: that of another file, perhaps.
            let number = if own { number } else { "" };
            lines.push(format!("{number:>3} {rest}").trim_end().to_owned());
        } else {
            lines.push(counted(line).trim_end().to_owned());
        }
    }
    format!("{}\n", lines.join("\n").trim_end())
}

/// A place in the case with its line; another file by its name.
fn shown_place(place: &str, own: bool) -> String {
    if own {
        return place.trim_start_matches("crates/misuse/").to_owned();
    }
    let file = place.split(".rs:").next().unwrap_or(place);
    let inside = |folder: &str| Some(file.split_once(folder)?.1);
    // A registry has a folder for its name, and in it one for a crate with its version.
    let of_a_crate = inside("/registry/src/").and_then(|path| {
        let (package, path) = path.split_once('/')?.1.split_once('/')?;
        Some(format!("$CARGO/{}/{path}.rs", package.rsplit_once('-')?.0))
    });
    match inside("/library/") {
        Some(path) => format!("$RUST/{path}.rs"),
        None => of_a_crate.unwrap_or_else(|| format!("{file}.rs")),
    }
}

/// `and 12 others` without the number: a type more is no other message.
fn counted(line: &str) -> String {
    let words = line.trim_start();
    let number = words
        .strip_prefix("and ")
        .and_then(|rest| rest.strip_suffix(" others"));
    match number {
        Some(number) if number.parse::<u32>().is_ok() => line.replace(number, "$N"),
        _ => line.to_owned(),
    }
}

#[test]
fn misuse_does_not_compile() {
    let builder = builder();
    let bless = std::env::var_os("HEIST_BLESS").is_some();
    let folders = [
        ("tests/refused", Verdict::Refused),
        ("tests/refused_late", Verdict::RefusedLate),
        ("tests/accepted", Verdict::Accepted),
    ];
    let mut cases: Vec<(String, Verdict)> = Vec::new();
    for (folder, verdict) in folders {
        let files = fs::read_dir(folder).expect("a folder").flatten();
        let names = files.map(|file| format!("{folder}/{}", file.file_name().to_string_lossy()));
        let before = cases.len();
        cases.extend(
            names
                .filter(|name| name.ends_with(".rs"))
                .map(|name| (name, verdict)),
        );
        assert!(cases.len() > before, "{folder} has no case");
    }
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    let wrong = heist_oracle::parallel(&cases, |(case, verdict)| {
        let said = said(case, *verdict, &builder);
        let told = Path::new(case).with_extension("stderr");
        match (verdict, said) {
            (Verdict::Accepted, None) => None,
            (Verdict::Accepted, Some(said)) => {
                Some(format!("{case} is right, and refused:\n{said}"))
            }
            (_, None) => Some(format!("{case} compiles")),
            (_, Some(said)) if bless => {
                fs::write(&told, said).expect("a file");
                None
            }
            (_, Some(said)) => {
                let expected = fs::read_to_string(&told).unwrap_or_default();
                (said != expected).then(|| format!("{case}: expected\n{expected}\nsaid\n{said}"))
            }
        }
    });
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
