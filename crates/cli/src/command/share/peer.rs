//! PyTorch beside the same kernels, in a process of its own that measures when it is asked.

use super::Share;
use super::figures::us;
use crate::answer::{BadQuestion, question};
use heist::share::{Beside, Company, Seen, Tail, holder_ptx};
use heist_kernels::Target;
use heist_kernels::catalogue::{self, Settings};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The script that measures it.
const PEER: &str = include_str!("../../../include/share.py");

/// Why a peer gives no figures.
pub(super) type Absent = String;

/// The row of a peer while it is measured.
pub(super) struct PeerRow {
    process: Process,
    name: String,
    alone: Vec<f64>,
    beside: Vec<Seen>,
    held: Vec<Vec<f64>>,
}

/// What was found of a peer, in microseconds.
pub(super) struct PeerFigures {
    pub(super) name: String,
    alone: f64,
    beside: Vec<Beside>,
    held: Vec<f64>,
}

impl PeerRow {
    /// Measures it alone once more.
    pub(super) fn alone(&mut self, rounds: usize) -> Result<(), Absent> {
        let asked = json!({ "what": "alone", "rounds": rounds });
        let samples = numbers(&self.process.ask(&asked)?)?;
        self.alone.extend(samples);
        Ok(())
    }

    /// Watches it beside an interactive product once more.
    pub(super) fn beside(&mut self, interactive: usize, company: Company) -> Result<(), Absent> {
        let after = (0..=company.samples).map(|sample| company.after(sample).as_secs_f64());
        let asked = json!({
            "what": "beside", "interactive": interactive, "after": after.collect::<Vec<_>>(),
            "batch_us": Tail::median(self.alone.iter().copied()),
            "queued_us": company.queued.as_secs_f64() * 1e6,
        });
        let answer = self.process.ask(&asked)?;
        let (watched, ended) = (answer["watched"].as_f64(), answer["ended"].as_u64());
        let (Some(watched), Some(ended)) = (watched, ended) else {
            return Err(format!("it answered {answer}"));
        };
        self.beside[interactive].extend(Seen {
            samples: numbers(&answer["samples"])?,
            watched,
            ended: ended as usize,
        });
        Ok(())
    }

    /// Measures it once more while multiprocessors are held: the `column`-th number of them.
    pub(super) fn held(&mut self, column: usize, sms: u32, rounds: usize) -> Result<(), Absent> {
        let asked = json!({ "what": "held", "sms": sms, "rounds": rounds });
        let samples = numbers(&self.process.ask(&asked)?)?;
        self.held[column].extend(samples);
        Ok(())
    }

    /// What was found.
    pub(super) fn figures(self) -> PeerFigures {
        PeerFigures {
            name: self.name,
            alone: Tail::median(self.alone),
            beside: self.beside.iter().map(Seen::in_short).collect(),
            held: self.held.into_iter().map(Tail::median).collect(),
        }
    }
}

impl PeerFigures {
    /// Its line of the first table.
    pub(super) fn beside(&self) -> Vec<String> {
        let seen = self.beside.iter().flat_map(|seen| in_a_row(seen).map(us));
        [self.name.clone(), us(self.alone)]
            .into_iter()
            .chain(seen)
            .collect()
    }

    /// Its line of the second table.
    pub(super) fn held(&self) -> Vec<String> {
        let times = self.held.iter().copied().map(us);
        std::iter::once(self.name.clone()).chain(times).collect()
    }

    pub(super) fn as_json(&self) -> Value {
        let beside: Vec<f64> = self.beside.iter().flat_map(in_a_row).collect();
        json!({ "name": self.name, "alone": self.alone, "beside": beside, "held": self.held })
    }
}

/// The order of a table's columns.
fn in_a_row(seen: &Beside) -> [f64; 3] {
    [seen.interactive.p50, seen.interactive.p99, seen.batch]
}

fn numbers(answer: &Value) -> Result<Vec<f64>, Absent> {
    let items = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let numbers: Option<Vec<f64>> = items.iter().map(Value::as_f64).collect();
    numbers
        .filter(|numbers| !numbers.is_empty())
        .ok_or_else(|| format!("it answered {answer}"))
}

impl Share {
    /// The peer, ready to be asked, or why there is none.
    pub(super) fn peer(&self, target: Target) -> Result<Result<PeerRow, Absent>, BadQuestion> {
        let ptx = holder_ptx(target.arch).map_err(|error| question(error.problem))?;
        let case = json!({
            "kernel": self.kernel,
            "told": told(&self.kernel, &self.told)?,
            "interactive": self.interactive.iter().map(|text| {
                told("gemm", text.split_whitespace().next().unwrap_or_default().split(','))
            }).collect::<Result<Vec<Value>, BadQuestion>>()?,
        });
        let started = Process::start(&self.python, PEER, &ptx, &case).and_then(|mut process| {
            let name = process.answer()?["name"].as_str().map(str::to_owned);
            Ok(PeerRow {
                name: name.ok_or("it did not say its name")?,
                process,
                alone: Vec::new(),
                beside: vec![Seen::default(); self.interactive.len()],
                held: vec![Vec::new(); self.held(target).len()],
            })
        });
        Ok(started)
    }
}

/// All settings of a kernel, and which of them are not as usual.
fn told<W: AsRef<str>>(
    kernel: &str,
    words: impl IntoIterator<Item = W>,
) -> Result<Value, BadQuestion> {
    let parameters = catalogue::entry(kernel).map_err(question)?.parameters();
    let given = Settings::from_words(words).map_err(question)?;
    let all: Map<String, Value> = parameters
        .iter()
        .map(|p| (p.name.to_owned(), given.word(parameters, p.name).into()))
        .collect();
    let unusual = parameters
        .iter()
        .filter(|p| given.word(parameters, p.name) != p.default);
    let unusual: Vec<&str> = unusual.map(|parameter| parameter.name).collect();
    Ok(json!({ "all": all, "unusual": unusual }))
}

/// A script that runs, and answers a line of JSON with one.
struct Process {
    child: Child,
    /// Closed first, which ends the script.
    questions: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    folder: PathBuf,
}

impl Process {
    fn start(python: &Path, script: &str, ptx: &str, case: &Value) -> Result<Process, Absent> {
        let folder = std::env::temp_dir().join(format!("heist-share-{}", std::process::id()));
        let no_room = |error: std::io::Error| format!("no room for its script: {error}");
        let written = fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("hold.ptx"), ptx))
            .and_then(|()| fs::write(folder.join("share.py"), script))
            .and_then(|()| File::create(folder.join("errors")));
        let errors = written.map_err(no_room)?;
        let child = Command::new(python)
            .arg(folder.join("share.py"))
            .arg(folder.join("hold.ptx"))
            .arg(case.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn();
        let mut child = child.map_err(|error| format!("{}: {error}", python.display()))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("its input and output are not connected".to_owned());
        };
        Ok(Process {
            child,
            questions: Some(questions),
            answers: BufReader::new(answers).lines(),
            folder,
        })
    }

    fn ask(&mut self, asked: &Value) -> Result<Value, Absent> {
        let sent = self.questions.as_mut().map(|it| writeln!(it, "{asked}"));
        match sent {
            Some(Ok(())) => self.answer(),
            _ => Err(self.last_words()),
        }
    }

    fn answer(&mut self) -> Result<Value, Absent> {
        match self.answers.next() {
            Some(Ok(line)) => {
                serde_json::from_str(&line).map_err(|_| format!("it answered `{line}`"))
            }
            _ => Err(self.last_words()),
        }
    }

    /// What it complained of when it ended.
    fn last_words(&mut self) -> Absent {
        self.end();
        let said = fs::read_to_string(self.folder.join("errors")).unwrap_or_default();
        said.lines().last().unwrap_or("it said nothing").to_owned()
    }

    fn end(&mut self) {
        self.questions = None;
        // It ends with its input; an error of it is in its last words.
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        // Litter in a temporary folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// A script for `sh` in the place of Python's.
    fn start(script: &str) -> Process {
        let process = Process::start(Path::new("sh"), script, "", &json!({}));
        process.unwrap_or_else(|why| panic!("{why}"))
    }

    #[test]
    fn a_peer_is_asked_in_lines_and_its_last_words_are_kept() {
        let mut echo = start("while read line; do echo \"[1, 2.5]\"; echo 'no room' >&2; done");
        let asked = json!({ "what": "alone" });
        for _ in 0..2 {
            let answer = echo.ask(&asked).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(numbers(&answer), Ok(vec![1.0, 2.5]));
        }
        drop(echo);
        let mut broken = start("echo first >&2; echo 'no PyTorch here' >&2");
        assert_eq!(broken.answer(), Err("no PyTorch here".to_owned()));
        assert_eq!(broken.ask(&asked), Err("no PyTorch here".to_owned()));
        drop(broken);
        let mut confused = start("echo what; read line");
        assert_eq!(confused.answer(), Err("it answered `what`".to_owned()));
        drop(confused);
        assert!(numbers(&json!([])).is_err() && numbers(&json!([1, "x"])).is_err());
        let absent = Process::start(Path::new("no-such-python"), "", "", &json!({}));
        assert!(absent.is_err_and(|why| why.starts_with("no-such-python: ")));
    }

    #[test]
    fn a_peer_is_told_defaults_and_what_is_unusual() {
        let told =
            told("attention", ["dim=128", "mask=full"]).unwrap_or_else(|_| panic!("no attention"));
        assert_eq!(told["unusual"], json!(["dim"]));
        assert_eq!(told["all"]["dim"], "128");
        assert_eq!(told["all"]["dtype"], "f16");
    }
}
