//! A bench in a process of its own, which may hang or die.

use crate::bench::{Bench, Facts, Failure, Request, Response};
use crate::candidate::Candidate;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The program whose standard input takes questions and whose standard output gives answers:
/// one that calls [`serve`](crate::serve).
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// How long one answer may take.
    pub limit: Duration,
}

/// What came of waiting for a line.
enum Waited {
    Line(String),
    /// The process has closed its output.
    Closed,
    Over,
}

/// Waits for lines; tests have one that knows no clock.
type Patience = Box<dyn Fn(&Receiver<String>) -> Waited + Send>;

/// A bench in a process of its own. A hung process is killed, a crash is reported, and the next
/// question starts another process.
pub struct Worker {
    command: WorkerCommand,
    patience: Patience,
    running: Option<Running>,
    exact: bool,
}

struct Running {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<String>,
    /// The end of what it wrote to standard error.
    said: Arc<Mutex<String>>,
    /// Reads that; done when the process has ended.
    listener: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    /// Starts the process.
    ///
    /// # Errors
    /// When it can't be started, or does not say that it is ready: why, in its own words.
    pub fn start(command: WorkerCommand) -> Result<Worker, Failure> {
        let limit = command.limit;
        Worker::waiting(
            command,
            Box::new(move |lines| match lines.recv_timeout(limit) {
                Ok(line) => Waited::Line(line),
                Err(RecvTimeoutError::Disconnected) => Waited::Closed,
                Err(RecvTimeoutError::Timeout) => Waited::Over,
            }),
        )
    }

    fn waiting(command: WorkerCommand, patience: Patience) -> Result<Worker, Failure> {
        let mut worker = Worker {
            command,
            patience,
            running: None,
            exact: false,
        };
        worker.begin()?;
        Ok(worker)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.running = Some(spawn(&self.command)?);
        match self.answer()? {
            Response::Ready { exact } => {
                self.exact = exact;
                Ok(())
            }
            Response::Failed(failure) => Err(failure),
            other => Err(Failure::Crashed {
                why: format!("it began with {other:?}"),
            }),
        }
    }

    /// Waits for the answer to the question before.
    fn answer(&mut self) -> Result<Response, Failure> {
        let Some(running) = &mut self.running else {
            return Err(Failure::Crashed {
                why: "there is no process to ask".to_owned(),
            });
        };
        let failure = match (self.patience)(&running.answers) {
            Waited::Line(line) => match serde_json::from_str(&line) {
                Ok(response) => return Ok(response),
                Err(error) => Failure::Crashed {
                    why: format!("its answer can't be read ({error}): {line}"),
                },
            },
            Waited::Over => Failure::Hung {
                seconds: self.command.limit.as_secs_f64(),
            },
            Waited::Closed => {
                let status = running.child.wait().map_or_else(
                    |error| format!("it closed its output, and can't be waited for: {error}"),
                    ended,
                );
                // Its last output may still be in the pipe.
                if let Some(listener) = running.listener.take() {
                    let _ = listener.join();
                }
                let said = running
                    .said
                    .lock()
                    .map(|said| said.clone())
                    .unwrap_or_default();
                let last = said.lines().rev().find(|line| !line.trim().is_empty());
                Failure::Crashed {
                    why: match last {
                        Some(line) => format!("{status}: {}", line.trim()),
                        None => status,
                    },
                }
            }
        };
        // Whatever it was, this process is not asked again.
        self.running = None;
        Err(failure)
    }

    fn ask(&mut self, request: &Request) -> Result<Response, Failure> {
        if self.running.is_none() {
            self.begin()?;
        }
        let text = serde_json::to_string(request).unwrap_or_default();
        if let Some(running) = &mut self.running {
            // The write fails if it has died; waiting for the answer gives the reason.
            let _ = running.questions.write_all(format!("{text}\n").as_bytes());
        }
        let response = self.answer()?;
        if matches!(response, Response::Failed(Failure::Crashed { .. })) {
            // It broke its device, and ends.
            self.running = None;
        }
        Ok(response)
    }
}

impl Bench for Worker {
    fn solve(&mut self, candidate: &Candidate) -> Result<Facts, Failure> {
        let candidate = candidate.clone();
        match self.ask(&Request::Solve { candidate })? {
            Response::Solved(facts) => Ok(facts),
            other => Err(unexpected(other)),
        }
    }

    fn sample(&mut self, candidate: &Candidate, count: u32) -> Result<Vec<f64>, Failure> {
        let candidate = candidate.clone();
        match self.ask(&Request::Sample { candidate, count })? {
            Response::Sampled { ns } => Ok(ns),
            other => Err(unexpected(other)),
        }
    }

    fn is_exact(&self) -> bool {
        self.exact
    }
}

fn unexpected(response: Response) -> Failure {
    match response {
        Response::Failed(failure) => failure,
        other => Failure::Crashed {
            why: format!("an answer to another question: {other:?}"),
        },
    }
}

fn spawn(command: &WorkerCommand) -> Result<Running, Failure> {
    let mut child = Command::new(&command.program)
        .args(&command.arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Failure::Crashed {
            why: format!("{} can't be started: {error}", command.program.display()),
        })?;
    let (Some(questions), Some(output), Some(mut errors)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(Failure::Crashed {
            why: "the process has no input or output".to_owned(),
        });
    };
    let (send, answers) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    let said = Arc::new(Mutex::new(String::new()));
    let keeps = Arc::clone(&said);
    let listener = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = errors.read(&mut bytes) {
            let Ok(mut said) = keeps.lock() else { break };
            said.push_str(&String::from_utf8_lossy(&bytes[..count]));
            const MOST: usize = 1 << 14;
            if said.len() > 2 * MOST {
                let cut = said.ceil_char_boundary(said.len() - MOST);
                said.drain(..cut);
            }
        }
    });
    Ok(Running {
        child,
        questions,
        answers,
        said,
        listener: Some(listener),
    })
}

/// How a process ended, in words.
fn ended(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            let name = match signal {
                4 => " (illegal instruction)",
                6 => " (abort)",
                7 => " (bus error)",
                8 => " (arithmetic)",
                9 => " (killed)",
                11 => " (segmentation fault)",
                _ => "",
            };
            return format!("its process died of signal {signal}{name}");
        }
    }
    format!("its process ended with {status}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> WorkerCommand {
        WorkerCommand {
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            limit: Duration::from_secs(7),
        }
    }

    /// Waits for as long as it takes, and gives up on the word `hang` alone.
    fn without_a_clock(lines: &Receiver<String>) -> Waited {
        match lines.recv() {
            Ok(line) if line == "hang" => Waited::Over,
            Ok(line) => Waited::Line(line),
            Err(_) => Waited::Closed,
        }
    }

    const READY: &str = r#"echo '{"answer":"ready","exact":true}';"#;

    fn outcome(script: &str) -> Result<Facts, Failure> {
        let command = shell(&format!("{READY} read line; {script}"));
        let mut worker = Worker::waiting(command, Box::new(without_a_clock)).expect("it starts");
        worker.solve(&Candidate::default())
    }

    #[test]
    fn each_way_to_fail_is_told_apart() {
        let solved = outcome(r#"echo '{"answer":"solved","registers":7}'; read line"#);
        assert_eq!(solved.expect("an answer").registers, Some(7));
        assert_eq!(
            outcome("echo hang; read line"),
            Err(Failure::Hung { seconds: 7.0 })
        );
        let Err(Failure::Crashed { why }) = outcome("echo the reason >&2; kill -11 $$") else {
            panic!("it crashed");
        };
        assert!(
            why.contains("segmentation fault") && why.contains("the reason"),
            "{why}"
        );
        let Err(Failure::Crashed { why }) = outcome("exit 3") else {
            panic!("it ended");
        };
        assert!(why.contains('3'), "{why}");
        let Err(Failure::Crashed { why }) = outcome("echo nonsense; read line") else {
            panic!("it talked nonsense");
        };
        assert!(why.contains("nonsense"), "{why}");
        let wrong =
            outcome(r#"echo '{"answer":"failed","failure":"wrong","why":"off"}'; read line"#);
        assert_eq!(wrong, Err(Failure::Wrong { why: "off".into() }));
    }

    #[test]
    fn the_next_question_gets_a_fresh_process() {
        let script = format!(
            r#"{READY} read line; case "$line" in *bad*) exit 9;; esac; echo '{{"answer":"solved"}}'; read line"#
        );
        let mut worker =
            Worker::waiting(shell(&script), Box::new(without_a_clock)).expect("it starts");
        let bad = Candidate::new([("kind", "bad")]);
        assert!(matches!(worker.solve(&bad), Err(Failure::Crashed { .. })));
        assert!(worker.solve(&Candidate::new([("kind", "good")])).is_ok());
    }

    #[test]
    fn a_program_that_is_not_there_is_told() {
        let mut command = shell("");
        command.program = "no-such-program".into();
        assert!(matches!(
            Worker::start(command),
            Err(Failure::Crashed { .. })
        ));
        assert!(matches!(
            Worker::start(shell("exit 2")),
            Err(Failure::Crashed { .. })
        ));
    }
}
