//! A program as words of 64 bits.
//!
//! | word | holds |
//! |---|---|
//! | 0 | where the four sections end, 8 bits each; shared words, 8 bits; the version, 8 bits; zeros |
//! | 1 | a checksum of all the others |
//! | 2 ... | a step each |
//!
//! | bits of a step | hold |
//! |---|---|
//! | 0-7 | the operation |
//! | 8-11 | the register of its value |
//! | 12-15, 16-19, 20-23 | registers of the values that it takes |
//! | 24-25 | the type of its value |
//! | 26-31 | zeros |
//! | 32-63 | the number |

use super::step::{Op, Program, Section, Step};
use super::{MOST_STEPS, REGISTERS, STATES};
use crate::control::POLICY_WORDS;
use std::fmt;

/// The version of this encoding.
pub(crate) const VERSION: u64 = 1;
/// Words before the first step.
pub(crate) const HEAD: usize = 2;
/// What the checksum multiplies with; odd, with its bits all over the word.
pub(crate) const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// A policy as words, from [`Policy::words`](crate::Policy::words) or from outside. They are
/// [verified](PolicyWords::verify) before they are loaded.
#[derive(Clone, PartialEq, Eq)]
pub struct PolicyWords(pub Vec<u64>);

/// A program that does not fit into words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the policy needs {needed} {what}, and {most} fit: combine fewer policies, or build it in")]
pub struct TooLarge {
    /// Which resource is too small.
    pub what: &'static str,
    /// How much it needs.
    pub needed: usize,
    /// How much there is.
    pub most: usize,
}

fn fits(what: &'static str, needed: usize, most: usize) -> Result<(), TooLarge> {
    if needed <= most {
        Ok(())
    } else {
        Err(TooLarge { what, needed, most })
    }
}

/// The checksum of words, without the one at index 1.
pub(crate) fn checksum(words: &[u64]) -> u64 {
    let mut sum = 0u64;
    for (at, word) in words.iter().enumerate() {
        if at != 1 {
            sum = (sum ^ word).wrapping_mul(MIX);
            sum ^= sum >> 29;
        }
    }
    sum
}

impl Program {
    /// Encodes it.
    ///
    /// # Errors
    /// What it has too much of.
    pub fn words(&self) -> Result<PolicyWords, TooLarge> {
        fits("steps", self.len(), MOST_STEPS)?;
        fits("words of state", self.states.len(), STATES)?;
        fits("shared words", self.words as usize, POLICY_WORDS as usize)?;
        let mut words = vec![0; HEAD];
        let mut head = u64::from(self.words) << 32 | VERSION << 40;
        for section in Section::ALL {
            encode(self.steps(section), &mut words)?;
            head |= ((words.len() - HEAD) as u64) << (8 * section as u64);
        }
        words[0] = head;
        words[1] = checksum(&words);
        Ok(PolicyWords(words))
    }
}

/// Gives every value a register from its step to its last use.
fn encode(steps: &[Step], words: &mut Vec<u64>) -> Result<(), TooLarge> {
    let mut last_use: Vec<usize> = (0..steps.len()).collect();
    for (at, step) in steps.iter().enumerate() {
        for arg in &step.args[..step.op.arguments()] {
            last_use[usize::from(*arg)] = at;
        }
    }
    let mut holds: [Option<usize>; REGISTERS] = [None; REGISTERS];
    let mut register = vec![0u64; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        let mut word = step.op as u64 | (step.ty as u64) << 24 | u64::from(step.number) << 32;
        for (place, arg) in step.args[..step.op.arguments()].iter().enumerate() {
            word |= register[usize::from(*arg)] << (12 + 4 * place);
        }
        for held in &mut holds {
            if held.is_some_and(|value| last_use[value] <= at) {
                *held = None;
            }
        }
        if step.op.has_value() {
            let live = holds.iter().flatten().count();
            let Some(free) = holds.iter().position(Option::is_none) else {
                return Err(TooLarge {
                    what: "values at a time",
                    needed: live + 1,
                    most: REGISTERS,
                });
            };
            holds[free] = (last_use[at] > at).then_some(at);
            register[at] = free as u64;
            word |= (free as u64) << 8;
        }
        words.push(word);
    }
    Ok(())
}

impl PolicyWords {
    /// The operation of a step, for a listing.
    fn listed(word: u64) -> String {
        let Some(op) = Op::from_number(word as u8) else {
            return format!("?{:02x}", word as u8);
        };
        let mut text = String::new();
        if op.has_value() {
            text += &format!("r{} = ", word >> 8 & 15);
        }
        text += op.as_str();
        for place in 0..op.arguments() {
            text += &format!(" r{}", word >> (12 + 4 * place) & 15);
        }
        match op {
            Op::Const | Op::High | Op::Get | Op::Set | Op::Shr | Op::WordAdd | Op::WordMax => {
                text += &format!(" {}", word >> 32);
            }
            _ => {}
        }
        text
    }
}

impl fmt::Debug for PolicyWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyWords({:#x?})", self.0)
    }
}

/// A listing: one step a line, by section.
impl fmt::Display for PolicyWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = self.0.first().copied().unwrap_or(0);
        let mut from = 0;
        for section in Section::ALL {
            let to = (head >> (8 * section as u64)) as u8 as usize;
            for at in from..to.min(self.0.len().saturating_sub(HEAD)) {
                let word = self.0[HEAD + at];
                let name = if at == from { section.as_str() } else { "" };
                writeln!(f, "{name:8} {word:016x}  {}", PolicyWords::listed(word))?;
            }
            from = to.max(from);
        }
        Ok(())
    }
}
