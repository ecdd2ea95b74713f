//! Policies recorded as programs: they can be built in or loaded.

use super::recorder::{Num, Writer};
use super::staged::Staged;
use super::step::{Program, Section};
use crate::context::PolicyCx;
use crate::policy::{Policy, TileId};
use heist_builder::Bool;

/// A policy in the language of programs: the same callbacks as [`Policy`], written
/// with a [`Writer`] in place of a kernel. It is a [`Policy`] too, built in as device
/// code like any other; and it can be loaded into a kernel that runs
/// ([`Loaded`](super::Loaded)).
///
/// ```
/// use heist_sched::{Policy, program::{Num, PortablePolicy, Slot, Writer}};
///
/// /// Steals until `limit` tiles were stolen.
/// struct AtMost { limit: u32 }
///
/// impl PortablePolicy for AtMost {
///     type State<'w> = Slot<'w, u32>;
///     fn init<'w>(&self, w: &'w Writer) -> Slot<'w, u32> { w.var("stolen", 0u32) }
///     fn should_try_steal<'w>(&self, _: &'w Writer, stolen: &Slot<'w, u32>) -> Num<'w, bool> {
///         stolen.get().lt(self.limit)
///     }
///     fn keep_going_after_success<'w>(
///         &self, _: &'w Writer, stolen: &Slot<'w, u32>, _: Num<'w, u32>,
///     ) -> Num<'w, bool> {
///         stolen.set(stolen.get() + 1u32);
///         stolen.get().lt(self.limit)
///     }
///     fn label(&self) -> String { format!("at-most({})", self.limit) }
/// }
/// assert!(AtMost { limit: 3 }.program().is_some());
/// ```
pub trait PortablePolicy {
    /// What it remembers between calls.
    type State<'w>;

    /// Once, when a block takes the policy up.
    fn init<'w>(&self, w: &'w Writer) -> Self::State<'w>;

    /// Before a request: submit one now?
    fn should_try_steal<'w>(&self, w: &'w Writer, state: &Self::State<'w>) -> Num<'w, bool>;

    /// After a grant: ask again later? `granted` is the tile's place in the order.
    fn keep_going_after_success<'w>(
        &self,
        w: &'w Writer,
        state: &Self::State<'w>,
        granted: Num<'w, u32>,
    ) -> Num<'w, bool>;

    /// Once, when the block leaves, or takes up another policy.
    fn leave<'w>(&self, w: &'w Writer, state: &Self::State<'w>) {
        let _ = (w, state);
    }

    /// How many words of memory its blocks share.
    fn words(&self) -> u32 {
        0
    }

    /// The text that makes it, where there is one.
    fn label(&self) -> String;

    /// Whether it may ever decline a last call, or stop after a success.
    fn retires(&self) -> bool {
        self.record().constant() != Some(true)
    }

    /// Whether it can be asked again before its last request is answered
    /// ([`Policy::asks_ahead`]): by default where a grant changes nothing that it remembers.
    fn ahead(&self) -> bool {
        !self.record().remembers_grants()
    }
}

/// A portable policy's program.
pub trait Recording {
    /// Records it.
    fn record(&self) -> Program;
}

impl<P: PortablePolicy + ?Sized> Recording for P {
    fn record(&self) -> Program {
        fn write<P: PortablePolicy + ?Sized>(policy: &P, w: &Writer) {
            let state = policy.init(w);
            w.begin(Section::Ask);
            w.answer(policy.should_try_steal(w, &state));
            w.begin(Section::Granted);
            // Recorded only where it is used.
            w.answer(policy.keep_going_after_success(w, &state, w.granted()));
            w.begin(Section::Leave);
            policy.leave(w, &state);
        }
        let writer = Writer::new(self.words());
        write(self, &writer);
        writer.into_program().tidied()
    }
}

impl<P: PortablePolicy> Policy for P {
    type State<'k> = Staged<'k>;

    fn init<'k>(&self, cx: &PolicyCx<'k>) -> Staged<'k> {
        Staged::start(self.record(), cx)
    }

    fn should_try_steal<'k>(&self, cx: &PolicyCx<'k>, state: &Staged<'k>) -> Bool<'k> {
        state.run(cx, Section::Ask, None)
    }

    fn keep_going_after_success<'k>(
        &self,
        cx: &PolicyCx<'k>,
        state: &Staged<'k>,
        stolen: TileId<'k>,
    ) -> Bool<'k> {
        state.run(cx, Section::Granted, Some(stolen.index))
    }

    fn leave<'k>(&self, cx: &PolicyCx<'k>, state: &Staged<'k>) {
        state.run(cx, Section::Leave, None);
    }

    fn shared_words(&self) -> u32 {
        self.words()
    }

    fn name(&self) -> String {
        self.label()
    }

    fn constant(&self) -> Option<bool> {
        self.record().constant()
    }

    fn may_retire(&self) -> bool {
        self.retires()
    }

    fn asks_ahead(&self) -> bool {
        self.ahead()
    }

    fn program(&self) -> Option<Program> {
        Some(self.record())
    }
}
