//! Running other programs, and saying which one failed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A chore that did not come off, with the reason.
pub(crate) struct Failed(pub(crate) String);

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A command in the root of the workspace.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Says what is run, and runs it.
pub(crate) fn run(command: &mut Command) -> Result<(), Failed> {
    let line = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    eprintln!("$ {line}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failed(format!("`{line}` failed: {status}"))),
        Err(error) => Err(Failed(format!("`{line}` can't be started: {error}"))),
    }
}

/// Runs cargo in the root of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Result<(), Failed> {
    run(command("cargo").args(arguments))
}
