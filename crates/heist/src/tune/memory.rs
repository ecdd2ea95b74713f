//! The store of tuned answers, and when one is used.
//!
//! They lie in one file: `$HEIST_TUNED`, or `heist/tuned.jsonl` in the cache folder of
//! the user. An answer is for one kernel, one problem, one kind of GPU, one driver and one version of
//! the kernels; under another driver or version it is not used, and the problem must be tuned
//! again. It names tiles and a schedule and nothing else, so it can make a kernel slower and never
//! wrong.
//!
//! ```
//! use heist::tune::memory::{Memory, key_of, remembered};
//! use heist::run::Device;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open("sim:h200".parse()?)?;
//! let key = key_of("gemm", "m=512 n=512 k=128".into(), &device);
//! let file = std::path::Path::new("no/such/file.jsonl");
//! assert_eq!(remembered(file, &key)?, Memory::Nothing); // the kernel is chosen by its model
//! # Ok(()) }
//! ```

use heist_kernels::catalogue::{Entry, Settings as Told};
use heist_run::Device;
use heist_tune::{Answer, Candidate, Key, Row, Store, StoreError};
use std::path::{Path, PathBuf};

/// Names the file.
pub const VARIABLE: &str = "HEIST_TUNED";

/// Where answers are kept. `None` where the system has no place for it; an empty `HEIST_TUNED`
/// turns the store off.
pub fn place() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("heist/tuned.jsonl"))
}

/// What an answer for this problem on this device is filed under.
pub fn key(entry: &dyn Entry, told: &Told, device: &Device) -> Key {
    key_of(entry.name(), entry.problem_words(told), device)
}

/// The same for a problem that is in words already.
pub fn key_of(kernel: &str, problem: String, device: &Device) -> Key {
    let (name, driver) = match device {
        // The model of a device is part of the version.
        Device::Sim(_) => (device.label(), "simulated".to_owned()),
        #[cfg(feature = "gpu")]
        Device::Gpu(gpu) => {
            let info = gpu.info();
            (info.name.clone(), info.driver.to_string())
        }
    };
    Key {
        kernel: kernel.to_owned(),
        problem,
        device: name,
        driver,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// What is remembered of a problem on a device.
#[derive(Clone, Debug, PartialEq)]
pub enum Memory {
    /// Nothing, or that the kernel that is taken without tuning is the fastest.
    Nothing,
    /// What is the fastest here.
    Answer(Answer),
    /// An answer of another driver or version, which is not taken.
    Stale(Answer),
}

impl Memory {
    /// The candidate that is to be taken.
    pub fn candidate(&self) -> Option<&Candidate> {
        match self {
            Memory::Answer(answer) => Some(&answer.candidate),
            Memory::Nothing | Memory::Stale(_) => None,
        }
    }

    /// Why an answer is not taken, and what to do, where there is one.
    pub fn refusal(&self) -> Option<String> {
        let Memory::Stale(Answer { key, .. }) = self else {
            return None;
        };
        Some(format!(
            "the tuner's answer for this problem is of driver {} and version {}, and is not taken; \
             `heist tune {} {}` finds one for this driver and version",
            key.driver, key.version, key.kernel, key.problem
        ))
    }
}

/// What is remembered for a problem on a device. A problem that names its kernel by itself
/// (`variant=`, `config=` and their like) asks for nothing.
///
/// # Errors
/// When the file is damaged, or is not a store of answers: it is not used then.
pub fn look_up(entry: &dyn Entry, told: &Told, device: &Device) -> Result<Memory, StoreError> {
    let chosen = ["variant", "config", "splits", "together"]
        .iter()
        .any(|name| told.get(name).is_some_and(|value| !value.is_empty()));
    if chosen {
        return Ok(Memory::Nothing);
    }
    match place() {
        Some(path) => remembered(&path, &key(entry, told, device)),
        None => Ok(Memory::Nothing),
    }
}

/// What a file of answers has under a key. One that is not there has nothing, and is not made.
///
/// # Errors
/// When the file is broken, or not one of answers.
pub fn remembered(path: &Path, key: &Key) -> Result<Memory, StoreError> {
    let Some(store) = Store::existing(path)? else {
        return Ok(Memory::Nothing);
    };
    Ok(match store.find(key)? {
        Some(answer) if answer.candidate == Candidate::default() => Memory::Nothing,
        Some(answer) => Memory::Answer(answer),
        None => {
            let mut others = store.all()?;
            others.retain(|Answer { key: one, .. }| {
                one.kernel == key.kernel && one.problem == key.problem && one.device == key.device
            });
            let newest = others.into_iter().max_by(|one, two| one.at.cmp(&two.at));
            newest.map_or(Memory::Nothing, Memory::Stale)
        }
    })
}

/// Keeps an answer. Returns the file, unless the store is off.
///
/// # Errors
/// When the file can't be written.
pub fn keep(
    key: Key,
    best: &Row,
    default: Option<&Row>,
    tried: usize,
) -> Result<Option<PathBuf>, StoreError> {
    let (Some(path), Some(median_ns)) = (place(), best.median_ns()) else {
        return Ok(None);
    };
    let store = Store::open(&path)?;
    store.keep(&Answer {
        key,
        candidate: best.candidate.clone(),
        median_ns,
        default_ns: default.and_then(Row::median_ns),
        tried: tried.try_into().unwrap_or(u32::MAX),
        at: String::new(),
    })?;
    Ok(Some(path))
}
