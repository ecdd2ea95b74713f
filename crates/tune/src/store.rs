//! The store of answers: an SQLite file that several processes may use at once.

use crate::candidate::Candidate;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Marks the file as one of ours: "HEIS".
const APPLICATION: i64 = 0x4845_4953;
/// The layout of its tables.
const LAYOUT: i64 = 1;

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS answers (
    kernel TEXT NOT NULL,
    problem TEXT NOT NULL,
    device TEXT NOT NULL,
    driver TEXT NOT NULL,
    version TEXT NOT NULL,
    candidate TEXT NOT NULL,
    median_ns REAL NOT NULL,
    default_ns REAL,
    tried INTEGER NOT NULL,
    at TEXT NOT NULL DEFAULT (datetime('now')),
    PRIMARY KEY (kernel, problem, device, driver, version)
) STRICT;";

/// Why a store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is no store, or broken.
    #[error("{}: not a store of tuned answers ({why}); move it away and tune again, or name another with HEIST_TUNED", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another program has it, or the disk is full.
    #[error("{}: {why}", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        why: String,
    },
}

/// What an answer is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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

/// The file with the answers.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

impl Store {
    /// Opens a store, or makes an empty one.
    ///
    /// # Errors
    /// When the file is something else, or broken.
    pub fn open(path: &Path) -> Result<Store, StoreError> {
        if let Some(folder) = path.parent() {
            // Opening the file reports if that failed.
            let _ = std::fs::create_dir_all(folder);
        }
        Store::with(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        )
    }

    /// Opens a store that is there, to look answers up.
    ///
    /// # Errors
    /// When the file is something else, or broken. A file that is not there is `None`.
    pub fn existing(path: &Path) -> Result<Option<Store>, StoreError> {
        if !path.exists() {
            return Ok(None);
        }
        Store::with(path, OpenFlags::SQLITE_OPEN_READ_WRITE).map(Some)
    }

    fn with(path: &Path, flags: OpenFlags) -> Result<Store, StoreError> {
        let told = |error| tell(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(told)?;
        connection
            .busy_timeout(Duration::from_secs(20))
            .map_err(told)?;
        // One statement, so that all three are of one moment: another process may be making the
        // tables right now.
        let (application, layout, tables): (i64, i64, i64) = connection
            .query_row(
                "SELECT (SELECT application_id FROM pragma_application_id),
                        (SELECT user_version FROM pragma_user_version),
                        (SELECT count(*) FROM sqlite_schema)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .map_err(told)?;
        let broken = |why: String| StoreError::Broken {
            path: path.to_owned(),
            why,
        };
        match (application, layout, tables) {
            (APPLICATION, LAYOUT, _) => {}
            (0, 0, 0) => {
                // Several processes may find it empty at once: each statement can be run twice. The
                // one that is late with the journal's mode finds it set.
                let _ = connection.pragma_update(None, "journal_mode", "WAL");
                connection
                    .execute_batch(&format!(
                        "BEGIN IMMEDIATE; {TABLES}
                         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {LAYOUT}; COMMIT;"
                    ))
                    .map_err(told)?;
            }
            (APPLICATION, other, _) => {
                return Err(broken(format!(
                    "its tables are of layout {other}, and this version reads {LAYOUT}"
                )));
            }
            _ => return Err(broken("it is another program's database".to_owned())),
        }
        Ok(Store {
            path: path.to_owned(),
            connection,
        })
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
        let found = self
            .connection
            .query_row(
                "SELECT kernel, problem, device, driver, version, candidate, median_ns, default_ns, tried, at
                 FROM answers WHERE kernel = ?1 AND problem = ?2 AND device = ?3 AND driver = ?4 AND version = ?5",
                params![key.kernel, key.problem, key.device, key.driver, key.version],
                read,
            )
            .optional()
            .map_err(|error| tell(&self.path, error))?;
        found.transpose().map_err(|why| StoreError::Broken {
            path: self.path.clone(),
            why,
        })
    }

    /// Every answer, sorted by what it is for.
    ///
    /// # Errors
    /// When the file is broken.
    pub fn all(&self) -> Result<Vec<Answer>, StoreError> {
        let told = |error| tell(&self.path, error);
        let mut statement = self
            .connection
            .prepare(
                "SELECT kernel, problem, device, driver, version, candidate, median_ns, default_ns, tried, at
                 FROM answers ORDER BY kernel, problem, device, driver, version",
            )
            .map_err(told)?;
        let rows = statement.query_map([], read).map_err(told)?;
        let rows: Result<Vec<_>, _> = rows.collect();
        let answers: Result<Vec<_>, String> = rows.map_err(told)?.into_iter().collect();
        answers.map_err(|why| StoreError::Broken {
            path: self.path.clone(),
            why,
        })
    }

    /// Keeps an answer; it replaces one with the same key. An answer without a time gets the
    /// present one.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep(&self, answer: &Answer) -> Result<(), StoreError> {
        let candidate = serde_json::to_string(&answer.candidate).unwrap_or_default();
        let Key {
            kernel,
            problem,
            device,
            driver,
            version,
        } = &answer.key;
        self.connection
            .execute(
                "INSERT OR REPLACE INTO answers
                 (kernel, problem, device, driver, version, candidate, median_ns, default_ns, tried, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce(nullif(?10, ''), datetime('now')))",
                params![
                    kernel,
                    problem,
                    device,
                    driver,
                    version,
                    candidate,
                    answer.median_ns,
                    answer.default_ns,
                    answer.tried,
                    answer.at
                ],
            )
            .map_err(|error| tell(&self.path, error))?;
        Ok(())
    }

    /// Takes another store's answers over; where both have one, the newer stays. How many came.
    ///
    /// # Errors
    /// When either is broken.
    pub fn merge(&self, other: &Store) -> Result<usize, StoreError> {
        let mut taken = 0;
        for answer in other.all()? {
            let own = self.find(&answer.key)?;
            if own.is_none_or(|own| own.at < answer.at) {
                self.keep(&answer)?;
                taken += 1;
            }
        }
        Ok(taken)
    }

    /// Forgets every answer of a kernel, or all of them. How many there were.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn forget(&self, kernel: Option<&str>) -> Result<usize, StoreError> {
        let gone = match kernel {
            Some(kernel) => self
                .connection
                .execute("DELETE FROM answers WHERE kernel = ?1", [kernel]),
            None => self.connection.execute("DELETE FROM answers", []),
        };
        gone.map_err(|error| tell(&self.path, error))
    }
}

/// A row of the table; the inner error is a candidate that is no candidate.
fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Result<Answer, String>> {
    let key = Key {
        kernel: row.get(0)?,
        problem: row.get(1)?,
        device: row.get(2)?,
        driver: row.get(3)?,
        version: row.get(4)?,
    };
    let text: String = row.get(5)?;
    let candidate = match serde_json::from_str(&text) {
        Ok(candidate) => candidate,
        Err(error) => {
            let (kernel, problem) = (&key.kernel, &key.problem);
            return Ok(Err(format!("its answer for {kernel} {problem}: {error}")));
        }
    };
    Ok(Ok(Answer {
        key,
        candidate,
        median_ns: row.get(6)?,
        default_ns: row.get(7)?,
        tried: row.get(8)?,
        at: row.get(9)?,
    }))
}

fn tell(path: &Path, error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode;
    let path = path.to_owned();
    let why = error.to_string();
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure,
        ) => StoreError::Busy { path, why },
        _ => StoreError::Broken { path, why },
    }
}
