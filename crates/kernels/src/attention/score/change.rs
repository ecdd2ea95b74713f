//! A change of scores: what it sees, the tables that it reads, and the same in f64.

use super::pairs::PairMask;
use super::params::ScoreArgs;
use super::soft_cap::SoftCap;
use heist_builder::{On, Val};
use heist_launch::ElementType;
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
    /// How many more keys than queries its sequence has; negative where they are fewer.
    pub shift: Val<'k, i32>,
    /// The number of its sequence's first key among the keys of all sequences.
    pub first_key: Val<'k, u32>,
    /// Tables in device memory.
    pub tables: ScoreArgs<On<'k>>,
}

impl<'k> ScoreRow<'k> {
    /// Its number in its sequence, or that of the last query where it lies past the end.
    pub fn number(&self) -> Val<'k, u32> {
        let queries = (self.keys.cast::<i32>() - self.shift).cast::<u32>();
        let own = (self.position - self.shift).cast::<u32>();
        own.min(queries.max(1) - 1)
    }

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
    pub(super) first: Val<'k, i32>,
    pub(super) float: Val<'k, f32>,
    pub(super) offset: u32,
    pub(super) how: Columns,
}

/// What is known of the keys of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::attention) enum Columns {
    /// Some may lie past the last key of their sequence.
    Any,
    /// Every one is there.
    There,
    /// Every one is there; and the numbers of a mask of pairs for an even key and the next one are one aligned word.
    Words,
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
    /// How many queries the sequence has.
    pub queries: i64,
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
    /// Of [`Table::Blocks`].
    pub blocks: Vec<f64>,
    /// Of [`Table::Pairs`].
    pub pairs: Vec<f64>,
    /// Of [`Table::Custom`].
    pub custom: Vec<f64>,
    /// The factor of each key head's keys, where they have one.
    pub key_scales: Vec<f64>,
    /// The same of its values.
    pub value_scales: Vec<f64>,
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
    /// `block_mask`: a byte for each pair of blocks.
    Blocks,
    /// `pairs`: a number for each query and key.
    Pairs(PairMask),
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
            Table::Blocks => "block_mask",
            Table::Pairs(_) => "pairs",
            Table::Custom(_) => "custom",
        }
    }

    pub(super) fn element(self) -> ElementType {
        match self {
            Table::Slopes | Table::Sinks | Table::Custom(_) => ElementType::F32,
            Table::Prefixes | Table::Documents => ElementType::U32,
            Table::Blocks => ElementType::U8,
            Table::Pairs(mask) => mask.element.element(),
        }
    }
}

type OnDevice = dyn for<'k> Fn(&ScoreRow<'k>) -> Rule<'k> + Send + Sync;
type OnHost = dyn Fn(&HostScore<'_>) -> f64 + Send + Sync;

/// What is done to scores, where gradients can be had through it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::attention) enum Differentiable {
    /// Nothing.
    Plain,
    SoftCap(SoftCap),
    Alibi,
    Pairs(PairMask),
}

/// A change of scores: what it does inside of a kernel, and the same in f64.
#[derive(Clone)]
pub struct ScoreMod {
    name: String,
    pub(super) tables: Vec<Table>,
    pub(super) device: Arc<OnDevice>,
    host: Arc<OnHost>,
    slope: Arc<OnHost>,
    pub(super) differentiable: Option<Differentiable>,
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
            slope: Arc::new(|_| 1.0),
            differentiable: None,
        }
    }

    /// The same with its derivative by the score, in f64; it is one unless given, as for a number that is added.
    #[must_use]
    pub fn slope(
        mut self,
        slope: impl Fn(&HostScore<'_>) -> f64 + Send + Sync + 'static,
    ) -> ScoreMod {
        self.slope = Arc::new(slope);
        self
    }

    /// The same as one through which gradients can be had.
    pub(super) fn differentiable(mut self, as_what: Differentiable) -> ScoreMod {
        self.differentiable = Some(as_what);
        self
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

    /// Its derivative by the score.
    pub fn slope_in_f64(&self, at: &HostScore<'_>) -> f64 {
        (self.slope)(at)
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
