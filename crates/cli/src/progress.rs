//! How far long work has come: a bar on a terminal, a line now and then elsewhere, nothing
//! with `--json`. And what was done when Ctrl-C ends it.

use crate::answer::Output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The work in progress, for the message after Ctrl-C.
static UNDER_WAY: Mutex<Option<String>> = Mutex::new(None);

/// Where there is no terminal, a line comes at most this often.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Work of a known number of steps.
pub(crate) struct Progress {
    what: &'static str,
    /// Hidden where there is no terminal; it still counts.
    bar: ProgressBar,
    lines: Option<Mutex<Instant>>,
}

impl Progress {
    /// Begins. `what` is a noun in the plural: `runs`, `cases`.
    pub(crate) fn new(out: Output, what: &'static str, steps: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = ProgressBar::with_draw_target(
            Some(steps as u64),
            match terminal && !out.json {
                true => ProgressDrawTarget::stderr(),
                false => ProgressDrawTarget::hidden(),
            },
        );
        let style = "{prefix} [{bar:32}] {pos}/{len}, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        let progress = Progress {
            what,
            bar,
            lines: (!terminal && !out.json).then(|| Mutex::new(Instant::now())),
        };
        progress.note();
        progress
    }

    /// One step is done.
    pub(crate) fn step(&self, name: &str) {
        self.bar.inc(1);
        self.bar.set_message(name.to_owned());
        self.note();
        let Some(Ok(mut last)) = self.lines.as_ref().map(Mutex::lock) else {
            return;
        };
        if last.elapsed() >= BETWEEN_LINES {
            *last = Instant::now();
            let left = self.bar.eta().as_secs();
            eprintln!("{}, about {left} s left", self.count());
        }
    }

    fn count(&self) -> String {
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        format!("{done} of {all} {}", self.what)
    }

    fn note(&self) {
        if let Ok(mut under_way) = UNDER_WAY.lock() {
            *under_way = Some(self.count());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if let Ok(mut under_way) = UNDER_WAY.lock() {
            *under_way = None;
        }
    }
}

/// Ctrl-C ends the program with status 130, after a line that says what was done. Files are
/// written whole or not at all, so nothing is left half made.
pub fn end_cleanly_when_interrupted() {
    // Without a handler the signal ends the program all the same, with less to read.
    let _ = ctrlc::set_handler(|| {
        let done = match UNDER_WAY.lock().ok().and_then(|mut what| what.take()) {
            Some(count) => format!(": {count} were done"),
            None => String::new(),
        };
        eprintln!("heist: interrupted{done}");
        std::process::exit(130);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_and_known_to_who_interrupts() {
        let progress = Progress::new(Output::for_people(), "runs", 3);
        progress.step("one");
        progress.step("two");
        assert_eq!(progress.count(), "2 of 3 runs");
        assert_eq!(UNDER_WAY.lock().unwrap().as_deref(), Some("2 of 3 runs"));
        drop(progress);
        assert_eq!(*UNDER_WAY.lock().unwrap(), None);
    }
}
