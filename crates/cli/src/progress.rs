//! How far long work has come: a bar on a terminal, a line now and then elsewhere, nothing
//! with `--json`. And what was done when Ctrl-C ends it.

use crate::answer::Output;
use heist_run::{Advance, Meter};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The work in progress, for the message after Ctrl-C.
static UNDER_WAY: Mutex<Option<UnderWay>> = Mutex::new(None);

/// Work in progress.
#[derive(Clone)]
enum UnderWay {
    /// Steps that were done: a sentence.
    Steps(String),
    /// One piece of work, after "while", and how far it is.
    Piece(String, Meter),
}

/// Where there is no terminal, a line comes at most this often.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// What takes no longer than this is over before anybody looks.
const SOON: Duration = Duration::from_secs(1);

/// What the message after Ctrl-C will say: that something was done, or nothing.
pub(crate) fn note(phrase: Option<String>) {
    if let Ok(mut under_way) = UNDER_WAY.lock() {
        *under_way = phrase.map(UnderWay::Steps);
    }
}

/// Where progress is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// As a bar.
    Bar,
    /// As lines.
    Lines,
    /// Not at all.
    Nowhere,
}

impl Shown {
    fn new(out: Output) -> Shown {
        match (out.json, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nowhere,
            (false, true) => Shown::Bar,
            (false, false) => Shown::Lines,
        }
    }
}

/// Work of a known number of steps.
pub(crate) struct Progress {
    /// Hidden where there is no terminal; it still counts.
    bar: ProgressBar,
    lines: Option<Mutex<Lines>>,
    what: &'static str,
    began: Instant,
}

impl Progress {
    /// Begins. `what` is a noun in the plural: `runs`, `cases`.
    pub(crate) fn new(out: Output, what: &'static str, steps: usize) -> Progress {
        let shown = Shown::new(out);
        let target = match shown {
            Shown::Bar => ProgressDrawTarget::stderr(),
            Shown::Lines | Shown::Nowhere => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
        let style = "{prefix} [{bar:32}] {pos}/{len}{left}  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            let left = |state: &ProgressState, text: &mut dyn Write| {
                let _ = text.write_str(&left(state.pos(), state.eta()));
            };
            bar.set_style(style.progress_chars("=> ").with_key("left", left));
        }
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        let progress = Progress {
            bar,
            lines: (shown == Shown::Lines).then(|| Mutex::new(Lines::default())),
            what,
            began: Instant::now(),
        };
        progress.note();
        progress
    }

    /// There are so many steps, where that was not known at the beginning.
    pub(crate) fn of(&self, steps: usize) {
        self.bar.set_length(steps as u64);
    }

    /// One step is done.
    pub(crate) fn step(&self, name: &str) {
        self.steps(name, 1);
    }

    /// Several are done at once.
    pub(crate) fn steps(&self, name: &str, steps: usize) {
        self.bar.inc(steps as u64);
        self.bar.set_message(name.to_owned());
        self.note();
        if let Some(Ok(mut lines)) = self.lines.as_ref().map(Mutex::lock)
            && let Some(line) = lines.after_step(self.began.elapsed(), self.count())
        {
            eprintln!("{line}");
        }
    }

    /// Prints something while the work goes on, so that the bar does not stand in it.
    pub(crate) fn meanwhile(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    fn count(&self) -> Count {
        Count {
            done: self.bar.position(),
            all: self.bar.length().unwrap_or(0),
            what: self.what,
        }
    }

    fn note(&self) {
        note(Some(format!("{} were done", self.count())));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        note(None);
    }
}

/// How much time is left, for a bar. Nobody can tell before the first step is done.
fn left(done: u64, estimate: Duration) -> String {
    match done {
        0 => String::new(),
        _ => format!(", {} s left", estimate.as_secs()),
    }
}

/// A line of text that is written over and is never longer than the terminal is wide; nothing
/// where there is no terminal.
pub(crate) struct Line(ProgressBar);

impl Line {
    pub(crate) fn new(out: Output) -> Line {
        let target = match Shown::new(out) {
            Shown::Bar => ProgressDrawTarget::stderr(),
            Shown::Lines | Shown::Nowhere => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Line(bar)
    }

    pub(crate) fn say(&self, text: String) {
        self.0.set_message(text);
        self.0.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        note(None);
    }
}

/// How many steps are done.
struct Count {
    done: u64,
    all: u64,
    what: &'static str,
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} {}", self.done, self.all, self.what)
    }
}

/// When a line is due. It is told the time, and has no clock.
#[derive(Default)]
struct Lines {
    /// When the last one came.
    last: Duration,
}

impl Lines {
    /// The line after a step, that long after the beginning, if one is due.
    fn after_step(&mut self, now: Duration, count: Count) -> Option<String> {
        if now.saturating_sub(self.last) < BETWEEN_LINES {
            return None;
        }
        self.last = now;
        let each = now.as_secs_f64() / count.done.max(1) as f64;
        let left = each * count.all.saturating_sub(count.done) as f64;
        Some(format!("{count}, about {left:.0} s left"))
    }
}

/// One piece of work: how many blocks have ended where a simulation tells it, and how long it may
/// take.
pub(crate) struct Waiting {
    /// Dropped when the work is done.
    done: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Begins. `what` continues "interrupted while": `simulating power-law`.
    pub(crate) fn new(out: Output, what: String, limit: Duration, meter: Meter) -> Waiting {
        if let Ok(mut under_way) = UNDER_WAY.lock() {
            *under_way = Some(UnderWay::Piece(what.clone(), meter.clone()));
        }
        let (done, over) = channel::<()>();
        let shown = Shown::new(out);
        let tell = move || {
            let goes_on = |time| over.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            match shown {
                Shown::Nowhere => {}
                Shown::Lines => {
                    let mut spent = Duration::ZERO;
                    while goes_on(BETWEEN_LINES) {
                        spent += BETWEEN_LINES;
                        eprintln!("{}", so_far(&what, spent, limit, meter.read()));
                    }
                }
                Shown::Bar => {
                    let mut spent = SOON;
                    if !goes_on(SOON) {
                        return;
                    }
                    let bar = ProgressBar::new_spinner();
                    loop {
                        bar.set_message(so_far(&what, spent, limit, meter.read()));
                        bar.tick();
                        if !goes_on(SOON) {
                            return bar.finish_and_clear();
                        }
                        spent += SOON;
                    }
                }
            }
        };
        Waiting {
            done: Some(done),
            teller: (shown != Shown::Nowhere).then(|| std::thread::spawn(tell)),
        }
    }
}

/// A line about work that goes on. Before the first block has ended nobody knows when it will
/// end, only when a run would be ended.
fn so_far(what: &str, spent: Duration, limit: Duration, advance: Option<Advance>) -> String {
    let (spent, limit) = (spent.as_secs(), limit.as_secs_f64());
    let blocks = advance.map_or(String::new(), |Advance { ended, blocks, .. }| {
        format!("{ended} of {blocks} blocks, ")
    });
    let end = match advance.and_then(|advance| advance.left()) {
        Some(left) => format!("about {} s left", left.as_secs()),
        None => format!("a run may take {limit} s"),
    };
    format!("{what}: {blocks}{spent} s so far; {end}")
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(teller) = self.teller.take() {
            // It ends with the sender; it has nothing to answer.
            let _ = teller.join();
        }
        note(None);
    }
}

/// Ctrl-C ends the program with status 130, after a line that says what was done. Files are
/// written whole or not at all, so nothing is left half made.
pub fn end_cleanly_when_interrupted() {
    // Without a handler the signal ends the program all the same, with less to read.
    let _ = ctrlc::set_handler(|| {
        let under_way = UNDER_WAY.lock().ok().and_then(|mut work| work.take());
        eprintln!("heist: {}", interrupted(under_way));
        std::process::exit(130);
    });
}

fn interrupted(under_way: Option<UnderWay>) -> String {
    match under_way {
        Some(UnderWay::Piece(what, meter)) => match meter.read() {
            Some(Advance { ended, blocks, .. }) => {
                format!("interrupted while {what}, after {ended} of {blocks} blocks")
            }
            None => format!("interrupted while {what}"),
        },
        Some(UnderWay::Steps(phrase)) => format!("interrupted: {phrase}"),
        None => "interrupted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is under way is one for the whole program: the tests of it take turns.
    static ONE: Mutex<()> = Mutex::new(());

    fn under_way() -> Option<UnderWay> {
        UNDER_WAY.lock().unwrap().clone()
    }

    #[test]
    fn steps_are_counted_and_known_to_who_interrupts() {
        let _alone = ONE.lock().unwrap();
        let progress = Progress::new(Output::for_people(), "runs", 3);
        progress.step("one");
        progress.step("two");
        assert_eq!(progress.count().to_string(), "2 of 3 runs");
        assert_eq!(
            interrupted(under_way()),
            "interrupted: 2 of 3 runs were done"
        );
        drop(progress);
        assert!(under_way().is_none());
        assert_eq!(interrupted(None), "interrupted");
    }

    #[test]
    fn what_is_waited_for_is_known_to_who_interrupts_and_ends_at_once() {
        let _alone = ONE.lock().unwrap();
        let hour = Duration::from_secs(3600);
        let waiting = Waiting::new(
            Output::for_people(),
            "simulating x".to_owned(),
            hour,
            Meter::default(),
        );
        assert_eq!(interrupted(under_way()), "interrupted while simulating x");
        drop(waiting);
        assert!(under_way().is_none());
    }

    #[test]
    fn a_line_comes_every_five_seconds_with_the_time_left() {
        let mut lines = Lines::default();
        let mut at = |seconds, done| {
            let count = Count {
                done,
                all: 10,
                what: "runs",
            };
            lines.after_step(Duration::from_secs(seconds), count)
        };
        assert_eq!(at(4, 1), None);
        let line = |text: &str| Some(text.to_owned());
        assert_eq!(at(6, 3), line("3 of 10 runs, about 14 s left"));
        assert_eq!(at(10, 4), None);
        assert_eq!(at(11, 5), line("5 of 10 runs, about 11 s left"));
        assert_eq!(at(30, 10), line("10 of 10 runs, about 0 s left"));
        let seconds = Duration::from_secs;
        assert_eq!(
            so_far("simulating x", seconds(10), seconds(60), None),
            "simulating x: 10 s so far; a run may take 60 s"
        );
        let advance = |ended| {
            Some(Advance {
                ended,
                blocks: 40,
                spent: seconds(8),
            })
        };
        assert_eq!(
            so_far("simulating x", seconds(10), seconds(60), advance(0)),
            "simulating x: 0 of 40 blocks, 10 s so far; a run may take 60 s"
        );
        assert_eq!(
            so_far("simulating x", seconds(10), seconds(60), advance(10)),
            "simulating x: 10 of 40 blocks, 10 s so far; about 24 s left"
        );
    }

    #[test]
    fn a_bar_tells_no_time_before_its_first_step() {
        assert_eq!(left(0, Duration::ZERO), "");
        assert_eq!(left(2, Duration::from_secs(25)), ", 25 s left");
    }

    #[test]
    fn machines_are_told_nothing() {
        let out = Output {
            json: true,
            command: "run",
        };
        assert!(Shown::new(out) == Shown::Nowhere);
    }
}
