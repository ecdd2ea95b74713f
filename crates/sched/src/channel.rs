//! The channel from the scheduler thread to every thread of the cluster: one word per tile.
//!
//! Whatever the source, the scheduler thread (thread 0 of the cluster's first
//! block) sends one word per tile: the index of the next tile, or [`NONE`].
//!
//! In a single block the word goes through two slots in turns, with one barrier per tile: a slot is
//! overwritten only after the barrier that follows the reads of the other slot, so no thread can
//! still be reading it.
//!
//! In a cluster every block has a slot and a *full* barrier, and the first block
//! an *empty* barrier that takes one arrival from each block. The scheduler
//! waits for *empty*, writes each block's slot, and arrives at each block's
//! *full*, which releases the write to the threads that wait there. Every thread waits for its own block's *full* and
//! reads its own block's slot; after a barrier of the block one thread releases the slot to the first block. So every
//! read happens after its write, no slot is overwritten before all threads have read it, and no block reads another
//! block's memory.

use heist_builder::{BarrierSpec, Kernel, Mbarrier, Ptr, Shared, SharedArray, Val, Var, Waiter};

/// The word that says there is no next tile. No index reaches it.
pub(crate) const NONE: u32 = u32::MAX;

/// The channel of one kernel.
#[derive(Clone, Copy)]
pub(crate) struct Channel<'k> {
    k: Kernel<'k>,
    slot: SharedArray<'k, u32>,
    wiring: Wiring<'k>,
}

#[derive(Clone, Copy)]
enum Wiring<'k> {
    /// The address of the slot that is used next.
    Block(Var<'k, u32>),
    Cluster {
        full: Waiter<'k>,
        empty: Mbarrier<'k>,
        /// The parity that the scheduler waits for next.
        emptied: Var<'k, u32>,
    },
}

/// The slot at an address.
fn here<'k>(address: Var<'k, u32>) -> Ptr<'k, Shared, u32> {
    Ptr::<Shared, u32>::from_address(address.get())
}

impl<'k> Channel<'k> {
    /// Makes it; the whole cluster takes part and is synchronised when it returns.
    pub(crate) fn new(k: &Kernel<'k>) -> Channel<'k> {
        let blocks = k.cluster_size();
        if blocks == 1 {
            // Aligned so that one bit of the address tells the slots apart.
            let slot = k.shared_aligned::<u32>("heist_next", 2, 8);
            let wiring = Wiring::Block(k.var(slot.ptr().address()).named("next_slot"));
            return Channel {
                k: *k,
                slot,
                wiring,
            };
        }
        let slot = k.shared::<u32>("heist_next", 1);
        let [full, empty] = k.mbarriers([
            BarrierSpec {
                name: "heist_full",
                count: 1,
                arrivals: 1,
            },
            BarrierSpec {
                name: "heist_empty",
                count: 1,
                arrivals: blocks,
            },
        ]);
        Channel {
            k: *k,
            slot,
            wiring: Wiring::Cluster {
                full: full.first().waiter(),
                empty: empty.first(),
                // Before the first message all slots are empty: the phase
                // before the first counts as ended.
                emptied: k.var(1u32).named("emptied"),
            },
        }
    }

    /// Sends a word. The scheduler thread alone calls this.
    #[track_caller]
    pub(crate) fn send(&self, word: Val<'k, u32>) {
        match self.wiring {
            Wiring::Block(slot) => here(slot).store(word),
            Wiring::Cluster {
                full,
                empty,
                emptied,
            } => {
                empty.wait(emptied.get());
                emptied.update(|parity| parity ^ 1);
                for rank in 0..self.k.cluster_size() {
                    self.slot.ptr().on(rank).store(word);
                    full.barrier().on(rank).arrive();
                }
            }
        }
    }

    /// Receives the word. Every thread of the cluster calls this; it includes a barrier of the
    /// block.
    #[track_caller]
    pub(crate) fn receive(&self) -> Val<'k, u32> {
        let k = self.k;
        match self.wiring {
            Wiring::Block(slot) => {
                k.sync();
                let word = here(slot).load();
                slot.update(|at| at ^ 4);
                word
            }
            Wiring::Cluster { full, empty, .. } => {
                full.wait();
                let word = self.slot.ptr().load();
                k.sync();
                k.one_thread(|| empty.on(0u32).arrive());
                word
            }
        }
    }
}
