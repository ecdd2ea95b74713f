//! What a model adds to attention: changes of scores between the product and the softmax,
//! keys that every query sees, scores of no key.
//!
//! A change of scores is a closure of the builder ([`ScoreMod`]): it is called once for each
//! query row, loads what it needs, and gives the closure that changes that row's scores, key
//! by key. Its instructions become part of the kernel. The shipped ones
//! ([`softcap`], [`alibi`], [`documents`], [`pairs()`]) are made that way, and a new one is as long:
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

mod blocks;
mod change;
mod pairs;
mod params;
mod rules;
mod shipped;
mod soft_cap;

pub use blocks::{BlockMask, Extents};
pub(super) use change::Differentiable;
pub use change::{HostScore, Key, Rule, ScoreMod, ScoreRow, Table, Tables};
pub(super) use pairs::PairColumns;
pub use pairs::{PairElement, PairMask, pairs};
pub use params::ScoreArgs;
pub(super) use params::{Modified, Parameters};
pub(super) use rules::{Rules, Scores, modify, modify_row, modify_whole};
pub use shipped::{alibi, documents, softcap};
pub(super) use soft_cap::SoftCap;

use super::problem::{Lengths, Mask, Problem};
use crate::KernelError;
use crate::plan::{LaunchPlan, Purpose};
use heist_launch::Buffer;
use std::fmt;

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
    /// Whole blocks of keys that blocks of queries do not see.
    pub blocks: Option<BlockMask>,
}

impl Scoring {
    /// What a kernel is built from: nothing else of it is in the text.
    pub(super) fn key(&self) -> String {
        let mods = self.mods.iter().map(|one| {
            let tables = one.tables.iter().map(|table| match table {
                // Strides are parameters, and the name has the type.
                Table::Pairs(_) => "pairs".to_owned(),
                other => format!("{other:?}"),
            });
            format!("{} {:?}", one.name(), tables.collect::<Vec<_>>())
        });
        let mods: Vec<String> = mods.collect();
        let (sinks, prefix, blocks) = (self.sinks, self.prefix, self.blocks);
        format!("{mods:?} {sinks} {prefix:?} {blocks:?}")
    }

    /// Whether queries see the keys of their own document alone.
    pub(super) fn documents(&self) -> bool {
        let mut tables = self.mods.iter().flat_map(|one| &one.tables);
        tables.any(|table| *table == Table::Documents)
    }

    /// The mask of pairs, where there is one.
    pub(super) fn pairs(&self) -> Option<PairMask> {
        self.tables().into_iter().find_map(|table| match table {
            Table::Pairs(mask) => Some(mask),
            _ => None,
        })
    }

    /// What is done to scores, where gradients can be had through it.
    pub(super) fn differentiable(&self) -> Option<Differentiable> {
        if self.sinks || self.prefix.is_some() || self.blocks.is_some() {
            return None;
        }
        match self.mods.as_slice() {
            [] => Some(Differentiable::Plain),
            [one] => one.differentiable,
            _ => None,
        }
    }

    /// Whether nothing is added.
    pub fn is_plain(&self) -> bool {
        self.mods.is_empty() && !self.sinks && self.prefix.is_none() && self.blocks.is_none()
    }

    /// The tables that are read, each once.
    pub fn tables(&self) -> Vec<Table> {
        let mut tables: Vec<Table> = Vec::new();
        let own = self.sinks.then_some(Table::Sinks);
        let prefix = self.prefix.map(|_| Table::Prefixes);
        let mods = self.mods.iter().flat_map(|one| one.tables.iter().copied());
        let blocks = self.blocks.map(|_| Table::Blocks);
        for table in own.into_iter().chain(prefix).chain(mods).chain(blocks) {
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
        if let Some(blocks) = self.blocks {
            blocks.check()?;
        }
        let tables = self.tables();
        let custom = |table: &&Table| matches!(table, Table::Custom(_));
        if tables.iter().filter(custom).count() > 1 {
            return fail("two tables of their own: changes of scores can have one together".into());
        }
        if tables.contains(&Table::Documents) && problem.page_size.is_some() {
            return fail("documents with keys in pages: the documents of keys that lie whole can be told; leave page out".into());
        }
        let of_pairs = |table: &&Table| matches!(table, Table::Pairs(_));
        match tables.iter().filter(of_pairs).count() {
            0 => {}
            1 if matches!(problem.lengths, Lengths::Same { .. }) => {}
            1 => {
                return fail("a mask of pairs of packed sequences: it can be had where all are alike; hide keys by documents or by a mask of blocks".into());
            }
            _ => return fail("two masks of pairs: add them, and give one".into()),
        }
        if let Some(one) = self.mods.iter().find(|one| one.name().is_empty()) {
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
            let (element, len) = (table.element(), len(table, problem));
            plan.buffer(table.name(), Purpose::Input, element, len)
        })
    }

    /// What tables have in them to try kernels with.
    pub(super) fn contents(&self, problem: &Problem) -> Vec<(&'static str, Buffer)> {
        let one = |table: Table| {
            let len = len(table, problem);
            let data = match table {
                Table::Slopes => Buffer::from_slice(&shipped::slopes(problem.heads)),
                Table::Sinks => {
                    let own = |head: usize| (head % 7) as f32 * 0.5 - 1.0;
                    Buffer::from_slice(&(0..len).map(own).collect::<Vec<_>>())
                }
                Table::Prefixes => Buffer::from_slice(&vec![self.prefix.unwrap_or_default(); len]),
                Table::Documents => Buffer::from_slice(&shipped::cut(&problem.sequences())),
                Table::Blocks => {
                    let example = self.blocks.map(|blocks| blocks.example(problem.extents()));
                    Buffer::from_slice(&example.unwrap_or_default())
                }
                Table::Pairs(mask) => mask.example(problem.extents()),
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
            write!(f, " {}", one.name())?;
        }
        if let Some(blocks) = self.blocks {
            write!(f, " blocks={blocks}")?;
        }
        f.write_str(if self.sinks { " sinks" } else { "" })
    }
}

/// How many elements a table has.
fn len(table: Table, problem: &Problem) -> usize {
    match table {
        Table::Slopes | Table::Sinks => problem.heads as usize,
        Table::Prefixes => problem.sequences().len(),
        Table::Documents => problem.rows().1,
        Table::Blocks => {
            let blocks = problem.scoring.blocks;
            blocks.map_or(0, |blocks| blocks.bytes(problem.extents()))
        }
        Table::Pairs(mask) => mask.elements(problem.extents()),
        Table::Custom(len) => len,
    }
}
