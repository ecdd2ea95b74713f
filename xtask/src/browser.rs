//! The browser that the timeline's test opens.
//!
//! It comes from Debian's packages where this process may install them. Where
//! it may not, or where that fails, the test says that it was skipped.

use crate::shell;
use std::process::{Command, Stdio};

/// What a browser is called, as the test looks for it.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Installs Chromium unless there is a browser.
pub(crate) fn setup() {
    if std::env::var_os("HEIST_BROWSER").is_some() {
        return;
    }
    if let Some(name) = NAMES.iter().find(|name| starts(name, "--version")) {
        eprintln!("a browser is there: {name}");
        return;
    }
    if !is_root() || !starts("apt-get", "--version") {
        eprintln!(
            "no browser, and no way to install one (that takes root and apt-get): \
             the timeline's test in a browser will be skipped"
        );
        return;
    }
    eprintln!("no browser: installing Debian's chromium, for the timeline's test");
    let apt = |arguments: &[&str]| {
        shell::run(
            shell::command("apt-get")
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .stdout(Stdio::null()),
        )
    };
    let packages = ["install", "-y", "--no-install-recommends", "chromium"];
    if let Err(shell::Failed(why)) = apt(&["update"]).and_then(|()| apt(&packages)) {
        eprintln!("{why}\nthe timeline's test in a browser will be skipped");
    }
}

fn starts(program: &str, argument: &str) -> bool {
    Command::new(program)
        .arg(argument)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
}
