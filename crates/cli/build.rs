//! Which commit a release was built from, for `heist --version`.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=HEIST_COMMIT");
    let named = std::env::var("HEIST_COMMIT").ok();
    // A debug build does not ask: it would be compiled anew after every commit.
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = named.or_else(|| release.then(from_git).flatten());
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=HEIST_BUILT_FROM={commit}");
}

fn from_git() -> Option<String> {
    let git = |words: &[&str]| {
        let answer = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8(answer.stdout).ok()?;
        answer.status.success().then(|| text.trim().to_owned())
    };
    for file in ["HEAD", "index"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(match changed.is_empty() {
        true => commit,
        false => format!("{commit}, with changes"),
    })
}
