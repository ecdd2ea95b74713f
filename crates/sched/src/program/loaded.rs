//! A policy that is loaded, not built in: the scheduler thread interprets it, and it
//! can be exchanged while the kernel runs.

use super::interpreter::Interpreter;
use super::step::Section;
use super::words::{PolicyWords, TooLarge};
use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use heist_builder::Bool;
use std::fmt;

/// A policy in a launch's memory. The kernel begins with this one;
/// [`Loader`](super::Loader) exchanges it.
///
/// ```
/// use heist_sched::{AnyPolicy, Policy, program::Loaded};
/// let policy: AnyPolicy = "max-steals(8) & first-half".parse().unwrap();
/// let loaded = Loaded::new(&policy).unwrap();
/// assert_eq!(loaded.name(), "loaded: max-steals(8) & first-half");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    words: PolicyWords,
    name: String,
}

/// Why a policy can't be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPortable {
    /// It emits code of its own.
    #[error(
        "`{0}` is written as device code, and only policies that are written as programs (`PortablePolicy`) can be loaded; build it in"
    )]
    Staged(String),
    /// It is too large.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

impl Loaded {
    /// The prefix of its name and of its text.
    pub(crate) const PREFIX: &'static str = "loaded:";

    /// Starts with this policy.
    ///
    /// # Errors
    /// Why it can't be loaded.
    pub fn new(policy: &impl Policy) -> Result<Loaded, NotPortable> {
        let name = policy.name();
        let Some(program) = policy.program() else {
            return Err(NotPortable::Staged(name));
        };
        Ok(Loaded {
            words: program.words()?,
            name: format!("{} {name}", Self::PREFIX),
        })
    }

    /// What it starts with.
    pub fn words(&self) -> &PolicyWords {
        &self.words
    }
}

/// The state of a kernel's interpreter.
pub struct Taken<'k>(Interpreter<'k>);

impl fmt::Debug for Taken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Taken(..)")
    }
}

impl Policy for Loaded {
    type State<'k> = Taken<'k>;

    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Taken<'k> {
        Taken(Interpreter::new(cx, &self.words))
    }

    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Taken<'k>) -> Bool<'k> {
        state.0.decide(cx, Section::Ask, None)
    }

    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Taken<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k> {
        state.0.decide(cx, Section::Granted, Some(stolen.index))
    }

    fn leave<'k>(&self, cx: &PolicyCx<'k>, state: &Taken<'k>) {
        state.0.let_go(cx);
    }

    fn look_ahead<'k>(&self, cx: &PolicyCx<'k>, state: &Taken<'k>) {
        state.0.look(cx);
    }

    fn take_up<'k>(&self, cx: &PolicyCx<'k>, state: &Taken<'k>) {
        state.0.take_up(cx);
    }

    fn is_plain<'k>(&self, _: &PolicyCx<'k>, state: &Taken<'k>) -> Option<Bool<'k>> {
        Some(state.0.is_plain())
    }

    fn loaded(&self) -> Option<&PolicyWords> {
        Some(&self.words)
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
