//! What a policy can see and use while its callbacks emit code.

use crate::control::Control;
use crate::pause::Pause;
use heist_builder::{Bool, Global, IntoVal, Kernel, Order, Ptr, Scalar, Scope, Val, Var};
use std::fmt;

/// The policy's view of the kernel.
///
/// Its methods emit device code, so call what you need where you need it: a
/// clock is read at the point of the call.
#[derive(Clone, Copy)]
pub struct PolicyCx<'k> {
    pub(crate) k: Kernel<'k>,
    pub(crate) worker: Val<'k, u32>,
    pub(crate) workers: Val<'k, u32>,
    pub(crate) tiles: Val<'k, u32>,
    pub(crate) resident: Val<'k, u32>,
    pub(crate) watchdog: Watchdog<'k>,
    pub(crate) control: Control<'k>,
    /// The first of the launch's words that are this policy's own.
    pub(crate) first_word: u32,
    /// How tiles are left half done, where they may be: then the launch counts the blocks that are away.
    pub(crate) pause: Option<Pause<'k>>,
    /// Whether there is room for a loaded policy behind the control words.
    pub(crate) has_area: bool,
}

/// Why a policy is not asked any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Misdeed {
    /// It kept a block waiting.
    Waited = 0,
    /// A step with an unknown operation.
    UnknownStep = 1,
    /// Its words are not those that were loaded.
    Changed = 2,
    /// It divided by zero.
    DividedByZero = 3,
}

/// The watchdog: overrules a policy that keeps a block waiting.
#[derive(Clone, Copy)]
pub(crate) struct Watchdog<'k> {
    /// Set in the scheduler thread once its policy was overruled.
    pub(crate) overruled: Var<'k, bool>,
    /// The launch's exit record: who, then when.
    pub(crate) record: Ptr<'k, Global, u64>,
    /// The longest wait, in nanoseconds.
    pub(crate) bound: u64,
}

impl fmt::Debug for PolicyCx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyCx({:?})", self.k)
    }
}

impl<'k> PolicyCx<'k> {
    /// The kernel, for everything that is not here.
    pub fn kernel(&self) -> Kernel<'k> {
        self.k
    }

    /// A variable of the scheduler thread.
    #[track_caller]
    pub fn var<T: Scalar>(&self, value: impl IntoVal<'k, T>) -> Var<'k, T> {
        self.k.var(value)
    }

    /// A constant.
    pub fn c<T: Scalar>(&self, value: T) -> Val<'k, T> {
        self.k.c(value)
    }

    /// Always.
    pub fn yes(&self) -> Bool<'k> {
        self.k.c(true)
    }

    /// Never.
    pub fn no(&self) -> Bool<'k> {
        self.k.c(false)
    }

    /// The number of this block (of this cluster, where there are clusters)
    /// among all that were launched. It stays the same when tiles are stolen.
    pub fn worker(&self) -> Val<'k, u32> {
        self.worker
    }

    /// How many blocks (clusters) were launched.
    pub fn workers(&self) -> Val<'k, u32> {
        self.workers
    }

    /// How many tiles there are (in a cluster: how many clusters of tiles).
    pub fn tiles(&self) -> Val<'k, u32> {
        self.tiles
    }

    /// How many blocks (clusters) the GPU can run at a time, as the launch was
    /// told; at least 1.
    pub fn resident(&self) -> Val<'k, u32> {
        self.resident
    }

    /// The GPU's clock in nanoseconds, now.
    #[track_caller]
    pub fn nanoseconds(&self) -> Val<'k, u64> {
        self.k.nanoseconds()
    }

    /// This multiprocessor's clock in cycles, now.
    #[track_caller]
    pub fn cycles(&self) -> Val<'k, u64> {
        self.k.cycles()
    }

    /// The number of the multiprocessor.
    #[track_caller]
    pub fn sm(&self) -> Val<'k, u32> {
        self.k.sm()
    }

    /// One of the words that all blocks of the launch share, out of
    /// [`shared_words`](crate::Policy::shared_words). They are zero when the launch
    /// starts, and whatever is left in them is cleared at its end. Other blocks use them at the
    /// same time, so all accesses are atomic.
    #[track_caller]
    pub fn word(&self, index: u32) -> Ptr<'k, Global, u64> {
        let at = self.first_word + index;
        if at >= crate::control::POLICY_WORDS {
            self.k.fail(format!("a policy has no shared word {at}"));
        }
        self.control.policy_word(at)
    }

    /// The context of the second policy of a combination whose first has `words` shared words.
    pub(crate) fn behind(&self, words: u32) -> PolicyCx<'k> {
        PolicyCx {
            first_word: self.first_word + words,
            ..*self
        }
    }

    /// Whether somebody asks for the GPU: the launch's bell
    /// ([`BELL_BYTES`](crate::BELL_BYTES)) is read now, or was when the tile's last step began, where its body
    /// [says so](crate::Pause::heard). Where it asks for a number of blocks, not once as many are away.
    #[track_caller]
    pub fn is_asked_to_yield(&self) -> Bool<'k> {
        match &self.pause {
            None => self.control.bell().load_relaxed(Scope::System).ne(0),
            Some(pause) => pause.is_asked(),
        }
    }

    /// Waits until `ready`, and says whether that happened before the bound.
    ///
    /// This is how a policy may wait. A wait that is longer than the kernel's
    /// watchdog bound ends: the policy is overruled, in this block at once and in
    /// the others when they would wait, all of them go on as greedy, and the
    /// launch's exit record says which block it was, and when.
    #[track_caller]
    pub fn wait_until(&self, ready: impl Fn() -> Bool<'k>) -> Bool<'k> {
        let (k, dog) = (self.k, self.watchdog);
        let start = k.nanoseconds();
        let holds = k.var(false);
        k.loop_(|flow| {
            holds.set(ready());
            flow.break_if(holds.get());
            flow.break_if(dog.overruled.get());
            let ejected = dog.record.load_relaxed(Scope::Gpu).ne(0);
            let late = (k.nanoseconds() - start).gt(dog.bound);
            k.if_(late, || self.record(k.c(Misdeed::Waited as u32)));
            dog.overruled.set(late | ejected);
            flow.break_if(dog.overruled.get());
            k.nanosleep(200);
        });
        holds.get()
    }

    /// Writes the launch's exit record, unless one was written: which block, why and when.
    #[track_caller]
    pub(crate) fn record(&self, misdeed: Val<'k, u32>) {
        let (k, record) = (self.k, self.watchdog.record);
        let who = self.worker.cast::<u64>() + 1 + (misdeed.cast::<u64>() << 32);
        let found = record.atomic_compare_exchange(Order::Relaxed, Scope::Gpu, 0u64, who);
        k.if_(found.eq(0), || {
            record.at(1).store_relaxed(Scope::Gpu, k.nanoseconds());
        });
    }
}
