//! The channel from the scheduler thread to every thread of the cluster: one word per tile.
//!
//! Whatever the source, the scheduler thread (thread 0 of the cluster's first
//! block) sends one word per tile: the index of the next tile, or [`NONE`].
//!
//! In a single block the word goes through two slots in turns, with one barrier per tile: a slot is
//! overwritten only after the barrier that follows the reads of the other slot, so no thread can
//! still be reading it.
//!
//! Where threads may be a tile apart ([`Tiled::apart`](crate::Tiled::apart)) each slot has a *full* barrier, at which the scheduler
//! arrives, and an *empty* one, at which every thread arrives once it has read the word: the scheduler waits for it before it sends
//! the next but one. In a cluster every block has these slots, and a lane of each warp of all blocks arrives at the first block's *empty*.
//!
//! In a cluster every block has a slot and a *full* barrier, and the first block an *empty* barrier
//! that takes one arrival from each block. The scheduler waits for *empty* and has the word stored
//! in each block's slot asynchronously (`st.async`): its bytes are counted by that block's *full*.
//! Every thread waits for its own block's *full* and reads its own block's slot; after a barrier of
//! the block one thread arms *full* for the next word and releases the slot to the first block. So
//! every read happens after its write, no slot is overwritten before all threads have read it, and
//! no block reads another block's memory. Nothing of this takes a fence of the whole GPU.
//!
//! Where the target can, the hardware takes the scheduler's place in that protocol: it writes the
//! answer of a request to every block (`.multicast::cluster::all`), and every thread takes the word
//! out of its block's answer. If the policy declines, no answer comes; the scheduler then sends a
//! note of as many bytes, which says so.
//!
//! With several requests in flight the answers come in the order of the requests, each in the next
//! of a ring of slots, and a refusal is not the last of them: others are on their way, and may be
//! grants. Only the scheduler knows how many. So threads pass over refusals, and what ends it is
//! always the scheduler's note, once nothing is in flight.

use heist_builder::{
    BarrierSpec, Dim3, Kernel, Mbarrier, Mbarriers, Ptr, Request, RingCursor, Shared, SharedArray,
    Val, Var, Waiter,
};

/// The word that says there is no next tile. No index reaches it.
pub(crate) const NONE: u32 = u32::MAX;
/// The word in place of a tile whose policy is to be interpreted first: another word follows.
pub(crate) const ASK: u32 = NONE - 1;

/// Words on their way to threads that are apart.
const SLOTS: u32 = 2;

/// Bytes of a word.
const WORD: u32 = 4;

/// Words of a note, which comes in place of an answer and has its size.
const NOTE: u32 = 4;

/// The channel of one kernel.
#[derive(Clone, Copy)]
pub(crate) struct Channel<'k> {
    k: Kernel<'k>,
    wiring: Wiring<'k>,
}

#[derive(Clone, Copy)]
enum Wiring<'k> {
    /// The address of the slot that is used next.
    Block(Var<'k, u32>),
    /// Threads wait for the word, and not for each other.
    Apart {
        slots: SharedArray<'k, u32>,
        full: Mbarriers<'k>,
        empty: Mbarriers<'k>,
        /// Where the next word is read.
        read: RingCursor<'k>,
        /// Where the scheduler writes it.
        write: RingCursor<'k>,
    },
    /// The scheduler hands a word to every block.
    Handed {
        slot: SharedArray<'k, u32>,
        full: Waiter<'k>,
        empty: Mbarrier<'k>,
        /// The parity that the scheduler waits for next.
        emptied: Var<'k, u32>,
    },
    /// The hardware answers every block.
    Answered {
        request: Request<'k>,
        /// Zero, until the scheduler ends it; a note for each slot, so that nobody sees it who has
        /// not come that far. With one request in flight there is none unless a policy may decline.
        note: Option<SharedArray<'k, u32>>,
        /// How many requests may be in flight.
        depth: u32,
    },
}

/// The slot at an address.
fn here<'k>(address: Var<'k, u32>) -> Ptr<'k, Shared, u32> {
    Ptr::<Shared, u32>::from_address(address.get())
}

/// What the note in place of the next answer says.
fn written<'k>(note: SharedArray<'k, u32>, request: Request<'k>) -> Val<'k, u32> {
    note.at(request.stage() * NOTE).load()
}

impl<'k> Channel<'k> {
    /// Makes it; the whole cluster takes part and is synchronised when it returns.
    pub(crate) fn new(k: &Kernel<'k>) -> Channel<'k> {
        let blocks = k.cluster_size();
        if blocks == 1 {
            // Aligned so that one bit of the address tells the slots apart.
            let slot = k.shared_aligned::<u32>("heist_next", 2, 8);
            let wiring = Wiring::Block(k.var(slot.ptr().address()).named("next_slot"));
            return Channel { k: *k, wiring };
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
        k.one_thread(|| full.first().arrive_expecting(WORD));
        Channel {
            k: *k,
            wiring: Wiring::Handed {
                slot,
                full: full.first().waiter(),
                empty: empty.first(),
                // Before the first message all slots are empty: the phase
                // before the first counts as ended.
                emptied: k.var(1u32).named("emptied"),
            },
        }
    }

    /// The same for threads that may be a tile apart.
    pub(crate) fn apart(k: &Kernel<'k>) -> Channel<'k> {
        let slots = k.shared::<u32>("heist_next", SLOTS);
        let blocks = k.cluster_size();
        let [full, empty] = k.mbarriers([
            BarrierSpec {
                name: "heist_full",
                count: SLOTS,
                arrivals: 1,
            },
            BarrierSpec {
                name: "heist_empty",
                count: SLOTS,
                arrivals: match blocks {
                    1 => k.threads(),
                    _ => blocks * k.threads().div_ceil(32),
                },
            },
        ]);
        if blocks > 1 {
            // Each block arms its own slots, and again when it has read a word.
            k.one_thread(|| (0..SLOTS).for_each(|slot| full.at(slot).arrive_expecting(WORD)));
        }
        Channel {
            k: *k,
            wiring: Wiring::Apart {
                slots,
                full,
                empty,
                read: k.ring_cursor(SLOTS, 0),
                write: k.ring_cursor(SLOTS, 1),
            },
        }
    }

    /// The same for answers that the hardware sends to every block of a cluster; `declines` says
    /// whether a policy may decline to ask, `depth` how many requests may be in flight.
    pub(crate) fn answered(k: &Kernel<'k>, declines: bool, depth: u32) -> Channel<'k> {
        let slots = if depth > 1 { depth + 1 } else { 1 };
        let note = (declines || depth > 1).then(|| {
            let note = k.shared_aligned::<u32>("heist_note", NOTE * slots, 16);
            // The barriers of the request, made next, synchronise the cluster.
            k.one_thread(|| {
                for slot in 0..slots {
                    note.at(NOTE * slot).store(0u32);
                }
            });
            note
        });
        let request = k.clc_multicast_request(depth);
        Channel {
            k: *k,
            wiring: Wiring::Answered {
                request,
                note,
                depth,
            },
        }
    }

    /// The request whose answers come through here by themselves.
    pub(crate) fn request(&self) -> Option<Request<'k>> {
        match self.wiring {
            Wiring::Answered { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Sends a word. The scheduler thread alone calls this; not where the hardware answers.
    #[track_caller]
    pub(crate) fn send(&self, word: Val<'k, u32>) {
        match self.wiring {
            Wiring::Block(slot) => here(slot).store(word),
            Wiring::Apart {
                slots,
                full,
                empty,
                write,
                ..
            } => {
                let slot = write.stage();
                match self.k.cluster_size() {
                    1 => {
                        empty.at(slot).wait(write.parity());
                        slots.at(slot).store(word);
                        full.at(slot).arrive();
                    }
                    blocks => {
                        empty.at(slot).wait_for_copies(write.parity());
                        for rank in 0..blocks {
                            let full = full.at(slot).on(rank);
                            slots.at(slot).on(rank).store_async(word, &full);
                        }
                    }
                }
                write.advance();
            }
            Wiring::Handed {
                slot,
                full,
                empty,
                emptied,
            } => {
                empty.wait_for_copies(emptied.get());
                emptied.update(|parity| parity ^ 1);
                for rank in 0..self.k.cluster_size() {
                    let full = full.barrier().on(rank);
                    slot.ptr().on(rank).store_async(word, &full);
                }
            }
            Wiring::Answered { .. } => {}
        }
    }

    /// In the scheduler thread, in place of a request that the hardware would answer: no block
    /// gets another tile.
    #[track_caller]
    pub(crate) fn decline(&self) {
        if let Wiring::Answered {
            request,
            note: Some(note),
            ..
        } = self.wiring
        {
            let (full, slot) = request.in_place_of_an_answer();
            let note = note.at(slot * NOTE);
            for rank in 0..self.k.cluster_size() {
                let words = [self.k.c(1u32); NOTE as usize];
                note.on(rank).store_async_vec(words, &full.on(rank));
            }
        }
    }

    /// Waits for the word and looks at it, in one thread of each block of a cluster, before all of
    /// them receive it.
    #[track_caller]
    pub(crate) fn peek(&self) -> Val<'k, u32> {
        match self.wiring {
            Wiring::Block(slot) => here(slot).load(),
            Wiring::Apart {
                slots, full, read, ..
            } => {
                let full = full.at(read.stage());
                match self.k.cluster_size() {
                    1 => full.wait(read.parity()),
                    _ => full.wait_for_copies(read.parity()),
                }
                slots.at(read.stage()).load()
            }
            Wiring::Handed { slot, full, .. } => {
                full.barrier().wait_for_copies(full.parity());
                slot.ptr().load()
            }
            Wiring::Answered { request, note, .. } => {
                request.wait();
                let next = self.k.var(NONE);
                let look = || request.look(|first| next.set(self.index(first)), || {});
                match note {
                    Some(note) => self.k.if_(written(note, request).eq(0u32), look),
                    None => look(),
                }
                next.get()
            }
        }
    }

    /// The index of the cluster of tiles whose first block was granted.
    #[track_caller]
    fn index(&self, first: Dim3<'k>) -> Val<'k, u32> {
        let [cluster_x, ..] = self.k.cluster_shape();
        first.x / cluster_x
    }

    /// Of several answers in flight, the next grant, or the note that there is none.
    #[track_caller]
    fn next_grant(&self, request: Request<'k>, note: SharedArray<'k, u32>) -> Val<'k, u32> {
        let next = self.k.var(NONE);
        self.k.loop_(|flow| {
            request.wait();
            flow.break_if(written(note, request).ne(0u32));
            request.look(|first| next.set(self.index(first)), || request.advance());
            flow.break_if(next.get().ne(NONE));
        });
        next.get()
    }

    /// Receives the word. Every thread of the cluster calls this, and [`Channel::release`] before
    /// the next word.
    #[track_caller]
    pub(crate) fn receive(&self) -> Val<'k, u32> {
        match self.wiring {
            Wiring::Block(slot) => {
                self.k.sync();
                let word = self.peek();
                slot.update(|at| at ^ 4);
                word
            }
            Wiring::Apart {
                full, empty, read, ..
            } => {
                let k = self.k;
                let word = self.peek();
                match k.cluster_size() {
                    1 => empty.at(read.stage()).arrive(),
                    _ => {
                        k.sync_warp();
                        k.if_(k.lane().eq(0), || {
                            k.one_thread(|| full.at(read.stage()).arrive_expecting(WORD));
                            empty.at(read.stage()).on(0u32).arrive_after_reading();
                        });
                    }
                }
                read.advance();
                word
            }
            Wiring::Handed { full, .. } => {
                let word = self.peek();
                full.advance();
                word
            }
            Wiring::Answered {
                request,
                note: Some(note),
                depth: 2..,
            } => self.next_grant(request, note),
            Wiring::Answered { .. } => self.peek(),
        }
    }

    /// Every thread of the cluster has received the word, and there will be another.
    #[track_caller]
    pub(crate) fn release(&self) {
        match self.wiring {
            Wiring::Block(_) | Wiring::Apart { .. } => {}
            Wiring::Handed { full, empty, .. } => {
                self.k.sync();
                self.k.one_thread(|| {
                    full.barrier().arrive_expecting(WORD);
                    empty.on(0u32).arrive_after_reading();
                });
            }
            Wiring::Answered { request, .. } => {
                request.release();
                request.advance();
            }
        }
    }
}
