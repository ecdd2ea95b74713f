//! Changes of scores inside of a kernel.

use super::change::Columns;
use super::pairs::in_words;
use super::{Key, Rule, ScoreArgs, ScoreRow, Scoring, Table};
use crate::job::buffer;
use heist_builder::{Accumulator, Bool, On, Val, WarpTile, With};
use heist_launch::Arg;
use std::f32::consts::LOG2_E;

/// What a model adds, inside of a kernel.
#[derive(Clone, Copy)]
pub(in crate::attention) struct Scores<'a, 'k> {
    pub(in crate::attention) scoring: &'a Scoring,
    /// The tables, where anything is added.
    pub(in crate::attention) tables: Option<ScoreArgs<On<'k>>>,
}

/// What becomes of the scores of one row.
pub(in crate::attention) struct Rules<'k> {
    rules: Vec<Rule<'k>>,
    /// Whether a mask of pairs can be read two numbers at a time, where there is one.
    in_words: Option<Bool<'k>>,
}

impl<'k> Rules<'k> {
    fn apply(&self, score: Val<'k, f32>, key: &Key<'k>) -> Val<'k, f32> {
        self.rules
            .iter()
            .fold(score, |score, rule| rule(score, key))
    }
}

impl<'k> Scores<'_, 'k> {
    /// The factor that the softmax multiplies scores with, of the kernel's parameter: scores
    /// that are changed have been multiplied with it.
    pub(in crate::attention) fn factor(&self, scale: Val<'k, f32>) -> Val<'k, f32> {
        match self.scoring.mods.is_empty() {
            true => scale,
            false => scale.kernel().c(LOG2_E),
        }
    }

    /// What becomes of the scores of a row, where something does.
    pub(in crate::attention) fn rules(
        &self,
        row: impl FnOnce(ScoreArgs<On<'k>>) -> ScoreRow<'k>,
    ) -> Option<Rules<'k>> {
        let tables = self.tables.filter(|_| !self.scoring.mods.is_empty())?;
        let row = row(tables);
        let rules = self.scoring.mods.iter().map(|one| (one.device)(&row));
        Some(Rules {
            rules: rules.collect(),
            in_words: self.scoring.pairs().map(|mask| in_words(mask, &tables)),
        })
    }

    /// How many keys of a sequence all of its queries see, where it has a prefix.
    pub(in crate::attention) fn prefix(&self, sequence: Val<'k, u32>) -> Option<Val<'k, u32>> {
        let tables = self.tables.filter(|_| self.scoring.prefix.is_some())?;
        Some(tables.prefixes.at(sequence).load_readonly())
    }

    /// The score of no key, to base 2, where heads have one.
    pub(in crate::attention) fn sink(&self, head: Val<'k, u32>) -> Option<Val<'k, f32>> {
        let tables = self.tables.filter(|_| self.scoring.sinks)?;
        Some(tables.sinks.at(head).load_readonly() * LOG2_E)
    }
}

/// Changes the products of a tile of scores. `rules` has two rows for each 16 of the tile,
/// whose first column is key `first`. Some keys may lie past the last one.
pub(in crate::attention) fn modify<'k>(
    scores: &WarpTile<'k>,
    rules: &[[Rules<'k>; 2]],
    scale: Val<'k, f32>,
    first: Val<'k, u32>,
) {
    change(scores, rules, scale, first, Columns::Any);
}

/// The same where every key is there, and `first` is even.
pub(in crate::attention) fn modify_whole<'k>(
    scores: &WarpTile<'k>,
    rules: &[[Rules<'k>; 2]],
    scale: Val<'k, f32>,
    first: Val<'k, u32>,
) {
    match rules.first().and_then(|[rules, _]| rules.in_words) {
        None => change(scores, rules, scale, first, Columns::There),
        Some(in_words) => first.kernel().if_else(
            in_words,
            || change(scores, rules, scale, first, Columns::Words),
            || change(scores, rules, scale, first, Columns::There),
        ),
    }
}

fn change<'k>(
    scores: &WarpTile<'k>,
    rules: &[[Rules<'k>; 2]],
    scale: Val<'k, f32>,
    first: Val<'k, u32>,
    how: Columns,
) {
    let (_, cols) = scores.shape();
    let first = (first + Accumulator::col(&first.kernel())).cast::<i32>();
    let float = first.cast::<f32>();
    for (m, rows) in rules.iter().enumerate() {
        for n in 0..cols {
            let Some(block) = scores.block(m, n) else {
                continue;
            };
            let key = |next: u32| Key {
                first,
                float,
                offset: 8 * n as u32 + next,
                how,
            };
            let [a, b, c, d] = block.get();
            block.set([
                rows[0].apply(a * scale, &key(0)),
                rows[0].apply(b * scale, &key(1)),
                rows[1].apply(c * scale, &key(0)),
                rows[1].apply(d * scale, &key(1)),
            ]);
        }
    }
}

/// The same for the products of one row, whose first is that of key `first`.
pub(in crate::attention) fn modify_row<'k>(
    scores: &mut [Val<'k, f32>],
    rules: &Rules<'k>,
    scale: Val<'k, f32>,
    first: Val<'k, u32>,
) {
    let first = first.cast::<i32>();
    let float = first.cast::<f32>();
    for (at, score) in scores.iter_mut().enumerate() {
        let key = Key {
            first,
            float,
            offset: at as u32,
            how: Columns::Any,
        };
        *score = rules.apply(*score * scale, &key);
    }
}

impl Scoring {
    /// The tables as a launch has them. What there is no use for is `other`.
    pub(in crate::attention) fn args(&self, other: &str) -> ScoreArgs<With<Arg>> {
        let tables = self.tables();
        let one = |name: &str| {
            let used = tables.iter().any(|table: &Table| table.name() == name);
            buffer(if used { name } else { other })
        };
        let strides = self.pairs().map(|mask| mask.strides);
        let [pairs_sequence, pairs_head, pairs_row] = strides.unwrap_or_default();
        ScoreArgs {
            slopes: one("slopes"),
            sinks: one("sinks"),
            prefixes: one("prefixes"),
            documents: one("documents"),
            custom: one("custom"),
            pairs: one("pairs"),
            pairs_sequence,
            pairs_head,
            pairs_row,
        }
    }

    /// The factor of the scores that a kernel is given.
    pub(in crate::attention) fn scale(&self, scale: f32) -> f32 {
        match self.mods.is_empty() {
            true => scale * LOG2_E,
            false => scale,
        }
    }
}
