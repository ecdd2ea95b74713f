//! A kernel family in the catalogue: its parameters, its variants, and one of them prepared with
//! random data.

use crate::error::KernelError;
use crate::family::Target;
use crate::job::Job;
use crate::reference::Difference;
use heist_sched::Schedule;
use heist_tune::{Candidate, Proposal};
use std::collections::BTreeMap;
use std::str::FromStr;

/// A setting of a kernel: a number, a word or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
}

/// A parameter, its default, and a line about it.
pub(crate) const fn parameter(
    name: &'static str,
    default: &'static str,
    about: &'static str,
) -> Parameter {
    Parameter {
        name,
        default,
        about,
    }
}

/// The largest number of elements in a buffer with random data: the reference holds the same
/// numbers in f64 beside it, and there are several buffers. A part of the free memory, where the
/// system reports it.
pub fn most_elements() -> u64 {
    const BYTES_AN_ELEMENT: u64 = 16;
    const UNLESS_KNOWN: u64 = 8 << 30;
    let free = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text
            .lines()
            .find(|line| line.starts_with("MemAvailable:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes << 10)
    };
    free().unwrap_or(UNLESS_KNOWN) / BYTES_AN_ELEMENT
}

/// Refuses a problem whose data the host can't make and check.
pub(crate) fn holds(what: &str, elements: u64) -> Result<(), KernelError> {
    let most = most_elements();
    if elements <= most {
        return Ok(());
    }
    Err(KernelError::unfit(format!(
        "{what} of {elements} elements: with the memory that is free, {most} can be made and checked on the host; \
         ask for a smaller problem"
    )))
}

/// A list in words as its items: between commas, `512*8` for eight alike.
pub(crate) fn items(text: &str) -> Result<Vec<&str>, KernelError> {
    const MOST: usize = 1 << 20;
    let mut items = Vec::new();
    for run in text.split(',') {
        let (item, count) = match run.split_once('*') {
            None => (run, Some(1)),
            Some((item, count)) => (item, count.trim().parse().ok()),
        };
        let Some(count) = count.filter(|count| *count <= MOST - items.len()) else {
            return Err(KernelError::unfit(format!(
                "`{run}` in a list: eight alike are written 512*8, and there are at most {MOST}"
            )));
        };
        items.extend(std::iter::repeat_n(item, count));
    }
    Ok(items)
}

/// A list in words, as [`items`] reads it.
pub(crate) fn runs<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for item in items {
        let item = item.to_string();
        match runs.last_mut() {
            Some((last, count)) if *last == item => *count += 1,
            _ => runs.push((item, 1)),
        }
    }
    let words = runs.into_iter().map(|(item, count)| match count {
        1 => item,
        _ => format!("{item}*{count}"),
    });
    words.collect::<Vec<_>>().join(",")
}

/// The settings of a kernel, by name.
///
/// ```
/// use heist_kernels::catalogue::Settings;
/// let settings = Settings::from_words(["m=64", "dtype=bf16"]).unwrap();
/// assert_eq!(settings.get("dtype"), Some("bf16"));
/// assert!(Settings::from_words(["m"]).is_err());
/// assert!(Settings::from_words(["m=64", "m=65"]).is_err());
/// assert!(Settings::from_words(["lengths="]).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings(BTreeMap<String, String>);

impl Settings {
    /// From words of the form `name=value`.
    ///
    /// # Errors
    /// When a word has another form or no value, or repeats a name.
    pub fn from_words<W: AsRef<str>>(
        words: impl IntoIterator<Item = W>,
    ) -> Result<Settings, KernelError> {
        let mut settings = Settings::default();
        for word in words {
            let word = word.as_ref();
            let Some((name, value)) = word.split_once('=') else {
                return Err(KernelError::unfit(format!(
                    "`{word}` is not of the form name=value"
                )));
            };
            if value.is_empty() {
                return Err(KernelError::unfit(format!(
                    "`{word}` has no value: leave the word out for the default"
                )));
            }
            if let Some(before) = settings.get(name) {
                return Err(KernelError::unfit(format!(
                    "{name} is said twice: `{before}` and `{value}`"
                )));
            }
            settings.set(name, value);
        }
        Ok(settings)
    }

    /// Sets one.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// The given value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The given value, or the parameter's default.
    pub fn word<'s>(&'s self, known: &[Parameter], name: &str) -> &'s str {
        let default = known.iter().find(|p| p.name == name).map(|p| p.default);
        self.get(name).or(default).unwrap_or_default()
    }

    /// The same, read as a `T`.
    ///
    /// # Errors
    /// When there is no such parameter, or the text is no `T`.
    pub fn read<T: FromStr>(&self, known: &[Parameter], name: &str) -> Result<T, KernelError> {
        let text = self.word(known, name);
        text.parse().map_err(|_| {
            let what = match std::any::type_name::<T>() {
                "u32" => "a whole number up to 4294967295",
                "u64" => "a whole number up to 18446744073709551615",
                "f32" | "f64" => "a number",
                "bool" => "true or false",
                other => other,
            };
            KernelError::unfit(format!("{name}: `{text}` is not {what}"))
        })
    }

    /// Fails where both `name` and one of the settings that it replaces are given.
    ///
    /// # Errors
    /// Both.
    pub fn instead(&self, name: &str, of: &[&str]) -> Result<(), KernelError> {
        let other = of.iter().find(|other| self.get(other).is_some());
        match (self.get(name), other) {
            (Some(_), Some(other)) => Err(KernelError::unfit(format!(
                "`{name}` is said instead of `{other}`: leave one of them out"
            ))),
            _ => Ok(()),
        }
    }

    /// The problem in words: every parameter that has a value, except those that choose a kernel or the
    /// data and those that others stand for.
    pub(crate) fn problem(&self, known: &[Parameter], others: &[&str]) -> String {
        const CHOICES: [&str; 5] = ["variant", "config", "seed", "splits", "together"];
        let problem = known
            .iter()
            .filter(|one| !CHOICES.contains(&one.name) && !others.contains(&one.name))
            .map(|one| (one.name, self.word(known, one.name)))
            .filter(|(_, value)| !value.is_empty());
        let words = problem.map(|(name, value)| format!("{name}={value}"));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Fails on a name that is not among those known.
    ///
    /// # Errors
    /// The first unknown name, with the known ones.
    pub fn check(&self, kernel: &str, known: &[Parameter]) -> Result<(), KernelError> {
        for name in self.0.keys() {
            if !known.iter().any(|parameter| parameter.name == name) {
                let names: Vec<_> = known.iter().map(|p| p.name).collect();
                return Err(KernelError::unfit(format!(
                    "{kernel} has no parameter `{name}`; there are {}",
                    names.join(", ")
                )));
            }
        }
        Ok(())
    }
}

/// Compares the buffers of a job that has run with the reference.
pub type Verify = Box<dyn Fn(&Job) -> Result<Difference, KernelError> + Send + Sync>;

/// A kernel with random data, ready to run, and how to tell whether it was right.
pub struct Prepared {
    /// The launches and their buffers.
    pub job: Job,
    /// The check; it may take long.
    pub verify: Verify,
    /// The largest relative norm of the difference that is right.
    pub bound: f64,
}

/// A kernel family that can be asked for by name.
pub trait Entry: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What it computes, in a line.
    fn about(&self) -> &'static str;
    /// Its settings.
    fn parameters(&self) -> &'static [Parameter];
    /// Its variants, with a line about each.
    fn variants(&self) -> Vec<(&'static str, &'static str)>;
    /// Its default schedule; `None` where that is not known beforehand.
    ///
    /// # Errors
    /// Why there is no kernel for these settings on this device.
    fn schedule(
        &self,
        settings: &Settings,
        target: Target,
    ) -> Result<Option<Schedule>, KernelError>;
    /// Its launches alone, without any data.
    ///
    /// # Errors
    /// Why there is none for these settings on this device.
    fn launches(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Job, KernelError>;
    /// Makes one with random data.
    ///
    /// # Errors
    /// Why there is none for these settings on this device.
    fn prepare(
        &self,
        settings: &Settings,
        schedule: Option<&Schedule>,
        target: Target,
    ) -> Result<Prepared, KernelError>;
    /// The search space of a problem on a device: each candidate is judged by arithmetic alone.
    /// Candidates that do not fit are included, with the reason.
    ///
    /// # Errors
    /// When the settings describe no problem.
    fn space(&self, settings: &Settings, target: Target) -> Result<Vec<Proposal>, KernelError>;
    /// The same problem with random data, solved by a candidate of the space. A word `schedule`
    /// in it is the schedule; without words it is what [`prepare`](Entry::prepare) makes.
    ///
    /// # Errors
    /// Why there is no such kernel.
    fn tuned(
        &self,
        settings: &Settings,
        candidate: &Candidate,
        target: Target,
    ) -> Result<Prepared, KernelError>;
    /// The problem in words. An answer of the tuner is filed under it.
    fn problem_words(&self, settings: &Settings) -> String;
}
