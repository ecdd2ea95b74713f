//! The memory layout of loaded policies, and how one is loaded while a kernel runs.
//!
//! After a launch's control words comes this area:
//!
//! | word | holds |
//! |---|---|
//! | 0 | which policy is current, in its low half: what kind it is (2 bits), its slot (4), a sequence number (26) |
//! | 1 ... 8 | how many blocks use each slot |
//! | 9 ... | eight slots: a policy's words, and 16 words that its blocks share |
//!
//! A policy is written into an unused slot, and then made current with one write of 32 bits: no
//! block sees a part of it. A block increments the slot's count **before** it reads the current
//! word a second time, and reads the slot only if that word is unchanged; the loader reads the
//! count only **after** another slot was made current. So a slot that is being written has no
//! reader and gets none.

use super::verify::Refusal;
use super::words::{HEAD, PolicyWords};
use super::{MOST_STEPS, step::Program};
use crate::control::CONTROL_WORDS;

/// Slots for policies.
pub(crate) const SLOTS: usize = 8;
/// Words that blocks share, a slot; more than a policy can have, so that four bits name one.
pub(crate) const SHARED: usize = 16;
/// Words of a slot.
pub(crate) const SLOT_WORDS: usize = HEAD + MOST_STEPS + SHARED;
/// Words behind the control words.
pub(crate) const AREA_WORDS: usize = 1 + SLOTS + SLOTS * SLOT_WORDS;
/// Control words of a launch whose policy is [`Loaded`](super::Loaded).
pub const LOADED_CONTROL_WORDS: usize = CONTROL_WORDS + AREA_WORDS;

/// What the current word says about the policy.
pub(crate) mod kind {
    /// It is in the slot.
    pub(crate) const PROGRAM: u32 = 3;
    /// It never asks.
    pub(crate) const NEVER: u32 = 2;
    /// It always asks.
    pub(crate) const ALWAYS: u32 = 1;
}

/// Places in the area, in words from the start of the control words.
pub(crate) mod area {
    use super::{CONTROL_WORDS, SLOT_WORDS, SLOTS};
    pub(crate) const CURRENT: usize = CONTROL_WORDS;
    pub(crate) const USERS: usize = CURRENT + 1;
    pub(crate) const FIRST_SLOT: usize = USERS + SLOTS;

    pub(crate) const fn slot(index: usize) -> usize {
        FIRST_SLOT + index * SLOT_WORDS
    }
}

fn current(program: &PolicyWords, slot: usize, sequence: u32) -> u32 {
    let kind = match program.answer() {
        Some(true) => kind::ALWAYS,
        Some(false) => kind::NEVER,
        None => kind::PROGRAM,
    };
    kind | (slot as u32) << 2 | sequence << 6
}

/// The current word of a launch whose policy was never exchanged.
pub(crate) fn first(policy: &PolicyWords) -> u32 {
    current(policy, 0, 1)
}

/// The control words of a launch that begins with this policy.
pub(crate) fn control_words(policy: &PolicyWords) -> Vec<u64> {
    let mut words = vec![0; LOADED_CONTROL_WORDS];
    words[area::CURRENT] = first(policy).into();
    words[area::slot(0)..][..policy.0.len()].copy_from_slice(&policy.0);
    words
}

/// Access to the control words of a launch while the kernel runs.
pub trait PolicyMemory {
    /// What can go wrong.
    type Error;
    /// Writes bytes at an offset. They are there when this returns, and a write of four
    /// bytes is seen whole.
    ///
    /// # Errors
    /// An error of the memory.
    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Reads bytes at an offset, while the kernel runs.
    ///
    /// # Errors
    /// An error of the memory.
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), Self::Error>;
}

/// Why a policy was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Busy<E> {
    /// The verifier refuses it.
    #[error("the policy is refused: {0}")]
    Refused(Refusal),
    /// Blocks that are in a long tile still use all other slots.
    #[error(
        "the policy can't be loaded yet: blocks still use the last {} policies; try again when a tile has ended",
        SLOTS - 1
    )]
    InUse,
    /// The memory could not be written or read.
    #[error("{0}")]
    Memory(E),
}

/// Exchanges the policy of the launches that use some control words. Use one loader for these
/// words, from their first launch on.
#[derive(Clone, Copy, Debug)]
pub struct Loader {
    slot: usize,
    sequence: u32,
}

impl Default for Loader {
    fn default() -> Loader {
        Loader {
            slot: 0,
            sequence: 1,
        }
    }
}

impl Loader {
    /// For control words that hold the policy which the kernel was built with.
    pub fn new() -> Loader {
        Loader::default()
    }

    /// Verifies a policy and makes it current. Blocks take it up when they next decide;
    /// one that decides in this moment still follows the last one.
    ///
    /// # Errors
    /// Why not; then the last policy stays.
    pub fn load<M: PolicyMemory>(
        &mut self,
        memory: &mut M,
        policy: &PolicyWords,
    ) -> Result<(), Busy<M::Error>> {
        policy.verify().map_err(Busy::Refused)?;
        let mut users = [0; SLOTS * 8];
        memory
            .read(area::USERS * 8, &mut users)
            .map_err(Busy::Memory)?;
        let free = |slot: &usize| users[slot * 8..][..8] == [0; 8];
        let others = (1..SLOTS).map(|step| (self.slot + step) % SLOTS);
        let Some(slot) = others.into_iter().find(free) else {
            return Err(Busy::InUse);
        };
        let mut words = policy.0.clone();
        words.resize(SLOT_WORDS, 0);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory
            .write(area::slot(slot) * 8, &bytes)
            .map_err(Busy::Memory)?;
        // Zero is for memory that was never loaded.
        self.sequence = (self.sequence % ((1 << 26) - 1)) + 1;
        self.slot = slot;
        let now = current(policy, slot, self.sequence);
        memory
            .write(area::CURRENT * 8, &now.to_le_bytes())
            .map_err(Busy::Memory)
    }
}

impl PolicyWords {
    /// The answer that it gives every time, where that is all it does.
    pub(crate) fn answer(&self) -> Option<bool> {
        let greedy = Program::always(true).words().ok()?;
        let never = Program::always(false).words().ok()?;
        match self {
            words if *words == greedy => Some(true),
            words if *words == never => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The control words of a launch that does not run.
    struct Still(Vec<u8>);

    impl PolicyMemory for Still {
        type Error = Infallible;
        fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), Infallible> {
            self.0[offset..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
        fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), Infallible> {
            bytes.copy_from_slice(&self.0[offset..][..bytes.len()]);
            Ok(())
        }
    }

    impl Still {
        fn word(&self, at: usize) -> u64 {
            let bytes = self.0[at * 8..][..8].try_into();
            u64::from_le_bytes(bytes.unwrap_or_default())
        }
    }

    fn still() -> (Still, PolicyWords) {
        let policy: crate::AnyPolicy = "max-steals(2)".parse().expect("a policy");
        let words = crate::Policy::program(&policy).expect("a program").words();
        let memory = vec![0; LOADED_CONTROL_WORDS * 8];
        (Still(memory), words.expect("it fits"))
    }

    #[test]
    fn a_slot_that_a_block_uses_is_left_alone() {
        for used in 1..SLOTS {
            let (mut memory, policy) = still();
            // All but one are in use.
            for slot in (1..SLOTS).filter(|slot| *slot != used) {
                memory.0[(area::USERS + slot) * 8] = 1;
            }
            let mut loader = Loader::new();
            assert_eq!(loader.load(&mut memory, &policy), Ok(()));
            let slot = (memory.word(area::CURRENT) >> 2) as usize & (SLOTS - 1);
            assert_eq!(slot, used);
            assert_eq!(memory.word(area::slot(used)), policy.0[0]);
            memory.0[(area::USERS + used) * 8] = 1;
            memory.0[area::USERS * 8] = 1;
            assert_eq!(loader.load(&mut memory, &policy), Err(Busy::InUse));
        }
    }

    /// The number of a policy has 26 bits, and is never that of memory that was never loaded.
    #[test]
    fn numbers_of_policies_begin_anew() {
        let (mut memory, policy) = still();
        let mut loader = Loader {
            slot: 0,
            sequence: (1 << 26) - 2,
        };
        for number in [(1 << 26) - 1, 1, 2] {
            assert_eq!(loader.load(&mut memory, &policy), Ok(()));
            assert_eq!(memory.word(area::CURRENT) as u32 >> 6, number);
        }
    }
}
