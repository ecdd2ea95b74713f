//! The control words of a launch: memory of its own that its blocks share.
//!
//! | word | holds |
//! |---|---|
//! | 0 | the ticket counter |
//! | 1, 2 | the exit record: who was overruled, and when |
//! | 3 | the bell: not zero while somebody asks for the GPU |
//! | 4 | how much of the launch has ended, where its policy has words |
//! | 5 ... 15 | words of the policy |
//! | 16 ... 18 | counters of the classes of tiles, where there are some |
//!
//! All are zero before the first launch that uses them. A launch leaves them at
//! zero (but for an exit record, and a bell that somebody else rang), so the next
//! one can use them as they are; launches that may overlap need different ones.

use heist_builder::{Global, Kernel, Order, Ptr, Scope, Val, Var};

/// Words of one launch.
pub const CONTROL_WORDS: usize = 20;
/// Bytes of one launch's control words.
pub const CONTROL_BYTES: u64 = CONTROL_WORDS as u64 * 8;
/// Where the bell is, in bytes from the start of the control words. Whoever wants
/// the GPU for a moment writes a 32-bit number that is not zero there, and zero when
/// done: the host, a write in a stream's order, or another kernel.
pub const BELL_BYTES: u64 = 3 * 8;

const RECORD: u32 = 1;
const BELL: u32 = 3;
const ENDED: u32 = 4;
const POLICY: u32 = 5;
/// Words that a policy can have.
pub const POLICY_WORDS: u32 = 11;
const CLASSES: u32 = POLICY + POLICY_WORDS;

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
}

/// Clears a policy's words, and the counters of classes, at the end of a launch.
///
/// Every cluster reports how many clusters of the grid it ran for: itself, and with launch control
/// those that it took over. The cluster that completes the grid is the last one, and writes zeros.
#[derive(Clone, Copy)]
pub(crate) struct Sweeper<'k> {
    control: Control<'k>,
    words: u32,
    classes: bool,
    /// Clusters of the grid.
    grid: Val<'k, u32>,
    /// How many clusters of the grid this cluster ran for.
    pub(crate) share: Var<'k, u32>,
}

impl<'k> Sweeper<'k> {
    /// For a policy of so many words, and tiles with or without classes; none where there
    /// is nothing to clear.
    pub(crate) fn new(
        k: &Kernel<'k>,
        control: Control<'k>,
        (words, classes): (u32, bool),
        grid: Val<'k, u32>,
    ) -> Option<Sweeper<'k>> {
        if words > POLICY_WORDS {
            k.fail(format!(
                "the policy's blocks share {words} words, and {POLICY_WORDS} fit"
            ));
        }
        (words > 0 || classes).then(|| Sweeper {
            control,
            words: words.min(POLICY_WORDS),
            classes,
            grid,
            share: k.var(1u32).named("stands_for"),
        })
    }

    /// In the scheduler thread, after the last use of the words.
    #[track_caller]
    pub(crate) fn leave(&self, k: &Kernel<'k>) {
        let ended = self.control.0.at(ENDED);
        let share = self.share.get().cast::<u64>();
        let before = ended.atomic_add_with(Order::AcquireRelease, Scope::Gpu, share);
        k.if_((before + share).eq(self.grid.cast::<u64>()), || {
            for index in 0..self.words {
                let word = self.control.policy_word(index);
                word.store_relaxed(Scope::Gpu, 0u64);
            }
            for class in 0..if self.classes { 3 } else { 0 } {
                let counter = self.control.class_counters().at(class);
                counter.store_relaxed(Scope::Gpu, 0u64);
            }
            ended.store_relaxed(Scope::Gpu, 0u64);
        });
    }
}
