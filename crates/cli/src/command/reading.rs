//! Reading PTX and applying the rules, within a limit of time.

use heist_ptx::{Diagnostic, Source, Span, rule, validate};
use heist_run::{NotRun, Program};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of stack of the thread that reads: as much as the main thread has.
const STACK: usize = 8 << 20;

/// What reading a file says of it.
pub(super) struct Reading {
    pub(super) program: Program,
    /// What is wrong with it as PTX; or, where nothing is, what the rules find.
    pub(super) found: Vec<Diagnostic>,
    /// Whether it is PTX. What is not means nothing, and can't be run.
    pub(super) valid: bool,
}

impl Reading {
    /// Of a text, unless that takes too long. Then the work is left to itself: it ends with the
    /// program, which has nothing more to do than to say so.
    pub(super) fn within(limit: Duration, source: &Source) -> Option<Result<Reading, NotRun>> {
        let began = Instant::now();
        let (sender, receiver) = channel();
        let text = source.clone();
        let worker = thread::Builder::new().stack_size(STACK).spawn(move || {
            // Nobody listens any more where it took too long.
            let _ = sender.send(Reading::of(text));
        });
        let Ok(worker) = worker else {
            // A system without room for a thread: it is read without a limit.
            return Some(Reading::of(source.clone()));
        };
        match receiver.recv_timeout(limit) {
            Ok(answer) => (began.elapsed() <= limit).then_some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => match worker.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => None,
            },
        }
    }

    fn of(source: Source) -> Result<Reading, NotRun> {
        let program = Program::new(source)?;
        let mut found = validate::validate(program.module(), Some(program.source()));
        let valid = found.is_empty();
        if valid {
            found = heist_check::check(program.module());
        }
        Ok(Reading {
            program,
            found,
            valid,
        })
    }
}

/// What is said where it takes too long.
pub(super) fn too_long(limit: Duration) -> Diagnostic {
    Diagnostic::error(
        rule::TIME_BUDGET,
        Span::NONE,
        format!(
            "reading it and applying the rules takes longer than {} s",
            limit.as_secs_f64()
        ),
    )
    .help("give it more time with --timeout; or leave kernels out that need no check")
}
