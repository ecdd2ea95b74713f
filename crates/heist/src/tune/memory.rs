//! Answers that are remembered, and when one is taken.
//!
//! They lie in one SQLite file: `$HEIST_TUNED`, or `heist/tuned.sqlite` in the cache folder of
//! the user. An answer is for one kernel, one problem, one kind of GPU, one driver and one version of
//! the kernels; under another driver or version it is not taken, and the problem is to be tuned again. It
//! names tiles and a schedule and nothing else, so it can make a kernel slower and never wrong.

use heist_kernels::catalogue::{Entry, Settings as Told};
use heist_run::Device;
use heist_tune::{Answer, Key, Row, Store, StoreError};
use std::path::PathBuf;

/// Names the file.
pub const VARIABLE: &str = "HEIST_TUNED";

/// Where answers are kept. `None` where the system has no place for it; an empty `HEIST_TUNED` is
/// the wish to remember nothing.
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
    Some(cache.join("heist/tuned.sqlite"))
}

/// What an answer for this problem on this device is filed under.
pub fn key(entry: &dyn Entry, told: &Told, device: &Device) -> Key {
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
        kernel: entry.name().to_owned(),
        problem: entry.problem_words(told),
        device: name,
        driver,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The answer for a problem on a device, where there is one.
///
/// # Errors
/// When the file is broken, or not one of answers: it is not obeyed then.
pub fn look_up(
    entry: &dyn Entry,
    told: &Told,
    device: &Device,
) -> Result<Option<Answer>, StoreError> {
    let Some(path) = place() else {
        return Ok(None);
    };
    match Store::existing(&path)? {
        Some(store) => store.find(&key(entry, told, device)),
        None => Ok(None),
    }
}

/// Keeps an answer. The file, unless nothing is to be remembered.
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
