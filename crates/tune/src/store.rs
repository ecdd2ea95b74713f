//! The store of answers: lines of JSON in a file that several processes may use at once.
//!
//! A line is added under a lock of the operating system, which ends with its process, and no line is
//! ever changed: a later answer for the same takes the place of an earlier one. A killed process may
//! leave an incomplete last line, which nobody reads and the next writer removes.

use crate::candidate::Candidate;
use crate::clock;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// What the lines look like.
const LAYOUT: u32 = 1;

/// Why a store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is no store, or broken.
    #[error("{}:{line}: not a store of tuned answers ({why}); move it away and tune again, or name another with HEIST_TUNED", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It can't be read or written: no permission, the disk is full, a folder is not there.
    #[error("{}: {why}; HEIST_TUNED names another file for tuned answers", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: io::Error,
    },
}

/// What an answer is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The kernel.
    pub kernel: String,
    /// The problem, in words.
    pub problem: String,
    /// The GPU.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// The version of the kernels.
    pub version: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What for.
    #[serde(flatten)]
    pub key: Key,
    /// What is fastest.
    pub candidate: Candidate,
    /// Its median.
    pub median_ns: f64,
    /// The median of the default, in the same race.
    pub default_ns: Option<f64>,
    /// How many candidates were tried.
    pub tried: u32,
    /// When, in universal time.
    pub at: String,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first: that it is a store, and the layout of its lines.
    HeistTuned(u32),
    /// An answer.
    Answer(Box<Answer>),
    /// What came before is forgotten, of one kernel or of all.
    Forget(Option<String>),
}

/// The file with the answers. It is opened for each question.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
}

impl Store {
    /// Opens a store, or makes an empty one.
    ///
    /// # Errors
    /// When the file is something else, or broken, or can't be written.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        if let Some(folder) = path.parent() {
            // Opening the file reports if that failed.
            let _ = std::fs::create_dir_all(folder);
        }
        let store = Store {
            path: path.to_owned(),
        };
        store.change(|_| ((), Vec::new()))?;
        Ok(store)
    }

    /// Opens a store that is there, to look answers up.
    ///
    /// # Errors
    /// When the file is something else, or broken. A file that is not there is `None`.
    pub fn existing(path: &Path) -> Result<Option<Store>, StoreError> {
        let store = Store {
            path: path.to_owned(),
        };
        match store.answers() {
            Ok(_) => Ok(Some(store)),
            Err(StoreError::File { why, .. }) if why.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The answer for just this: another driver or version has answers of its own.
    ///
    /// # Errors
    /// When the file is broken.
    pub fn find(&self, key: &Key) -> Result<Option<Answer>, StoreError> {
        Ok(self.answers()?.remove(key))
    }

    /// Every answer, sorted by what it is for.
    ///
    /// # Errors
    /// When the file is broken.
    pub fn all(&self) -> Result<Vec<Answer>, StoreError> {
        Ok(self.answers()?.into_values().collect())
    }

    /// Keeps an answer; it replaces one with the same key. An answer without a time gets the
    /// present one.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep(&self, answer: &Answer) -> Result<(), StoreError> {
        let mut answer = answer.clone();
        if answer.at.is_empty() {
            answer.at = clock::now();
        }
        self.change(|_| ((), vec![Line::Answer(Box::new(answer))]))
    }

    /// Takes another store's answers over; where both have one, the newer stays. How many came.
    ///
    /// # Errors
    /// When either is broken.
    pub fn merge(&self, other: &Store) -> Result<usize, StoreError> {
        let others = other.answers()?;
        self.change(|own| {
            let newer = others.into_iter().filter(|(key, answer)| {
                let own = own.get(key);
                own.is_none_or(|own| own.at < answer.at)
            });
            let lines: Vec<Line> = newer
                .map(|(_, answer)| Line::Answer(Box::new(answer)))
                .collect();
            (lines.len(), lines)
        })
    }

    /// Forgets every answer of a kernel, or all of them. How many there were.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn forget(&self, kernel: Option<&str>) -> Result<usize, StoreError> {
        self.change(|own| {
            let meant = |key: &&Key| kernel.is_none_or(|kernel| key.kernel == kernel);
            match own.keys().filter(meant).count() {
                0 => (0, Vec::new()),
                gone => (gone, vec![Line::Forget(kernel.map(str::to_owned))]),
            }
        })
    }

    /// What is in the file now.
    fn answers(&self) -> Result<BTreeMap<Key, Answer>, StoreError> {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            file.lock_shared()?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().map_err(|why| self.failed(why))?;
        Ok(self.parse(&bytes)?.0)
    }

    /// Adds the lines that `decide` finds to be needed, while no other process can.
    fn change<R>(
        &self,
        decide: impl FnOnce(&BTreeMap<Key, Answer>) -> (R, Vec<Line>),
    ) -> Result<R, StoreError> {
        let failed = |why| self.failed(why);
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&self.path)
            .map_err(failed)?;
        // Closing the file unlocks it.
        file.lock().map_err(failed)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let (answers, end) = self.parse(&bytes)?;
        let (result, mut lines) = decide(&answers);
        if end == 0 {
            lines.insert(0, Line::HeistTuned(LAYOUT));
        }
        if lines.is_empty() {
            return Ok(result);
        }
        let mut text = String::new();
        for line in &lines {
            let line = serde_json::to_string(line).map_err(|error| failed(error.into()))?;
            text.push_str(&line);
            text.push('\n');
        }
        if end < bytes.len() {
            file.set_len(end as u64).map_err(failed)?;
        }
        file.write_all(text.as_bytes()).map_err(failed)?;
        file.sync_data().map_err(failed)?;
        Ok(result)
    }

    /// The answers, and where the last whole line ends.
    fn parse(&self, bytes: &[u8]) -> Result<(BTreeMap<Key, Answer>, usize), StoreError> {
        let broken = |at: usize, why: String| StoreError::Broken {
            path: self.path.clone(),
            line: at + 1,
            why,
        };
        let last = bytes.iter().rposition(|byte| *byte == b'\n');
        let end = last.map_or(0, |at| at + 1);
        // What is not the start of our first line is not ours to remove.
        let first = format!("{}\n", serde_json::json!({ "heist_tuned": LAYOUT }));
        if end == 0 && !first.as_bytes().starts_with(bytes) {
            return Err(broken(0, "it is another program's file".to_owned()));
        }
        let mut answers = BTreeMap::new();
        for (at, line) in bytes[..end]
            .split_inclusive(|byte| *byte == b'\n')
            .enumerate()
        {
            let broken = |why| broken(at, why);
            match (at, serde_json::from_slice(line)) {
                (0, Ok(Line::HeistTuned(LAYOUT))) => {}
                (0, Ok(Line::HeistTuned(other))) => {
                    return Err(broken(format!(
                        "its lines are of layout {other}, and this version reads {LAYOUT}"
                    )));
                }
                (0, _) => return Err(broken("it is another program's file".to_owned())),
                (_, Ok(Line::HeistTuned(_))) => {
                    return Err(broken("a second beginning".to_owned()));
                }
                (_, Ok(Line::Answer(answer))) => {
                    answers.insert(answer.key.clone(), *answer);
                }
                (_, Ok(Line::Forget(kernel))) => {
                    let kept = |key: &Key| kernel.as_ref().is_some_and(|name| key.kernel != *name);
                    answers.retain(|key, _| kept(key));
                }
                (_, Err(error)) => return Err(broken(error.to_string())),
            }
        }
        Ok((answers, end))
    }

    fn failed(&self, why: io::Error) -> StoreError {
        StoreError::File {
            path: self.path.clone(),
            why,
        }
    }
}
