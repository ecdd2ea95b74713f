//! Candidates as words, the axes of a search space, and restrictions of a sweep.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One way to solve a problem: a word for each choice, such as `rows=128 stages=4`. Its text is
/// its identity: two candidates with the same words are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Candidate(BTreeMap<String, String>);

impl Candidate {
    /// From names and values.
    pub fn new<N: Into<String>, V: Into<String>>(words: impl IntoIterator<Item = (N, V)>) -> Self {
        let words = words.into_iter();
        Candidate(
            words
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// The same with one more choice, or another value of it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    /// The value of a choice.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Every choice, by name.
    pub fn words(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.words().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        if self.0.is_empty() {
            f.write_str("the default")?;
        }
        Ok(())
    }
}

/// A text that names no candidate.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is no candidate: write its choices as `rows=128 cols=256 schedule=ticket late`, as `heist tune` does"
)]
pub struct CandidateError(String);

impl FromStr for Candidate {
    type Err = CandidateError;

    /// Reads what [`Display`](fmt::Display) writes. A word without `=` belongs to the value before it.
    fn from_str(text: &str) -> Result<Candidate, CandidateError> {
        let wrong = || CandidateError(text.to_owned());
        let mut words: Vec<(String, String)> = Vec::new();
        for word in text.split_whitespace() {
            match (word.split_once('='), words.last_mut()) {
                (Some((name, value)), _) if !name.is_empty() => {
                    words.push((name.to_owned(), value.to_owned()));
                }
                (None, Some((_, value))) => {
                    value.push(' ');
                    value.push_str(word);
                }
                _ => return Err(wrong()),
            }
        }
        let candidate = Candidate::new(words.iter().cloned());
        match candidate.0.len() == words.len() {
            true => Ok(candidate),
            false => Err(wrong()),
        }
    }
}

/// A candidate, judged by arithmetic before anything is built.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// What.
    pub candidate: Candidate,
    /// How long it should take, in microseconds, where the family has a model; or why it can't be
    /// built, with the numbers.
    pub judged: Result<Option<f64>, String>,
}

/// One choice and the values that are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name.
    pub name: &'static str,
    /// What it can be.
    pub values: Vec<String>,
}

impl Axis {
    /// An axis over some values.
    pub fn new<V: ToString>(name: &'static str, values: impl IntoIterator<Item = V>) -> Axis {
        let values = values.into_iter().map(|value| value.to_string()).collect();
        Axis { name, values }
    }

    /// Every combination of the values of some axes.
    pub fn product(axes: &[Axis]) -> Vec<Candidate> {
        let mut all = vec![Candidate::default()];
        for axis in axes {
            let extended = all.iter().flat_map(|before| {
                let values = axis.values.iter();
                values.map(|value| before.clone().with(axis.name, value))
            });
            all = extended.collect();
        }
        all
    }
}

/// A restriction of a sweep: `rows=64,128`, `stages=3..6`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Narrowing {
    name: String,
    allowed: Allowed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Allowed {
    These(Vec<String>),
    From(u64, u64),
}

impl Narrowing {
    /// The choice that it is about.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a candidate keeps to it. One that does not have the choice does.
    pub fn admits(&self, candidate: &Candidate) -> bool {
        let Some(value) = candidate.get(&self.name) else {
            return true;
        };
        match &self.allowed {
            Allowed::These(values) => values.iter().any(|one| one == value),
            Allowed::From(low, high) => value
                .parse::<u64>()
                .is_ok_and(|number| (*low..=*high).contains(&number)),
        }
    }
}

impl FromStr for Narrowing {
    type Err = String;

    fn from_str(text: &str) -> Result<Narrowing, String> {
        let wrong =
            || format!("`{text}` is no part of a space: write one like rows=64,128 or stages=3..6");
        let (name, values) = text.split_once('=').ok_or_else(wrong)?;
        let range = values.split_once("..").map(|(low, high)| {
            let (low, high) = (low.parse(), high.trim_start_matches('=').parse());
            low.ok().zip(high.ok()).filter(|(low, high)| low <= high)
        });
        let allowed = match range {
            Some(Some((low, high))) => Allowed::From(low, high),
            Some(None) => return Err(wrong()),
            None => Allowed::These(values.split(',').map(str::to_owned).collect()),
        };
        if name.is_empty() || values.is_empty() {
            return Err(wrong());
        }
        Ok(Narrowing {
            name: name.to_owned(),
            allowed,
        })
    }
}

/// A part of a list of jobs, for one of several machines: `2/8` is the second of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    count: usize,
}

/// A text that names no part.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no shard: write 1/4 for the first of four")]
pub struct ShardError(String);

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { index: 0, count: 1 };

    /// Whether the job of that number is in this part.
    pub fn has(&self, job: usize) -> bool {
        job % self.count == self.index
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Shard, ShardError> {
        let numbers = text.split_once('/').and_then(|(index, count)| {
            Some((index.parse::<usize>().ok()?, count.parse::<usize>().ok()?))
        });
        match numbers {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard {
                index: index - 1,
                count,
            }),
            _ => Err(ShardError(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_has_every_combination_once() {
        let axes = [Axis::new("rows", [64, 128]), Axis::new("stages", [2, 3, 4])];
        let mut all: Vec<String> = Axis::product(&axes)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(all.len(), 6);
        all.dedup();
        assert_eq!(all.len(), 6);
        assert_eq!(all[0], "rows=64 stages=2");
    }

    #[test]
    fn a_candidate_is_read_as_it_is_written() {
        let text = "cols=256 rows=128 schedule=ticket late max-steals(8) grouped(16)";
        let read: Candidate = text.parse().expect("a candidate");
        assert_eq!(
            read.get("schedule"),
            Some("ticket late max-steals(8) grouped(16)")
        );
        assert_eq!(read.to_string(), text);
        assert_eq!(
            "".parse::<Candidate>().expect("the default"),
            Candidate::default()
        );
        for wrong in ["late", "=3", "rows=1 rows=2"] {
            assert!(wrong.parse::<Candidate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_narrowing_admits_what_it_names() {
        let candidate = Candidate::new([("rows", "64"), ("order", "hilbert")]);
        let admits = |text: &str| {
            text.parse::<Narrowing>()
                .expect("a part")
                .admits(&candidate)
        };
        assert!(admits("rows=64,128") && !admits("rows=128"));
        assert!(admits("rows=32..64") && !admits("rows=65..128"));
        assert!(admits("stages=4"), "a choice that is not made here");
        assert!(admits("order=hilbert") && !admits("order=1..3"));
        for wrong in ["rows", "=3", "rows=", "stages=6..3", "stages=a..b"] {
            assert!(wrong.parse::<Narrowing>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn shards_have_every_job_once() {
        for job in 0..100 {
            let parts = (1..=7).map(|index| format!("{index}/7").parse::<Shard>().expect("a part"));
            assert_eq!(parts.filter(|part| part.has(job)).count(), 1);
        }
        assert!("0/4".parse::<Shard>().is_err());
        assert!("5/4".parse::<Shard>().is_err());
        assert!("1".parse::<Shard>().is_err());
        assert!(Shard::WHOLE.has(17));
    }
}
