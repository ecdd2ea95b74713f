//! Masks of pairs: a number of the caller's for each query and each key.

use super::blocks::Extents;
use super::change::{Columns, Differentiable, HostScore, ScoreMod, ScoreRow, Table};
use super::params::ScoreArgs;
use heist_builder::{Accumulator, Bool, Global, On, Ptr, Val, WarpTile, bf16, f16};
use heist_launch::{Buffer, ElementType};
use std::cell::Cell;
use std::fmt;

/// A number on the device for each query and each key (`pairs`: sequence, query head, query, key): whether the key is
/// seen, or what is added to its score. Keys lie one after the other; how far apart the rest lies is the launch's to say, so
/// that one kernel does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PairMask {
    /// What it is made of.
    pub element: PairElement,
    /// Elements from one sequence to the next, from one query head to the next and from one query to the next; zero
    /// where all have the same.
    pub strides: [u32; 3],
}

/// What a mask of pairs is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairElement {
    /// A byte, zero for a key that is not seen.
    Seen,
    /// A number that is added to the score; minus infinity hides the key.
    F16,
    /// The same.
    Bf16,
    /// The same.
    F32,
}

/// The least that a finite number makes of a score. Next to any other score the key has no weight, and
/// keys that all have it are weighed alike, as sums at the end of f32's range are. Below it the rounding of a
/// log-sum-exp, of which weights are worked out again for gradients, would show in them; the least f16 is above it.
const LEAST: f32 = -1e5;

impl PairElement {
    /// All of them.
    pub const ALL: [PairElement; 4] = [
        PairElement::Seen,
        PairElement::F16,
        PairElement::Bf16,
        PairElement::F32,
    ];

    /// As a buffer has it.
    pub fn element(self) -> ElementType {
        match self {
            PairElement::Seen => ElementType::U8,
            PairElement::F16 => ElementType::F16,
            PairElement::Bf16 => ElementType::Bf16,
            PairElement::F32 => ElementType::F32,
        }
    }

    /// So many numbers further on.
    pub(in crate::attention) fn at<'k>(
        self,
        from: Ptr<'k, Global, u8>,
        count: Val<'k, u64>,
    ) -> Ptr<'k, Global, u8> {
        from.at(count * self.element().bytes() as u64)
    }

    /// The number of a key in a row of them.
    fn load<'k>(self, line: Ptr<'k, Global, u8>, key: Val<'k, u32>) -> Number<'k> {
        match self {
            PairElement::Seen => Number::Seen(line.at(key).load_readonly().cast::<u32>().ne(0)),
            PairElement::F16 => {
                Number::Added(line.cast::<f16>().at(key).load_readonly().cast::<f32>())
            }
            PairElement::Bf16 => {
                Number::Added(line.cast::<bf16>().at(key).load_readonly().cast::<f32>())
            }
            PairElement::F32 => Number::Added(line.cast::<f32>().at(key).load_readonly()),
        }
    }

    /// The numbers of the key so many behind the first, and of the next, which are one aligned word.
    fn load_both<'k>(self, first: Ptr<'k, Global, u8>, offset: u32) -> [Number<'k>; 2] {
        let at = first.at(offset * self.element().bytes() as u32);
        let halves = || {
            let word = at.cast::<u32>().load_readonly();
            [word & 0xFFFF, word >> 16].map(|half| half.cast::<u16>())
        };
        match self {
            PairElement::Seen => {
                let both = at.cast::<u16>().load_readonly().cast::<u32>();
                [both & 0xFF, both >> 8].map(|seen| Number::Seen(seen.ne(0)))
            }
            PairElement::F16 => {
                halves().map(|half| Number::Added(half.bitcast::<f16>().cast::<f32>()))
            }
            PairElement::Bf16 => {
                halves().map(|half| Number::Added(half.bitcast::<bf16>().cast::<f32>()))
            }
            PairElement::F32 => at.cast::<f32>().load_vec_readonly().map(Number::Added),
        }
    }

    /// What becomes of a score by its number.
    fn change<'k>(self, number: Number<'k>, score: Val<'k, f32>) -> Val<'k, f32> {
        let added = match number {
            Number::Seen(seen) => return seen.select(score, f32::NEG_INFINITY),
            Number::Added(added) => added,
        };
        let hidden = added.eq(f32::NEG_INFINITY);
        let sum = score + added;
        // Not `max`, which makes a number of a NaN.
        let least = hidden.select(f32::NEG_INFINITY, LEAST);
        sum.lt(least).select(least, sum)
    }
}

impl PairMask {
    /// The element of a query and a key.
    fn at(self, [sequence, head, row, key]: [usize; 4]) -> usize {
        let [by_sequence, by_head, by_row] = self.strides.map(|stride| stride as usize);
        sequence * by_sequence + head * by_head + row * by_row + key
    }

    /// How many elements there are, from the first to the last.
    pub fn elements(self, of: Extents) -> usize {
        let last = [of.sequences, of.heads, of.queries, of.keys].map(|count| count.checked_sub(1));
        match last {
            [Some(sequence), Some(head), Some(row), Some(key)] => {
                self.at([sequence, head, row, key]) + 1
            }
            _ => 0,
        }
    }

    /// Contents to try kernels with: rows of few keys, of all and of none.
    pub(super) fn example(self, of: Extents) -> Buffer {
        let width = match self.strides[2] {
            0 => of.keys,
            row => row as usize,
        };
        let number = |at: usize| {
            let (line, key) = (at / width.max(1), at % width.max(1));
            let seen = match line % 5 {
                0 => true,
                3 => false,
                _ => (at * 2_654_435_761) >> 7 & 3 == 0,
            };
            match self.element {
                PairElement::Seen => f32::from(u8::from(seen)),
                _ if seen => ((line + 3 * key) % 9) as f32 * 0.25 - 1.0,
                _ => f32::NEG_INFINITY,
            }
        };
        let numbers = (0..self.elements(of)).map(number);
        match self.element {
            PairElement::Seen => Buffer::from_slice(&numbers.map(|n| n as u8).collect::<Vec<_>>()),
            PairElement::F16 => Buffer::from_slice(&numbers.map(f16::from_f32).collect::<Vec<_>>()),
            PairElement::Bf16 => {
                Buffer::from_slice(&numbers.map(bf16::from_f32).collect::<Vec<_>>())
            }
            PairElement::F32 => Buffer::from_slice(&numbers.collect::<Vec<f32>>()),
        }
    }
}

impl fmt::Display for PairElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PairElement::Seen => "seen",
            PairElement::F16 => "f16",
            PairElement::Bf16 => "bf16",
            PairElement::F32 => "f32",
        })
    }
}

/// A mask of pairs (`pairs`): hides keys, or adds a number to each score.
pub fn pairs(mask: PairMask) -> ScoreMod {
    ScoreMod::new(
        format!("pairs={}", mask.element),
        move |row| {
            let (line, last) = (line(mask, row), row.keys.max(1) - 1);
            // The number of the key behind an even one, which came in the same word.
            let next = Cell::new(None);
            Box::new(move |score, key| {
                let element = mask.element;
                // Where every key is there, they lie at fixed places behind one address.
                let first = || element.at(line, key.first.cast::<u32>().cast());
                let number = match (key.how, next.take()) {
                    (Columns::Any, _) => element.load(line, key.number().cast::<u32>().min(last)),
                    (Columns::There, _) => {
                        let k = score.kernel();
                        element.load(first(), k.c(key.offset))
                    }
                    (Columns::Words, Some(number)) => number,
                    (Columns::Words, None) => {
                        let [number, other] = element.load_both(first(), key.offset);
                        next.set(Some(other));
                        number
                    }
                };
                element.change(number, score)
            })
        },
        move |at| in_f64(mask, at),
    )
    .table(Table::Pairs(mask))
    .differentiable(Differentiable::Pairs(mask))
}

/// The mask of a query head, seen from a tile of keys: products lie keys down and queries across.
#[derive(Clone, Copy)]
pub(in crate::attention) struct PairColumns<'k> {
    pub(in crate::attention) element: PairElement,
    /// The numbers of the first query.
    pub(in crate::attention) first: Ptr<'k, Global, u8>,
    /// How many from one query to the next.
    pub(in crate::attention) row: Val<'k, u32>,
    /// Queries of the sequence, and keys: there are some of both.
    pub(in crate::attention) queries: Val<'k, u32>,
    pub(in crate::attention) keys: Val<'k, u32>,
}

impl<'k> PairColumns<'k> {
    /// Makes changed scores of products of the keys from `key` on and the queries from `query` on. Of what is not there
    /// the score means nothing.
    pub(in crate::attention) fn change(
        &self,
        products: &WarpTile<'k>,
        scale: Val<'k, f32>,
        [key, query]: [Val<'k, u32>; 2],
    ) {
        let k = key.kernel();
        let key = key + Accumulator::row(&k);
        let keys = [0, 8].map(|down: u32| (key + down).min(self.keys - 1));
        let query = query + Accumulator::col(&k);
        let (_, cols) = products.shape();
        for n in 0..cols {
            let Some(block) = products.block(0, n) else {
                continue;
            };
            let lines = [0, 1].map(|across: u32| {
                let row = (query + (8 * n as u32 + across)).min(self.queries - 1);
                self.element.at(self.first, row.mul_wide(self.row))
            });
            let one = |product: Val<'k, f32>, line: usize, key: usize| {
                let number = self.element.load(lines[line], keys[key]);
                self.element.change(number, product * scale)
            };
            let [a, b, c, d] = block.get();
            block.set([one(a, 0, 0), one(b, 1, 0), one(c, 0, 1), one(d, 1, 1)]);
        }
    }
}

/// What a mask has for a query and a key, in registers.
#[derive(Clone, Copy)]
enum Number<'k> {
    /// Whether the key is seen.
    Seen(Bool<'k>),
    /// What is added to its score.
    Added(Val<'k, f32>),
}

/// Whether every row of a mask begins at a multiple of two of its numbers.
pub(super) fn in_words<'k>(mask: PairMask, tables: &ScoreArgs<On<'k>>) -> Bool<'k> {
    let strides = tables.pairs_sequence | tables.pairs_head | tables.pairs_row;
    let both = 2 * mask.element.element().bytes() as u64;
    let begins = tables.pairs.address() & (both - 1);
    (strides & 1).eq(0) & begins.eq(0u64)
}

/// The numbers of a row.
fn line<'k>(mask: PairMask, row: &ScoreRow<'k>) -> Ptr<'k, Global, u8> {
    let tables = &row.tables;
    let first = row.sequence.mul_wide(tables.pairs_sequence)
        + row.head.mul_wide(tables.pairs_head)
        + row.number().mul_wide(tables.pairs_row);
    mask.element.at(tables.pairs, first)
}

fn in_f64(mask: PairMask, at: &HostScore<'_>) -> f64 {
    let row = (at.position - at.keys + at.queries) as usize;
    let number = at.tables.pairs[mask.at([at.sequence, at.head, row, at.key as usize])];
    match mask.element {
        PairElement::Seen if number == 0.0 => f64::NEG_INFINITY,
        PairElement::Seen => at.score,
        _ => at.score + number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::Problem;

    #[test]
    fn a_mask_reaches_as_far_as_its_last_number() {
        let of = Extents {
            sequences: 3,
            heads: 2,
            queries: 5,
            keys: 7,
        };
        let elements = |strides| {
            let element = PairElement::F16;
            PairMask { element, strides }.elements(of)
        };
        assert_eq!(elements([70, 35, 7]), 210);
        assert_eq!(elements([0, 0, 7]), 35);
        assert_eq!(elements([7, 0, 0]), 21);
        assert_eq!(elements([0, 0, 10]), 47);
    }

    #[test]
    fn packed_sequences_and_two_masks_are_refused() {
        let mask = pairs(PairMask {
            element: PairElement::Seen,
            strides: [0, 0, 9],
        });
        let mut packed = Problem::ragged(vec![(4, 9)], 1, 16);
        packed.scoring.mods = vec![mask.clone()];
        let why = packed.check().unwrap_err().to_string();
        assert!(why.contains("packed sequences"), "{why}");
        let mut two = Problem::new(1, 1, 9, 16);
        two.scoring.mods = vec![mask.clone()];
        assert!(two.check().is_ok());
        let other = pairs(PairMask {
            element: PairElement::F32,
            strides: [0, 0, 9],
        });
        two.scoring.mods.push(other);
        let why = two.check().unwrap_err().to_string();
        assert!(why.contains("add them"), "{why}");
    }
}
