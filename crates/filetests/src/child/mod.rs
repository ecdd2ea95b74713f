//! A device in a process of its own.
//!
//! A kernel that faults can take its whole process with it: after some faults the
//! driver refuses every call until the process ends. So the cases of a real device run
//! in a child. [`ChildDevice`] starts it, hands it one case at a time, and starts a new one after a
//! loss, so that a fault fails only the case that caused it; [`serve`] is the child's side.

mod wire;

use crate::case::Action;
use crate::device::{CaseError, Losable, NoDevice, Request, TestDevice, entry_of};
use crate::directive::read_directives;
use heist_ptx::Source;
use heist_run::{Execution, Program};
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use wire::{Answer, Ask};

/// How long a child may take to say anything: a case has a limit of its own that is
/// well below, and opening a GPU takes a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that lives in a child process.
pub struct ChildDevice {
    name: String,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    patience: Box<dyn Fn(&str) -> Duration + Send + Sync>,
    child: Mutex<Option<Running>>,
}

impl ChildDevice {
    /// Starts the first child; `command` makes the call that [`serve`]s the device,
    /// and is used again after every loss.
    pub fn start(
        name: &str,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<ChildDevice, NoDevice> {
        ChildDevice::start_with(name, |_| PATIENCE, command)
    }

    /// [`ChildDevice::start`] with another limit on how long a child may be silent in a case,
    /// chosen by the case's name.
    pub fn start_with(
        name: &str,
        patience: impl Fn(&str) -> Duration + Send + Sync + 'static,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Result<ChildDevice, NoDevice> {
        let first = Running::start(command())?;
        Ok(ChildDevice {
            name: name.to_owned(),
            command: Box::new(command),
            patience: Box::new(patience),
            child: Mutex::new(Some(first)),
        })
    }
}

impl TestDevice for ChildDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_real(&self) -> bool {
        true
    }

    fn run(&self, request: &Request<'_>) -> Result<Execution, CaseError> {
        let mut slot = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = match slot.take() {
            Some(child) => child,
            None => Running::start((self.command)()).map_err(|none| {
                CaseError::Failed(format!("the device did not come back: {}", none.why))
            })?,
        };
        let ask = Ask {
            name: request.program.source().name().to_owned(),
            text: request.program.source().text().to_owned(),
            case: request.case.to_owned(),
        };
        let answer = child.ask(&ask, (self.patience)(request.case));
        let (result, lost) = match answer {
            Ok(Answer::Ran {
                outputs,
                findings,
                lost,
            }) => {
                let ran = wire::ran(outputs, findings).ok_or_else(|| {
                    CaseError::Failed("the child's answer makes no sense".to_owned())
                });
                (ran, lost)
            }
            Ok(Answer::NotForThisDevice(why)) => (Err(CaseError::NotForThisDevice(why)), false),
            Ok(Answer::Failed { why, lost }) => (Err(CaseError::Failed(why)), lost),
            Ok(Answer::Ready | Answer::NoDevice { .. }) => (
                Err(CaseError::Failed("the child spoke out of turn".to_owned())),
                true,
            ),
            Err(why) => (Err(CaseError::Failed(why)), true),
        };
        if !lost {
            *slot = Some(child);
        }
        result
    }
}

/// A child, and what it says, line by line.
struct Running {
    process: Child,
    asks: Option<ChildStdin>,
    answers: Receiver<Result<Answer, String>>,
}

impl Running {
    fn start(mut command: Command) -> Result<Running, NoDevice> {
        let broken = |why: String| NoDevice {
            why,
            about_the_machine: false,
        };
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| broken(format!("no process for the device: {error}")))?;
        let asks = process.stdin.take();
        let (tell, answers) = channel();
        if let Some(stdout) = process.stdout.take() {
            // It ends with the child's output, at the latest when the child is killed.
            thread::spawn(move || {
                let mut lines = BufReader::new(stdout);
                let mut line = Vec::new();
                while matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
                    if let Some(answer) = wire::heard(String::from_utf8_lossy(&line).trim_end())
                        && tell.send(answer).is_err()
                    {
                        break;
                    }
                    line.clear();
                }
            });
        }
        let mut running = Running {
            process,
            asks,
            answers,
        };
        match running.answer(PATIENCE) {
            Ok(Answer::Ready) => Ok(running),
            Ok(Answer::NoDevice { why, machine }) => Err(NoDevice {
                why,
                about_the_machine: machine,
            }),
            Ok(_) => Err(broken("the child spoke out of turn".to_owned())),
            Err(why) => Err(broken(why)),
        }
    }

    fn ask(&mut self, ask: &Ask, patience: Duration) -> Result<Answer, String> {
        if let Some(asks) = &mut self.asks
            && wire::say(asks, ask).is_ok()
        {
            return self.answer(patience);
        }
        Err(self.epitaph())
    }

    fn answer(&mut self, patience: Duration) -> Result<Answer, String> {
        match self.answers.recv_timeout(patience) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Err(format!(
                "the process of the device said nothing for {} s and was ended",
                patience.as_secs_f32()
            )),
            Err(RecvTimeoutError::Disconnected) => Err(self.epitaph()),
        }
    }

    /// How it ended.
    fn epitaph(&mut self) -> String {
        match self.process.wait() {
            Ok(status) => format!("the process of the device died in this case: {status}"),
            Err(error) => format!("the process of the device is lost: {error}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // When its input is closed, a healthy child exits; one that hangs in the driver does not,
        // and is killed.
        self.asks = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child's side: opens the device, then runs the cases that `asks` names until
/// there are no more, or the device is lost.
///
/// `open` gives the reason why there is no device, and whether that is because the machine has
/// none.
pub fn serve<D: Losable>(
    open: impl FnOnce() -> Result<D, NoDevice>,
    asks: impl BufRead,
    mut answers: impl Write,
) -> io::Result<()> {
    let device = match open() {
        Ok(device) => device,
        Err(none) => {
            let answer = Answer::NoDevice {
                why: none.why,
                machine: none.about_the_machine,
            };
            return wire::say(&mut answers, &answer);
        }
    };
    wire::say(&mut answers, &Answer::Ready)?;
    for line in asks.lines() {
        let result = match wire::heard::<Ask>(&line?) {
            None => continue,
            Some(Ok(ask)) => run(&device, ask),
            Some(Err(why)) => Err(CaseError::Failed(format!("not understood: {why}"))),
        };
        let lost = device.is_lost();
        wire::say(&mut answers, &Answer::of(result, lost))?;
        if lost {
            break;
        }
    }
    Ok(())
}

fn run(device: &dyn TestDevice, ask: Ask) -> Result<Execution, CaseError> {
    let failed = |why: String| CaseError::Failed(why);
    let file = read_directives(Source::new(ask.name, ask.text))
        .map_err(|errors| failed(errors.iter().map(ToString::to_string).collect()))?;
    let case = file.cases.iter().find(|case| case.name == ask.case);
    let Some(Action::Run(run)) = case.map(|case| &case.action) else {
        return Err(failed(format!("no case `{}` to run", ask.case)));
    };
    let program = Program::new(file.source.clone()).map_err(|error| failed(error.to_string()))?;
    let entry = entry_of(&program, run).map_err(failed)?;
    device.run(&Request {
        program: &program,
        case: &ask.case,
        entry,
        run,
    })
}
