//! Files that commands read, and those that they write: atomically, and only after a check, before
//! any work, that they are writable.

use crate::answer::BadQuestion;
use heist_ptx::Source;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;

/// Puts `bytes` in a file, in place of what was there. They are written beside it
/// first, so that a full disk destroys no file; a link stays a link.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), BadQuestion> {
    let written = target(path).and_then(|target| match target {
        // A device or a pipe holds nothing that could be lost.
        Target::Stream => fs::write(path, bytes),
        Target::File(file) => {
            let beside = beside(&file);
            let replaced = fs::write(&beside, bytes).and_then(|()| {
                if let Ok(before) = fs::metadata(&file) {
                    fs::set_permissions(&beside, before.permissions())?;
                }
                fs::rename(&beside, &file)
            });
            if replaced.is_err() {
                let _ = fs::remove_file(&beside);
            }
            replaced
        }
    });
    written.map_err(|error| can_t(path, &error))
}

/// Fails if a file could not be written now.
pub(crate) fn writable(path: &Path) -> Result<(), BadQuestion> {
    let tried = target(path).and_then(|target| match target {
        Target::Stream => Ok(()),
        Target::File(file) => {
            let beside = beside(&file);
            File::create(&beside).and_then(|_| fs::remove_file(&beside))
        }
    });
    tried.map_err(|error| can_t(path, &error))
}

enum Target {
    /// A file, with links followed; it may not be there yet.
    File(PathBuf),
    /// A device or a pipe.
    Stream,
}

fn target(path: &Path) -> io::Result<Target> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Target::File(path.to_owned())),
        Err(error) => Err(error),
        Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(there) if there.is_file() => {
            // What may not be written is not replaced either.
            File::options().write(true).open(path)?;
            fs::canonicalize(path).map(Target::File)
        }
        Ok(_) => Ok(Target::Stream),
    }
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".heist-{}", std::process::id()));
    name.into()
}

fn can_t(path: &Path, error: &io::Error) -> BadQuestion {
    BadQuestion::Sentence(format!("can't write {}: {error}", path.display()))
}

/// Reads a text file, or standard input for `-`, to say something of it. A byte that is not UTF-8 reads
/// as U+FFFD: the comments of PTX and the lines of a log may be in any encoding.
pub(crate) fn read_source(path: &Path) -> Result<Source, BadQuestion> {
    let (name, bytes) = read(path)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        // Text in UTF-16, a cubin, an object file.
        Err(error) if error.as_bytes().contains(&0) => Err(no_text(&name, &error)),
        Err(error) => {
            let text = String::from_utf8_lossy(error.as_bytes());
            Ok(Source::new(name, text.into_owned()))
        }
    }
}

/// The same, to write it back: every byte must be understood.
pub(crate) fn read_exactly(path: &Path) -> Result<Source, BadQuestion> {
    let (name, bytes) = read(path)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(error) => Err(no_text(&name, &error)),
    }
}

fn no_text(name: &str, error: &FromUtf8Error) -> BadQuestion {
    BadQuestion::Sentence(format!(
        "{name} is not text: byte {} is not UTF-8. Is it a cubin or an object file? \
         `cuobjdump -ptx` extracts PTX from one",
        error.utf8_error().valid_up_to()
    ))
}

/// A file's name and all its bytes.
fn read(path: &Path) -> Result<(String, Vec<u8>), BadQuestion> {
    let mut bytes = Vec::new();
    let (name, read) = if path.as_os_str() == "-" {
        ("<stdin>".into(), io::stdin().read_to_end(&mut bytes))
    } else {
        let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
        (path.display().to_string(), read)
    };
    if let Err(error) = read {
        return Err(BadQuestion::Sentence(format!("can't read {name}: {error}")));
    }
    Ok((name, bytes))
}
