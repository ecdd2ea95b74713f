//! The rows of a sweep as JSON lines in a file: written one by one, and read again when a sweep is
//! resumed.
//!
//! The first line says which sweep it is; another sweep does not write into it. A killed process
//! may leave an incomplete last line, which is removed when the file is opened.

use crate::candidate::Candidate;
use crate::row::Row;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Why a journal can't be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file can't be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// A line is none of a journal's.
    #[error("{}:{line}: not a line of a sweep's journal ({why}); name another file, or delete this one", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It is another sweep's.
    #[error("{}: the journal of another sweep ({found}), not of {wanted}; name another file, or delete this one", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        found: Value,
        /// Whose it should be.
        wanted: Value,
    },
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    /// Which sweep it is.
    Sweep(Value),
    /// A candidate's row; a later one of the same candidate takes its place.
    Row(Box<Row>),
    /// A stage is over.
    Done(String),
}

/// The rows of a sweep so far.
#[derive(Debug)]
pub struct Journal {
    file: Option<(PathBuf, File)>,
    rows: Vec<Row>,
    /// Those that have a row: asked for each one that is to be tried, beside thousands that were refused.
    known: HashSet<Candidate>,
    done: Vec<String>,
}

impl Journal {
    /// One that is forgotten with the process.
    pub fn in_memory() -> Journal {
        Journal {
            file: None,
            rows: Vec::new(),
            known: HashSet::new(),
            done: Vec::new(),
        }
    }

    /// Opens the journal of the sweep that `sweep` describes, or begins it.
    ///
    /// # Errors
    /// When the file can't be used, or is another sweep's.
    pub fn open(path: &Path, sweep: &Value) -> Result<Journal, JournalError> {
        let broken = |why| JournalError::File {
            path: path.to_owned(),
            why,
        };
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .map_err(broken)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(broken)?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(broken)?;
            file.seek(SeekFrom::End(0)).map_err(broken)?;
        }
        let mut journal = Journal::in_memory();
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let found = journal.take(path, &text)?;
        journal.file = Some((path.to_owned(), file));
        match found {
            None => journal.write(&Line::Sweep(sweep.clone()))?,
            Some(found) if found == *sweep => {}
            Some(found) => {
                return Err(JournalError::Other {
                    path: path.to_owned(),
                    found,
                    wanted: sweep.clone(),
                });
            }
        }
        Ok(journal)
    }

    /// Takes the lines of a file in; whose journal it is.
    fn take(&mut self, path: &Path, text: &str) -> Result<Option<Value>, JournalError> {
        let mut whose = None;
        for (at, line) in text.lines().enumerate() {
            let wrong = |why: String| JournalError::Line {
                path: path.to_owned(),
                line: at + 1,
                why,
            };
            match serde_json::from_str(line).map_err(|error| wrong(error.to_string()))? {
                Line::Sweep(found) if at == 0 => whose = Some(found),
                Line::Sweep(_) => return Err(wrong("a second beginning".to_owned())),
                Line::Row(row) => self.push(*row),
                Line::Done(stage) => self.done.push(stage),
            }
            if whose.is_none() {
                return Err(wrong("it does not say which sweep it is of".to_owned()));
            }
        }
        Ok(whose)
    }

    /// Every row that was written, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether a stage is over.
    pub fn is_done(&self, stage: &str) -> bool {
        self.done.iter().any(|done| done == stage)
    }

    /// Writes a row.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn add(&mut self, row: Row) -> Result<(), JournalError> {
        let line = Line::Row(Box::new(row));
        self.write(&line)?;
        if let Line::Row(row) = line {
            self.push(*row);
        }
        Ok(())
    }

    fn push(&mut self, row: Row) {
        self.known.insert(row.candidate.clone());
        self.rows.push(row);
    }

    /// Whether a candidate has a row.
    pub fn knows(&self, candidate: &Candidate) -> bool {
        self.known.contains(candidate)
    }

    /// Writes that a stage is over.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn finish(&mut self, stage: &str) -> Result<(), JournalError> {
        self.write(&Line::Done(stage.to_owned()))?;
        self.done.push(stage.to_owned());
        Ok(())
    }

    fn write(&mut self, line: &Line) -> Result<(), JournalError> {
        let Some((path, file)) = &mut self.file else {
            return Ok(());
        };
        // One write for a whole line: whatever ends the process leaves whole lines behind,
        // but for the last.
        let written = serde_json::to_string(line)
            .map_err(std::io::Error::other)
            .and_then(|text| file.write_all(format!("{text}\n").as_bytes()));
        written.map_err(|why| JournalError::File {
            path: path.clone(),
            why,
        })
    }
}

/// The newest row of each candidate, in the order in which they first came.
pub fn latest(rows: &[Row]) -> Vec<Row> {
    newest(rows).into_iter().cloned().collect()
}

pub(crate) fn newest<'r>(rows: impl IntoIterator<Item = &'r Row>) -> Vec<&'r Row> {
    let mut places: HashMap<&Candidate, usize> = HashMap::new();
    let mut newest: Vec<&Row> = Vec::new();
    for row in rows {
        match places.entry(&row.candidate) {
            Entry::Occupied(at) => newest[*at.get()] = row,
            Entry::Vacant(place) => {
                place.insert(newest.len());
                newest.push(row);
            }
        }
    }
    newest
}

/// Reads a journal without writing to it: which sweep it is of, and its rows.
///
/// # Errors
/// When the file is not a journal.
pub fn read(path: &Path) -> Result<(Value, Vec<Row>), JournalError> {
    let bytes = std::fs::read(path).map_err(|why| JournalError::File {
        path: path.to_owned(),
        why,
    })?;
    let whole = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let mut journal = Journal::in_memory();
    let found = journal.take(path, &String::from_utf8_lossy(&bytes[..whole]))?;
    let whose = found.ok_or_else(|| JournalError::Line {
        path: path.to_owned(),
        line: 1,
        why: "it is empty".to_owned(),
    })?;
    Ok((whose, journal.rows))
}
