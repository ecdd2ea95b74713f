//! Which commit a release was built from, for `heist --version`, and how its command is linked.

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
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    // Programs that are linked with musl bring a start-up of their own, for one kind of address.
    if release && target("OS") == "linux" && target("ENV") == "gnu" {
        // At a fixed address: a table of all pointers in the program, which else is a tenth of it,
        // is neither stored nor walked at each start.
        println!("cargo::rustc-link-arg-bin=heist=-no-pie");
    }
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
