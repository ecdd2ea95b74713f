//! Programs that are started with a library of Heist in front of theirs.

use crate::answer::{BadQuestion, question};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// A library that lies beside this program.
pub(super) struct Library {
    /// As cargo names it.
    pub(super) file: &'static str,
    /// What it is, for messages.
    pub(super) what: &'static str,
    /// The variable of the environment that says where it is.
    pub(super) variable: &'static str,
    /// The package that it is built from.
    pub(super) package: &'static str,
}

impl Library {
    /// As the environment says, or beside this program.
    pub(super) fn find(&self) -> Result<PathBuf, BadQuestion> {
        let Library {
            file,
            what,
            variable,
            package,
        } = self;
        if let Some(path) = std::env::var_os(variable).map(PathBuf::from) {
            return fs::canonicalize(&path)
                .map_err(|error| question(format!("{variable}={}: {error}", path.display())));
        }
        let here = std::env::current_exe().unwrap_or_default();
        let folders = here.ancestors().skip(1).take(2);
        let mut places =
            folders.flat_map(|folder| [folder.join(file), folder.join("lib").join(file)]);
        places.find(|path| path.is_file()).ok_or_else(|| {
            question(format!(
                "{file}, {what}, is not beside this program: build it with \
                 `cargo build -p {package}`, or say where it is with {variable}"
            ))
        })
    }
}

/// A folder for what the library tells, which goes when it is no longer needed.
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    pub(super) fn new(command: &str) -> Result<Folder, BadQuestion> {
        let path = std::env::temp_dir().join(format!("heist-{command}-{}", std::process::id()));
        // A run that was killed has left its folder, and the number is used again.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)
            .map_err(|error| question(format!("{}: {error}", path.display())))?;
        Ok(Folder { path })
    }

    /// What was told: each line is a value.
    pub(super) fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path.join("report.jsonl")).unwrap_or_default();
        let values = text.lines().map(serde_json::from_str);
        values.filter_map(Result::ok).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Runs a program to its end.
pub(super) fn run(command: &mut Command, program: &OsString) -> Result<ExitStatus, BadQuestion> {
    let failed = |error| question(format!("{}: {error}", Path::new(program).display()));
    command.status().map_err(failed)
}

/// The exit status; a signal is told as shells do.
pub(super) fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().map(|signal| 128 + signal);
    let code = status.code().or(signal).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_has_left_is_not_in_the_way() {
        let first = Folder::new("left").unwrap_or_else(|_| panic!("a folder"));
        fs::write(first.path.join("report.jsonl"), "{}\n").expect("a file");
        assert_eq!(first.lines().len(), 1);
        std::mem::forget(first);
        let second = Folder::new("left").unwrap_or_else(|_| panic!("a folder"));
        assert_eq!(second.lines().len(), 0);
    }
}
