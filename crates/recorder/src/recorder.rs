//! The state: which launch is asked for, and what was seen.

use crate::capture;
use crate::image::Loaded;
use crate::kernel::Kernel;
use crate::launch::Wish;
use crate::report::Report;
use heist_record::Map;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// What `heist record` asks for, in the environment.
pub(crate) struct Settings {
    /// The record.
    pub(crate) file: PathBuf,
    /// The kernel; any, where none is named.
    kernel: Option<String>,
    /// Which of its launches, from 1; 0 for none.
    launch: u64,
    /// The most bytes of memory that are kept.
    pub(crate) limit: u64,
    /// The kernel's PTX, where the program has none.
    pub(crate) ptx: Option<PathBuf>,
}

pub(crate) struct Recorder {
    pub(crate) settings: Settings,
    pub(crate) report: Report,
    /// Images by the handle of their module or library.
    pub(crate) images: HashMap<usize, Loaded>,
    /// Tensor maps by their bytes.
    pub(crate) maps: HashMap<[u8; 128], Map>,
    /// Launches until now, and those of the kernel that is asked for.
    pub(crate) launches: u64,
    matching: u64,
    counts: HashMap<String, u64>,
    /// Kernels that can't be recorded, where any other will do.
    passed_over: HashSet<String>,
    graphs: u64,
}

fn shared() -> Option<&'static Mutex<Recorder>> {
    static SHARED: OnceLock<Option<Mutex<Recorder>>> = OnceLock::new();
    SHARED
        .get_or_init(|| Recorder::new().map(Mutex::new))
        .as_ref()
}

/// The state, for one call; nothing where nobody asks for a record.
pub(crate) fn recorder() -> Option<MutexGuard<'static, Recorder>> {
    shared().map(|recorder| match recorder.lock() {
        Ok(recorder) => recorder,
        Err(poisoned) => poisoned.into_inner(),
    })
}

/// Makes a launch, and records it if it is the one that is asked for.
pub(crate) fn around(wish: &Wish, launch: impl FnOnce() -> c_int) -> c_int {
    let Some(mut recorder) = recorder() else {
        return launch();
    };
    let kernel = Kernel::of(wish.function, &recorder.images);
    match recorder.is_wanted(wish, &kernel) {
        true => capture::record(&mut recorder, wish, &kernel, launch),
        false => {
            drop(recorder);
            launch()
        }
    }
}

/// A graph was launched: what is in it is not seen.
pub(crate) fn saw_graph() {
    if let Some(mut recorder) = recorder() {
        recorder.graphs += 1;
        if recorder.graphs == 1 {
            recorder.report.remark(
                "kernels in CUDA graphs are not seen: launch the one that you want by itself",
            );
        }
    }
}

impl Recorder {
    fn new() -> Option<Recorder> {
        let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let text = |name: &str| std::env::var(name).ok();
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        let report = Report::new(&path("HEIST_RECORD_REPORT")?);
        // SAFETY: a function without arguments, which stays loaded as long as the process.
        unsafe { libc::atexit(at_exit) };
        Some(Recorder {
            settings: Settings {
                file: path("HEIST_RECORD_FILE")?,
                kernel: text("HEIST_RECORD_KERNEL"),
                launch: number("HEIST_RECORD_LAUNCH").unwrap_or(1),
                limit: number("HEIST_RECORD_LIMIT").unwrap_or(1 << 30),
                ptx: path("HEIST_RECORD_PTX"),
            },
            report,
            images: HashMap::new(),
            maps: HashMap::new(),
            launches: 0,
            matching: 0,
            counts: HashMap::new(),
            passed_over: HashSet::new(),
            graphs: 0,
        })
    }

    /// Asks for another launch, counted from now on, and tells of it in another folder.
    pub(crate) fn ask_again(&mut self, report: &Path, file: PathBuf, asked: (Option<String>, u64)) {
        self.report = Report::new(report);
        self.settings.file = file;
        (self.settings.kernel, self.settings.launch) = asked;
        self.matching = 0;
        self.counts.clear();
        self.passed_over.clear();
    }

    /// The kernel of the launch that was asked for can't be recorded. Where no kernel was named, the
    /// next launch of another one is meant: a program on PyTorch launches PyTorch's own kernels
    /// before its first.
    pub(crate) fn pass_over(&mut self, name: &str) {
        if self.settings.kernel.is_none() {
            self.passed_over.insert(name.to_owned());
            self.matching -= 1;
        }
    }

    /// Counts a launch; whether it is the one that is asked for.
    fn is_wanted(&mut self, wish: &Wish, kernel: &Kernel) -> bool {
        self.launches += 1;
        let name = kernel.name.as_str();
        match self.counts.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                self.counts.insert(name.to_owned(), 1);
                // At once: the program may end in a way that leaves no time.
                let shape = format!("<<<({}), ({})>>>", wish.launch.grid, wish.launch.block);
                self.report.line(&json!({ "kernel": name, "shape": shape }));
            }
        }
        if self.passed_over.contains(name) {
            return false;
        }
        let asked = self.settings.kernel.as_deref();
        if asked.is_none_or(|asked| is_called(name, asked)) {
            self.matching += 1;
            return self.matching == self.settings.launch;
        }
        false
    }
}

extern "C" fn at_exit() {
    if let Some(mut recorder) = recorder() {
        let counts = json!({ "counts": recorder.counts });
        recorder.report.line(&counts);
    }
}

/// Whether a kernel has a name: its whole symbol, or the word that C++ has in it.
fn is_called(symbol: &str, name: &str) -> bool {
    if symbol == name {
        return true;
    }
    let word = format!("{}{name}", name.len());
    let digit_before = |at: usize| symbol[..at].ends_with(|c: char| c.is_ascii_digit());
    symbol.starts_with("_Z") && { symbol.match_indices(&word) }.any(|(at, _)| !digit_before(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_the_word_of_the_source() {
        assert!(is_called("_Z3addPKfS0_Pfi", "add"));
        assert!(is_called("_ZN2ns3addEPf", "add"));
        assert!(is_called("add", "add") && is_called("_Z3addPf", "_Z3addPf"));
        assert!(!is_called("_Z7add_onePf", "add"));
        assert!(!is_called("_Z13add_somethingPf", "add"));
        assert!(!is_called("add_one", "add"));
    }
}
