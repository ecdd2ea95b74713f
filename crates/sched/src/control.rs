//! The control words of a launch: memory of its own that its blocks share.
//!
//! | word | holds |
//! |---|---|
//! | 0 | the ticket counter |
//! | 1, 2 | the exit record: who was overruled, and when |
//! | 3 | the [bell](crate::Bell): not zero while somebody asks for the GPU |
//! | 4 | how much of the launch has ended, where its policy has words |
//! | 5 ... 15 | words of the policy |
//! | 16 ... 18 | counters of the classes of tiles, where there are some |
//! | 16 ... 19 | blocks that are spare, away and owed, and the queue of tiles that were left half done, where they may be |
//!
//! All are zero before the first launch that uses them. A launch leaves them at
//! zero (but for an exit record, and a bell that somebody else rang), so the next
//! one can use them as they are; launches that may overlap need different ones.

use crate::bell::BELL_BYTES;
use heist_builder::{Global, Kernel, Order, Ptr, Scope, Val, Var};

/// Words of one launch.
pub const CONTROL_WORDS: usize = 20;
/// Bytes of one launch's control words.
pub const CONTROL_BYTES: u64 = CONTROL_WORDS as u64 * 8;

const RECORD: u32 = 1;
const BELL: u32 = BELL_BYTES as u32 / 8;
const ENDED: u32 = 4;
const POLICY: u32 = 5;
/// Words that a policy can have.
pub const POLICY_WORDS: u32 = 11;
const CLASSES: u32 = POLICY + POLICY_WORDS;
/// A kernel with classes does not pause.
const PAUSES: u32 = CLASSES;

/// The control words inside a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control<'k>(pub(crate) Ptr<'k, Global, u64>);

impl<'k> Control<'k> {
    pub(crate) fn counter(self) -> Ptr<'k, Global, u64> {
        self.0
    }

    pub(crate) fn record(self) -> Ptr<'k, Global, u64> {
        self.0.at(RECORD)
    }

    pub(crate) fn bell(self) -> Ptr<'k, Global, u32> {
        self.0.at(BELL).cast::<u32>()
    }

    pub(crate) fn policy_word(self, index: u32) -> Ptr<'k, Global, u64> {
        self.0.at(POLICY + index)
    }

    pub(crate) fn class_counters(self) -> Ptr<'k, Global, u64> {
        self.0.at(CLASSES)
    }

    /// Blocks that nobody waits for, less those that the launch began with.
    pub(crate) fn spare(self) -> Ptr<'k, Global, i32> {
        self.0.at(PAUSES).cast::<i32>()
    }

    /// Blocks that left before the last tile was drawn, less those that came after them.
    pub(crate) fn away(self) -> Ptr<'k, Global, i32> {
        self.spare().at(1)
    }

    /// Half-done tiles in the queue that nobody has taken. Its neighbour is [`owed`](Control::owed): both are loaded
    /// at once, as a vector.
    pub(crate) fn waiting(self) -> Ptr<'k, Global, i32> {
        self.0.at(PAUSES + 1).cast::<i32>()
    }

    /// Blocks that left at the end of a tile and have no successor yet.
    pub(crate) fn owed(self) -> Ptr<'k, Global, i32> {
        self.waiting().at(1)
    }

    /// How many were put in the queue so far.
    pub(crate) fn queued(self) -> Ptr<'k, Global, u32> {
        self.0.at(PAUSES + 2).cast::<u32>()
    }

    /// When a block last left at the end of a tile ([`Pause`](crate::Pause)), or zero.
    pub(crate) fn left_at(self) -> Ptr<'k, Global, u32> {
        self.queued().at(1)
    }

    /// How many were taken out.
    pub(crate) fn dequeued(self) -> Ptr<'k, Global, u32> {
        self.0.at(PAUSES + 3).cast::<u32>()
    }
}

/// What a launch clears at its end.
#[derive(Clone, Copy)]
pub(crate) struct Swept {
    /// Words of the policy.
    pub(crate) policy: u32,
    /// The counters of classes.
    pub(crate) classes: bool,
    /// What blocks that pause share, and the ticket counter, which then counts no endings.
    pub(crate) pauses: bool,
}

impl Swept {
    fn all(self) -> impl Iterator<Item = u32> {
        let policy = POLICY..POLICY + self.policy.min(POLICY_WORDS);
        let classes = CLASSES..CLASSES + if self.classes { 3 } else { 0 };
        let pauses = PAUSES..PAUSES + if self.pauses { 4 } else { 0 };
        let tickets = 0..u32::from(self.pauses);
        policy.chain(classes).chain(pauses).chain(tickets)
    }
}

/// Clears the words that a launch's blocks share, at its end.
///
/// Every cluster reports how many clusters of the grid it ran for: itself, and with launch control
/// those that it took over. The cluster that completes the grid is the last one, and writes zeros.
#[derive(Clone, Copy)]
pub(crate) struct Sweeper<'k> {
    control: Control<'k>,
    /// The words to clear.
    words: Swept,
    /// Clusters of the grid.
    grid: Val<'k, u32>,
    /// How many clusters of the grid this cluster ran for.
    pub(crate) share: Var<'k, u32>,
}

impl<'k> Sweeper<'k> {
    /// None where there is nothing to clear.
    pub(crate) fn new(
        k: &Kernel<'k>,
        control: Control<'k>,
        words: Swept,
        grid: Val<'k, u32>,
    ) -> Option<Sweeper<'k>> {
        let own = words.policy;
        if own > POLICY_WORDS {
            k.fail(format!(
                "the policy's blocks share {own} words, and {POLICY_WORDS} fit"
            ));
        }
        words.all().next().is_some().then(|| Sweeper {
            control,
            words,
            grid,
            share: k.var(1u32).named("stands_for"),
        })
    }

    /// In the scheduler thread of a cluster that knows that it is not the last: reports, and does not wait.
    #[track_caller]
    pub(crate) fn count(&self) {
        let ended = self.control.0.at(ENDED);
        ended.reduce_add(self.share.get().cast::<u64>());
    }

    /// In the scheduler thread, after the last use of the words.
    #[track_caller]
    pub(crate) fn leave(&self, k: &Kernel<'k>) {
        let ended = self.control.0.at(ENDED);
        let share = self.share.get().cast::<u64>();
        let before = ended.atomic_add_with(Order::AcquireRelease, Scope::Gpu, share);
        k.if_((before + share).eq(self.grid.cast::<u64>()), || {
            for word in self.words.all() {
                self.control.0.at(word).store_relaxed(Scope::Gpu, 0u64);
            }
            ended.store_relaxed(Scope::Gpu, 0u64);
        });
    }
}
