//! `heist tuned`: the answers that are remembered.

use super::tune::rows_as_table;
use crate::answer::{BadQuestion, Output, Verdict, question};
use clap::{Args, Subcommand};
use heist::tune::memory;
use heist_tune::{Answer, Journal, Store, latest};
use heist_view::table;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Show what `heist tune` found, put answers together, forget them.
#[derive(Args)]
#[command(after_help = "\
The answers are in $HEIST_TUNED, or in heist/tuned.jsonl of the cache folder. An answer is for one kernel, \
problem, kind of GPU, driver and version; under another driver or version it is not taken.

Examples:
  heist tuned                                  every answer
  heist tuned merge other.jsonl                take another machine's answers over
  heist tuned forget gemm                      forget those of one kernel
  heist tuned rows part1.jsonl part2.jsonl     the rows of journals, together
  heist tuned rows part*.jsonl --journal whole.jsonl
                                               in one journal: `heist tune --journal whole.jsonl` goes on from it")]
pub(crate) struct Tuned {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Take the answers of other files over; the newer of two stays.
    Merge {
        /// Files of answers.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Forget the answers of a kernel, or all of them.
    Forget {
        /// The kernel.
        kernel: Option<String>,
    },
    /// The rows of journals of one sweep, together.
    Rows {
        /// Journals of `heist tune --journal`.
        #[arg(required = true)]
        journals: Vec<PathBuf>,
        /// Draw them, too.
        #[arg(long, value_name = "FILE.html")]
        page: Option<PathBuf>,
        /// Write them into a new journal of the whole sweep.
        #[arg(long, value_name = "FILE")]
        journal: Option<PathBuf>,
    },
}

fn place() -> Result<PathBuf, BadQuestion> {
    memory::place()
        .ok_or_else(|| question("there is no place for answers: set HEIST_TUNED to a file"))
}

impl Tuned {
    pub(crate) fn run(self, out: Output) -> Result<Verdict, BadQuestion> {
        match self.what {
            None => list(out)?,
            Some(What::Merge { files }) => {
                let store = Store::open(&place()?).map_err(question)?;
                let mut taken = 0;
                for file in &files {
                    let other = Store::existing(file).map_err(question)?;
                    let missing = || question(format!("{}: there is no such file", file.display()));
                    taken += store.merge(&other.ok_or_else(missing)?).map_err(question)?;
                }
                tell(out, "taken", taken, store.path());
            }
            Some(What::Forget { kernel }) => {
                let store = Store::open(&place()?).map_err(question)?;
                let gone = store.forget(kernel.as_deref()).map_err(question)?;
                tell(out, "forgotten", gone, store.path());
            }
            Some(What::Rows {
                journals,
                page,
                journal,
            }) => rows(&journals, page.as_deref(), journal.as_deref(), out)?,
        }
        Ok(Verdict::Clean)
    }
}

fn tell(out: Output, what: &str, count: usize, path: &Path) {
    match out.json {
        true => out.json(&json!({ what: count, "file": path })),
        false => println!("{count} answers {what}: {}", path.display()),
    }
}

fn list(out: Output) -> Result<(), BadQuestion> {
    let path = place()?;
    let answers = match Store::existing(&path).map_err(question)? {
        Some(store) => store.all().map_err(question)?,
        None => Vec::new(),
    };
    if out.json {
        out.json(
            &json!({ "file": path, "version": env!("CARGO_PKG_VERSION"), "answers": answers }),
        );
        return Ok(());
    }
    if answers.is_empty() {
        println!(
            "{}: no answers yet; `heist tune` finds them",
            path.display()
        );
        return Ok(());
    }
    let line = |answer: &Answer| {
        let stale = answer.key.version != env!("CARGO_PKG_VERSION");
        vec![
            answer.key.kernel.clone(),
            answer.key.problem.clone(),
            format!("{}, driver {}", answer.key.device, answer.key.driver),
            answer.candidate.to_string(),
            format!("{:.2}", answer.median_ns / 1e3),
            answer
                .default_ns
                .map_or("-".to_owned(), |ns| format!("{:.3}", ns / answer.median_ns)),
            answer.at.clone(),
            if stale {
                format!("of version {}: not taken", answer.key.version)
            } else {
                String::new()
            },
        ]
    };
    let heads = [
        "kernel",
        "problem",
        "device",
        "answer",
        "us",
        "default over it",
        "when",
        "",
    ];
    print!(
        "{}",
        table::columns(&heads, &answers.iter().map(line).collect::<Vec<_>>())
    );
    println!("in {}", path.display());
    Ok(())
}

fn rows(
    journals: &[PathBuf],
    page: Option<&Path>,
    journal: Option<&Path>,
    out: Output,
) -> Result<(), BadQuestion> {
    let mut together = Vec::new();
    let mut whose = None;
    for path in journals {
        let (sweep, rows) = heist_tune::read(path).map_err(question)?;
        if whose.get_or_insert_with(|| sweep.clone()) != &sweep {
            return Err(question(format!(
                "{}: the journal of another sweep than {}; journals of one sweep go together",
                path.display(),
                journals[0].display()
            )));
        }
        together.extend(rows);
    }
    let rows = latest(&together);
    if let (Some(path), Some(sweep)) = (journal, &whose) {
        if path.exists() {
            return Err(question(format!(
                "{}: it is there already, and is left alone; name a new file",
                path.display()
            )));
        }
        let mut whole = Journal::open(path, sweep).map_err(question)?;
        for row in &rows {
            whole.add(row.clone()).map_err(question)?;
        }
    }
    if let Some(path) = page {
        let title = whose.as_ref().map_or_else(String::new, |sweep| {
            format!(
                "{} {}",
                sweep["kernel"].as_str().unwrap_or(""),
                sweep["problem"].as_str().unwrap_or("")
            )
        });
        std::fs::write(path, heist_tune::page(&title, &rows))
            .map_err(|error| question(format!("{}: {error}", path.display())))?;
    }
    match out.json {
        true => out.json(&json!({ "sweep": whose, "rows": rows })),
        false => print!("{}", rows_as_table(&rows, false)),
    }
    Ok(())
}
