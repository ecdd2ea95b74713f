//! What a model adds to attention: changes of scores between the product and the softmax,
//! keys that every query sees, scores of no key.
//!
//! A change of scores is a closure of the builder ([`ScoreMod`]): it is called once for each
//! query row, loads what it needs, and gives the closure that changes that row's scores, key
//! by key. Its instructions become part of the kernel. The shipped ones
//! ([`softcap`], [`alibi`], [`documents`]) are made that way, and a new one is as long:
//!
//! ```
//! use heist_kernels::attention::{Problem, ScoreMod};
//!
//! let half_of_far_keys = ScoreMod::new(
//!     "half-of-far-keys",
//!     |row| {
//!         let position = row.position;
//!         Box::new(move |score, key| (position - key.number()).gt(64).select(score * 0.5, score))
//!     },
//!     |at| if at.position - at.key > 64 { at.score * 0.5 } else { at.score },
//! );
//! let mut problem = Problem::new(1, 2, 100, 64);
//! problem.scoring.mods.push(half_of_far_keys);
//! assert!(problem.check().is_ok());
//! ```
//!
//! A problem without any gets the same kernel as if there were none of this.

mod params;
mod rules;
mod shipped;

pub use params::ScoreArgs;
pub(super) use params::{Modified, Parameters};
pub(super) use rules::{Rules, Scores, modify};
pub use shipped::{alibi, documents, softcap};

use super::problem::{Mask, Problem};
use crate::KernelError;
use crate::plan::{LaunchPlan, Purpose};
use heist_builder::{On, Val};
use heist_launch::{Buffer, ElementType};
use std::fmt;
use std::sync::Arc;

/// A query row, as a change of scores sees it inside of a kernel.
#[derive(Clone, Copy)]
pub struct ScoreRow<'k> {
    /// The number of its sequence.
    pub sequence: Val<'k, u32>,
    /// Its query head.
    pub head: Val<'k, u32>,
    /// Its position among the keys of its sequence: the last query has that of the last key.
    /// Negative where there are more queries than keys; rows past the end of a sequence are
    /// worked out too, and not stored.
    pub position: Val<'k, i32>,
    /// How many keys its sequence has.
    pub keys: Val<'k, u32>,
    /// The number of its sequence's first key among the keys of all sequences.
    pub first_key: Val<'k, u32>,
    /// Tables in device memory.
    pub tables: ScoreArgs<On<'k>>,
}

impl<'k> ScoreRow<'k> {
    /// The document of a key of its sequence, or of the key next to it that there is.
    pub fn document(&self, key: Val<'k, i32>) -> Val<'k, u32> {
        // A sequence without keys has no entry to look at.
        let first = self.keys.gt(0).select(self.first_key, 0);
        let last = self.keys.max(1).cast::<i32>() - 1;
        let at = first + key.max(0).min(last).cast::<u32>();
        self.tables.documents.at(at).load_readonly()
    }
}

/// A key whose score is changed.
pub struct Key<'k> {
    first: Val<'k, i32>,
    float: Val<'k, f32>,
    offset: u32,
}

impl<'k> Key<'k> {
    /// Its number in its sequence. It may lie past the last key: what such a key's score
    /// becomes does not matter, but nothing may be loaded for it.
    pub fn number(&self) -> Val<'k, i32> {
        self.first + self.offset as i32
    }

    /// The same in f32.
    pub fn float(&self) -> Val<'k, f32> {
        self.float + self.offset as f32
    }
}

/// What becomes of the scores of one row.
pub type Rule<'k> = Box<dyn Fn(Val<'k, f32>, &Key<'k>) -> Val<'k, f32> + 'k>;

/// A score in f64, for the reference.
#[derive(Clone, Copy, Debug)]
pub struct HostScore<'a> {
    /// The product of query and key, times the scale.
    pub score: f64,
    /// The number of the sequence.
    pub sequence: usize,
    /// The query head.
    pub head: usize,
    /// The query's position among the keys.
    pub position: i64,
    /// The key's number in its sequence.
    pub key: i64,
    /// How many keys the sequence has.
    pub keys: i64,
    /// The number of the sequence's first key among the keys of all sequences.
    pub first_key: usize,
    /// What is in the tables.
    pub tables: &'a Tables,
}

/// What is in the tables; empty where a problem has no such table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// Of [`Table::Slopes`].
    pub slopes: Vec<f64>,
    /// Of [`Table::Sinks`].
    pub sinks: Vec<f64>,
    /// Of [`Table::Prefixes`].
    pub prefixes: Vec<f64>,
    /// Of [`Table::Documents`].
    pub documents: Vec<f64>,
    /// Of [`Table::Custom`].
    pub custom: Vec<f64>,
}

/// A buffer that changes of scores read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// `slopes`: an f32 for each query head.
    Slopes,
    /// `sinks`: an f32 for each query head.
    Sinks,
    /// `prefixes`: a u32 for each sequence.
    Prefixes,
    /// `documents`: a u32 for each key of each sequence.
    Documents,
    /// `custom`: so many f32, for a change of one's own.
    Custom(usize),
}

impl Table {
    /// The name of its buffer.
    pub fn name(self) -> &'static str {
        match self {
            Table::Slopes => "slopes",
            Table::Sinks => "sinks",
            Table::Prefixes => "prefixes",
            Table::Documents => "documents",
            Table::Custom(_) => "custom",
        }
    }

    fn element(self) -> ElementType {
        match self {
            Table::Slopes | Table::Sinks | Table::Custom(_) => ElementType::F32,
            Table::Prefixes | Table::Documents => ElementType::U32,
        }
    }

    fn len(self, problem: &Problem) -> usize {
        match self {
            Table::Slopes | Table::Sinks => problem.heads as usize,
            Table::Prefixes => problem.sequences().len(),
            Table::Documents => problem.rows().1,
            Table::Custom(len) => len,
        }
    }
}

type OnDevice = dyn for<'k> Fn(&ScoreRow<'k>) -> Rule<'k> + Send + Sync;
type OnHost = dyn Fn(&HostScore<'_>) -> f64 + Send + Sync;

/// A change of scores: what it does inside of a kernel, and the same in f64.
#[derive(Clone)]
pub struct ScoreMod {
    name: String,
    tables: Vec<Table>,
    device: Arc<OnDevice>,
    host: Arc<OnHost>,
}

impl ScoreMod {
    /// One of your own. `name` has its numbers too: two of the same name are taken to do the
    /// same. `device` is called once for each query row of a thread, `host` for each score.
    /// A score of minus infinity hides its key.
    pub fn new(
        name: impl Into<String>,
        device: impl for<'k> Fn(&ScoreRow<'k>) -> Rule<'k> + Send + Sync + 'static,
        host: impl Fn(&HostScore<'_>) -> f64 + Send + Sync + 'static,
    ) -> ScoreMod {
        ScoreMod {
            name: name.into(),
            tables: Vec::new(),
            device: Arc::new(device),
            host: Arc::new(host),
        }
    }

    /// The same with a table that it reads.
    #[must_use]
    pub fn table(mut self, table: Table) -> ScoreMod {
        self.tables.push(table);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What becomes of a score.
    pub fn in_f64(&self, at: &HostScore<'_>) -> f64 {
        (self.host)(at)
    }
}

impl PartialEq for ScoreMod {
    fn eq(&self, other: &ScoreMod) -> bool {
        self.name == other.name && self.tables == other.tables
    }
}

impl fmt::Debug for ScoreMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// What a model adds to attention.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scoring {
    /// Changes of scores, one after the other. Masks come after them.
    pub mods: Vec<ScoreMod>,
    /// Every query head has a score of its own that takes part in the softmax and has no
    /// value (attention sinks); log-sum-exps have it in them.
    pub sinks: bool,
    /// The first keys of each sequence are seen by all of its queries, whatever the mask:
    /// with a causal mask a prefix, with a window the tokens that a sliding window keeps. How
    /// many is read on the device; this is the most of a sequence.
    pub prefix: Option<u32>,
}

impl Scoring {
    /// Whether nothing is added.
    pub fn is_plain(&self) -> bool {
        self.mods.is_empty() && !self.sinks && self.prefix.is_none()
    }

    /// The tables that are read, each once.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let own = self.sinks.then_some(Table::Sinks);
        let prefix = self.prefix.map(|_| Table::Prefixes);
        let mods = self.mods.iter().flat_map(|one| one.tables.iter().copied());
        for table in own.into_iter().chain(prefix).chain(mods) {
            if !tables.contains(&table) {
                tables.push(table);
            }
        }
        tables
    }

    /// Fails where it makes no sense, with the reason.
    pub(super) fn check(&self, problem: &Problem) -> Result<(), KernelError> {
        let fail = |why: String| Err(KernelError::unfit(why));
        if self.prefix.is_some() && problem.mask == Mask::Full {
            return fail("a prefix that every query sees: without a mask all keys are seen; say mask=causal or mask=window(LEFT,RIGHT)".into());
        }
        let tables = self.tables();
        let custom = |table: &&Table| matches!(table, Table::Custom(_));
        if tables.iter().filter(custom).count() > 1 {
            return fail("two tables of their own: changes of scores can have one together".into());
        }
        if tables.contains(&Table::Documents) && problem.page_size.is_some() {
            return fail("documents with keys in pages: the documents of keys that lie whole can be told; leave page out".into());
        }
        if let Some(one) = self.mods.iter().find(|one| one.name.is_empty()) {
            return fail(format!(
                "a change of scores without a name: {:?}",
                one.tables
            ));
        }
        Ok(())
    }

    /// Adds the tables to a plan.
    pub(super) fn buffers(&self, plan: LaunchPlan, problem: &Problem) -> LaunchPlan {
        self.tables().into_iter().fold(plan, |plan, table| {
            let (element, len) = (table.element(), table.len(problem));
            plan.buffer(table.name(), Purpose::Input, element, len)
        })
    }

    /// What tables have in them to try kernels with.
    pub(super) fn contents(&self, problem: &Problem) -> Vec<(&'static str, Buffer)> {
        let one = |table: Table| {
            let len = table.len(problem);
            let data = match table {
                Table::Slopes => Buffer::from_slice(&shipped::slopes(problem.heads)),
                Table::Sinks => {
                    let own = |head: usize| (head % 7) as f32 * 0.5 - 1.0;
                    Buffer::from_slice(&(0..len).map(own).collect::<Vec<_>>())
                }
                Table::Prefixes => Buffer::from_slice(&vec![self.prefix.unwrap_or_default(); len]),
                Table::Documents => Buffer::from_slice(&shipped::cut(problem)),
                Table::Custom(_) => Buffer::zeros(table.element(), len),
            };
            (table.name(), data)
        };
        self.tables().into_iter().map(one).collect()
    }
}

impl fmt::Display for Scoring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(most) = self.prefix {
            write!(f, " prefix={most}")?;
        }
        for one in &self.mods {
            write!(f, " {}", one.name)?;
        }
        f.write_str(if self.sinks { " sinks" } else { "" })
    }
}
