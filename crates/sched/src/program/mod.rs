//! Policies as data: one language, with a compiler and an interpreter.
//!
//! A [`PortablePolicy`] records its callbacks once, as a [`Program`]: a few typed steps without
//! jumps. The program is then either **built in**, step by step as device code, or **loaded**:
//! encoded as words ([`PolicyWords`]) that the scheduler thread interprets, and that can be
//! exchanged while the kernel runs ([`Loaded`], [`Loader`]). Text, Rust and words are three forms
//! of the same language.
//!
//! A program can't hurt a launch. Steps run once each and in order, so it ends; every register,
//! state and shared word that a step can encode exists; and a policy decides when a block asks,
//! never which tile it gets. The [verifier](PolicyWords::verify) refuses words that are not a valid
//! program.
//!
//! ```
//! use heist_sched::{AnyPolicy, Policy, program::PolicyWords};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy: AnyPolicy = "max-steals(8) & first-half".parse()?;
//! let program = policy.program().expect("it is recorded, not written as device code");
//! let mut words: PolicyWords = program.words()?;
//! words.verify()?;
//! // A bit that was lost on the way is noticed.
//! words.0[2] ^= 1;
//! assert!(words.verify().is_err());
//! # Ok(()) }
//! ```

mod interpreter;
mod loaded;
mod loader;
mod portable;
mod recorder;
mod staged;
mod step;
mod verify;
mod words;

pub use loaded::{Loaded, NotPortable, Taken};
pub(crate) use loader::control_words;
pub use loader::{Busy, LOADED_CONTROL_WORDS, Loader, PolicyMemory};
pub use portable::{PortablePolicy, Recording};
pub use recorder::{IntoNum, Num, PortableType, Slot, Whole, Writer};
pub use staged::Staged;
pub use step::{Op, Program, Section, Step, Type};
pub use verify::Refusal;
pub use words::{PolicyWords, TooLarge};

/// Steps of a program, over all its sections.
pub const MOST_STEPS: usize = 96;
/// Registers that a section's values live in.
pub const REGISTERS: usize = 16;
/// Words of state that a block keeps.
pub const STATES: usize = 16;
