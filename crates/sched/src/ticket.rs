//! Tickets: a counter in global memory, in place of the hardware's launch control.
//!
//! The counter starts at zero, and a launch leaves it at zero, so no memset is
//! needed between launches. Launches that overlap on different streams use
//! different counters ([`Counters`] lends them out). With `t` tickets (all
//! tiles, less those that a resident grid starts with) and `n` clusters:
//!
//! * **Fixed number of draws.** Where no cluster leaves before a draw has failed
//!   (a resident grid, or a policy that never lets one retire), each of the `n`
//!   fails exactly once: `t + n` draws in all. The counter is drawn with
//!   `atom.inc`, which wraps to zero after exactly that many. One atomic a tile,
//!   nothing else.
//! * **Any number of draws.** Where a policy may retire a cluster, the counter
//!   has two halves: the low one counts draws, the high one counts clusters that
//!   retired. Each cluster ends in exactly one way, a failed draw or a
//!   retirement, and both are one atomic on the same word, so they have one
//!   order. Once the low half has reached `t`, failed draws so far are `low - t`;
//!   with the high half they are all the endings so far. The cluster that brings that to `n` is the
//!   last one, and writes zero. No cluster touches the word after its own ending, so this write
//!   races with nothing.
//! * **Relief.** Where fewer clusters are launched than there are tiles, the tiles of one that retires are
//!   left to those that run or are still to come, and these must be as many as the GPU runs at a time. So of
//!   `n` clusters `n - resident` may retire. One that wants to adds itself to the high half, and what was there
//!   before says whether it may: the decision and the count are one step. One that may not stays in the
//!   count, which from then on is above the number that may retire, and draws on. It does not ask again, since
//!   its next draw says so.
//! * **Endings that are not counted.** Where tiles may be left half done (`pause`), a cluster
//!   counts itself when it leaves, and the last one clears the counter with the other words.

use crate::channel::NONE;
use crate::control::CONTROL_BYTES;
use heist_builder::{Bool, Global, Kernel, Order, Ptr, Scope, Val, Var};

/// A cluster that retires, or wants to, in the counter.
const RETIRED: u64 = 1 << 32;

/// A launch's tickets inside a kernel.
#[derive(Clone, Copy)]
pub(crate) struct Tickets<'k> {
    k: Kernel<'k>,
    counter: Ptr<'k, Global, u64>,
    /// Tickets there are.
    tickets: Val<'k, u32>,
    /// The index of the first ticket's tile.
    first: Val<'k, u32>,
    /// Clusters that were launched.
    workers: Val<'k, u32>,
    /// Clusters that the GPU runs at a time.
    resident: Val<'k, u32>,
    drawn: Drawn<'k>,
}

/// The scheduler thread's last draw.
#[derive(Clone, Copy)]
enum Drawn<'k> {
    Fixed(Var<'k, u32>),
    Any(Var<'k, u64>),
    /// The same, and only so many may retire that others relieve them.
    Relieved(Var<'k, u64>),
    /// Endings are not counted: whoever sweeps the launch's words clears the counter too.
    Swept(Var<'k, u32>),
}

/// How clusters end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endings {
    /// Every one with a failed draw.
    Failed,
    /// With a failed draw or a retirement, each with one of them.
    Any,
    /// The same, where the retired are relieved by clusters that come later.
    Relieved,
    /// In ways that tickets do not know.
    Swept,
}

impl<'k> Tickets<'k> {
    /// So many clusters start with the tile of their own number: the `first` ones.
    #[track_caller]
    pub(crate) fn new(
        k: &Kernel<'k>,
        counter: Ptr<'k, Global, u64>,
        tiles: Val<'k, u32>,
        [workers, resident]: [Val<'k, u32>; 2],
        first: Val<'k, u32>,
        endings: Endings,
    ) -> Tickets<'k> {
        Tickets {
            k: *k,
            counter,
            tickets: tiles - first,
            first,
            workers,
            resident,
            drawn: match endings {
                Endings::Failed => Drawn::Fixed(k.var_written_first::<u32>().named("ticket")),
                Endings::Any => Drawn::Any(k.var_written_first::<u64>().named("ticket")),
                // A cluster that started with its number may retire before it has drawn: then it knows of nobody else that did.
                Endings::Relieved => Drawn::Relieved(k.var(0u64).named("ticket")),
                Endings::Swept => Drawn::Swept(k.var_written_first::<u32>().named("ticket")),
            },
        }
    }

    /// Whether the last ticket was drawn, without drawing one.
    #[track_caller]
    pub(crate) fn are_gone(&self) -> Bool<'k> {
        let drawn = self.counter.cast::<u32>().load_relaxed(Scope::Gpu);
        drawn.ge(self.tickets)
    }

    /// Draws; the answer is used later, so that the tile's work can hide its latency.
    #[track_caller]
    pub(crate) fn draw(&self) {
        match self.drawn {
            Drawn::Fixed(drawn) => {
                let last = self.tickets + self.workers - 1;
                let counter = self.counter.cast::<u32>();
                drawn.set(counter.atomic_wrapping_inc(Order::Relaxed, Scope::Gpu, last));
            }
            Drawn::Any(drawn) | Drawn::Relieved(drawn) => {
                drawn.set(self.counter.atomic_add(1u64));
            }
            Drawn::Swept(drawn) => drawn.set(self.counter.cast::<u32>().atomic_add(1u32)),
        }
    }

    /// What was drawn, as a word for the channel; without a branch, where
    /// nothing else depends on the answer. Whoever sends it [ends](Tickets::end_if_refused) behind that.
    #[track_caller]
    pub(crate) fn word(&self) -> Val<'k, u32> {
        let low = self.number();
        low.lt(self.tickets).select(low + self.first, NONE)
    }

    /// Counts this cluster's ending if what was drawn is no ticket.
    #[track_caller]
    pub(crate) fn end_if_refused(&self) {
        if let Drawn::Any(_) | Drawn::Relieved(_) = self.drawn {
            let refused = self.number().ge(self.tickets);
            self.k.if_(refused, || self.end_refused());
        }
    }

    /// The number that was drawn.
    fn number(&self) -> Val<'k, u32> {
        match self.drawn {
            Drawn::Fixed(drawn) | Drawn::Swept(drawn) => drawn.get(),
            Drawn::Any(drawn) | Drawn::Relieved(drawn) => drawn.get().cast::<u32>(),
        }
    }

    /// Counts the ending of a cluster whose draw has failed, where that is not counted by itself.
    #[track_caller]
    fn end_refused(&self) {
        if let Drawn::Any(drawn) | Drawn::Relieved(drawn) = self.drawn {
            let retired = self.retired(drawn.get());
            self.reset_if_last(self.number() - self.tickets + 1 + retired);
        }
    }

    /// Looks at what was drawn.
    #[track_caller]
    pub(crate) fn collect(&self, granted: impl Fn(Val<'k, u32>), refused: impl Fn()) {
        let low = self.number();
        self.k.if_else(
            low.lt(self.tickets),
            || granted(low + self.first),
            || {
                self.end_refused();
                refused();
            },
        );
    }

    /// Leaves without a failed draw. Only where the number of draws is not fixed. From a relief grid a
    /// cluster has [retired](Tickets::retire_relieved) before.
    #[track_caller]
    pub(crate) fn retire(&self) {
        match self.drawn {
            Drawn::Any(_) => {
                self.count_retired();
            }
            Drawn::Relieved(_) | Drawn::Swept(_) => {}
            Drawn::Fixed(_) => self
                .k
                .fail("a cluster retires from tickets that count on a failed draw"),
        }
    }

    /// The same in a relief grid, if enough others are left to draw: whether it did.
    #[track_caller]
    pub(crate) fn retire_relieved(&self) -> Bool<'k> {
        let did = self.k.var(false).named("relieved");
        if let Drawn::Relieved(drawn) = self.drawn {
            self.k.if_(self.wanted(drawn.get()).lt(self.most()), || {
                // Others decide at the same moment.
                did.set(self.count_retired().lt(self.most()));
            });
        }
        did.get()
    }

    /// Adds this cluster to those that retired: how many did, or wanted to, before.
    #[track_caller]
    fn count_retired(&self) -> Val<'k, u32> {
        let before = self.counter.atomic_add(RETIRED);
        let (low, wanted) = (before.cast::<u32>(), self.wanted(before));
        // While tickets are left, some other cluster has yet to end, whatever the sum. One more than may
        // is no ending: its draw is still to come.
        let mut ends = low.ge(self.tickets);
        if let Drawn::Relieved(_) = self.drawn {
            ends = ends & wanted.lt(self.most());
        }
        self.k.if_(ends, || {
            self.reset_if_last(low - self.tickets + wanted + 1);
        });
        wanted
    }

    /// How many wanted to retire, by the counter's word.
    fn wanted(&self, word: Val<'k, u64>) -> Val<'k, u32> {
        (word >> 32).cast::<u32>()
    }

    /// How many may retire in a relief grid.
    fn most(&self) -> Val<'k, u32> {
        self.workers - self.workers.min(self.resident)
    }

    /// How many have retired, by the counter's word.
    fn retired(&self, word: Val<'k, u64>) -> Val<'k, u32> {
        let wanted = self.wanted(word);
        match self.drawn {
            Drawn::Relieved(_) => wanted.min(self.most()),
            _ => wanted,
        }
    }

    #[track_caller]
    fn reset_if_last(&self, ended: Val<'k, u32>) {
        self.k.if_(ended.eq(self.workers), || {
            self.counter
                .atomic_exchange(Order::Relaxed, Scope::Gpu, 0u64);
        });
    }
}

/// Lends out control words so that launches that may overlap never share any.
///
/// Memory for `capacity` of them is allocated and zeroed once. A [`Lease`] is
/// held from before the launch until the launch is known to have ended (a
/// synchronised stream or event); for a captured graph, as long as the graph
/// lives. Then the next launch uses the words as they are.
///
/// ```
/// use heist_sched::Counters;
/// let counters = Counters::new(2);
/// let (a, b) = (counters.lease().unwrap(), counters.lease().unwrap());
/// assert_ne!(a.offset(), b.offset());
/// assert!(counters.lease().is_none());
/// drop(a);
/// assert!(counters.lease().is_some());
/// ```
#[derive(Clone, Debug)]
pub struct Counters {
    free: std::sync::Arc<std::sync::Mutex<Vec<u32>>>,
    capacity: u32,
}

/// Control words that nobody else has.
#[derive(Debug)]
pub struct Lease {
    index: u32,
    free: std::sync::Arc<std::sync::Mutex<Vec<u32>>>,
}

impl Counters {
    /// For `capacity` launches at a time.
    pub fn new(capacity: u32) -> Counters {
        Counters {
            free: std::sync::Arc::new(std::sync::Mutex::new((0..capacity).rev().collect())),
            capacity,
        }
    }

    /// Bytes of device memory to allocate and zero, once.
    pub fn bytes(&self) -> u64 {
        u64::from(self.capacity) * CONTROL_BYTES
    }

    /// Words for one launch; `None` when all are lent.
    pub fn lease(&self) -> Option<Lease> {
        let mut free = match self.free.lock() {
            Ok(free) => free,
            Err(poisoned) => poisoned.into_inner(),
        };
        free.pop().map(|index| Lease {
            index,
            free: self.free.clone(),
        })
    }
}

impl Lease {
    /// Where the words lie, in bytes from the start of the memory.
    pub fn offset(&self) -> u64 {
        u64::from(self.index) * CONTROL_BYTES
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut free = match self.free.lock() {
            Ok(free) => free,
            Err(poisoned) => poisoned.into_inner(),
        };
        free.push(self.index);
    }
}
