//! mbarriers: arrivals and bytes, in phases.
//!
//! The state is kept outside of the memory, one [`Mbarrier`] for each initialised eight bytes; the
//! bytes themselves are only marked. A phase completes when all expected arrivals and bytes are in.
//! For the race detector an mbarrier is an agent of its own whose clock is its phase: the writes of
//! an asynchronous copy happen before the end of that phase.

use super::flight::What;
use super::users::{Ended, Users};
use crate::race::access::Scope;
use crate::race::clock::{ASYNCHRONOUS, Agent, Clock, Known};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// One initialised mbarrier.
#[derive(Debug)]
pub(crate) struct Mbarrier {
    /// Arrivals that a phase expects, and that are still to come.
    pub(crate) count: u32,
    pub(crate) pending: u32,
    /// Bytes expected and not arrived; negative while more have arrived than were expected.
    pub(crate) bytes: i64,
    /// The sender whose bytes made the count negative; valid only while it is.
    pub(crate) early: Option<Sender>,
    /// Phases completed, and where the last one was.
    pub(crate) phase: u64,
    pub(crate) ended: u32,
    /// The clocks released in this phase, and in the last one.
    pub(crate) told: Told,
    pub(crate) done: Told,
    /// Its name for the race detector.
    pub(crate) agent: Agent,
    /// Who initialised it, and when: agent, clock and lane.
    pub(crate) init: (Agent, u32, u8),
    pub(crate) init_pc: u32,
    pub(crate) users: Users,
    /// Where a launch-control request named it, for messages.
    pub(crate) control: bool,
    pub(crate) latest: u64,
}

/// The bit by which the agent for what threads of peers send (`st.async`) differs from an mbarrier's own.
const OF_PEERS: Agent = 1 << 30;

/// The clocks that arrivals have released.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) all: Clock,
    /// The clock for threads of the own block, where that is less.
    pub(crate) near: Option<Box<Clock>>,
    /// What a peer released with a scope that is too narrow, for messages.
    pub(crate) missed: Option<Arc<Clock>>,
}

impl Told {
    pub(crate) fn new(first: Agent, agents: usize) -> Told {
        Told {
            all: Clock::new(first, agents),
            near: None,
            missed: None,
        }
    }

    /// Joins a clock released by a thread of the own block, or of a peer.
    pub(crate) fn learn(&mut self, clock: &Clock, remote: bool) {
        if remote && self.near.is_none() {
            self.near = Some(Box::new(self.all.clone()));
        }
        if let Some(near) = &mut self.near
            && !remote
        {
            near.join(clock);
        }
        self.all.join(clock);
    }

    /// What a wait of the own block sees, with the scope that it takes to acquire it.
    pub(crate) fn offers(&self, order: Order) -> impl Iterator<Item = (Scope, &Clock)> {
        let near = self.near.as_deref().unwrap_or(&self.all);
        let far = self.near.is_some() && order.reaches(true);
        let far = far.then_some((Scope::Cluster, &self.all));
        std::iter::once((Scope::Block, near)).chain(far)
    }
}

/// The semantics and the scope that an operation on an mbarrier names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// It releases or acquires, which is the default.
    pub(crate) synchronises: bool,
    /// It says `.cta`. By the manual that is also the default, but compilers rely on arrivals at a
    /// peer's mbarrier without a scope.
    pub(crate) narrow: bool,
}

impl Order {
    /// Whether it orders what threads of the own block do, or of a peer.
    pub(crate) fn reaches(self, remote: bool) -> bool {
        !(remote && self.narrow)
    }
}

/// A phase that has ended: rank, offset, and when.
pub(crate) type PhaseEnd = (u32, u32, u64);

/// The mbarriers of a block.
#[derive(Debug, Default)]
pub(crate) struct Mbarriers {
    pub(crate) by_offset: FxHashMap<u32, Mbarrier>,
    /// Where there was one, and is none any more.
    pub(crate) ended: FxHashMap<u32, Ended>,
    pub(crate) made: u32,
    /// The stretch that holds them all, so that most accesses are cleared at once.
    pub(crate) span: Option<(u64, u64)>,
}

impl Mbarriers {
    pub(crate) fn get(&self, offset: u32) -> Option<&Mbarrier> {
        self.by_offset.get(&offset)
    }

    pub(crate) fn get_mut(&mut self, offset: u32) -> Option<&mut Mbarrier> {
        self.by_offset.get_mut(&offset)
    }

    /// The mbarrier that overlaps some bytes.
    #[inline]
    pub(crate) fn overlapping(&self, offset: u64, len: u64) -> Option<u32> {
        let (low, high) = self.span?;
        if offset >= high || offset + len <= low {
            return None;
        }
        self.by_offset
            .keys()
            .copied()
            .find(|&at| u64::from(at) < offset + len && offset < u64::from(at) + 8)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_offset.is_empty()
    }

    /// A name for an asynchronous writer of the block with this number: beyond every
    /// warp's, and different for every one there ever was.
    pub(crate) fn new_agent(&mut self, block: u32) -> Agent {
        self.made += 1;
        ASYNCHRONOUS | block << 10 | self.made & 0x3ff
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Mbarrier)> {
        self.by_offset
            .iter()
            .map(|(&offset, barrier)| (offset, barrier))
    }
}

impl Mbarrier {
    /// Completes the phase, by the instruction at `pc`, if all arrivals and bytes are in. Returns
    /// bytes that it can't wait for.
    #[must_use]
    pub(crate) fn settle(
        &mut self,
        phases: &mut Vec<PhaseEnd>,
        rank: u32,
        offset: u32,
        time: u64,
        pc: u32,
    ) -> Option<Case> {
        self.latest = self.latest.max(time);
        if self.pending != 0 {
            return None;
        }
        if self.bytes != 0 {
            return self.short(rank, offset, pc);
        }
        self.phase += 1;
        self.ended = pc;
        self.pending = self.count;
        let mut over = Clock::default();
        over.learn(self.agent, Known::all(self.phase as u32 + 1));
        self.told.learn(&over, false);
        if self.told.near.is_some() {
            let mut over = Clock::default();
            over.learn(self.agent ^ OF_PEERS, Known::all(self.phase as u32 + 1));
            self.told.learn(&over, true);
        }
        self.done = self.told.clone();
        phases.push((rank, offset, self.latest + 8));
        None
    }

    /// Whether the phase that a parity means is over.
    pub(crate) fn is_over(&self, parity: u32) -> bool {
        self.phase & 1 != u64::from(parity & 1)
    }

    /// The agent and clock of writes that complete in the present phase.
    pub(crate) fn stamp(&self) -> (Agent, u32) {
        (self.agent, self.phase as u32 + 1)
    }

    /// The same for what a thread sends itself: a wait must reach a peer to see what that one has sent.
    pub(crate) fn stamp_from(&self, own: bool) -> (Agent, u32) {
        let (agent, clock) = self.stamp();
        (if own { agent } else { agent ^ OF_PEERS }, clock)
    }

    /// Whether writes of this agent complete here.
    pub(crate) fn has_stamped(&self, agent: Agent) -> bool {
        agent & !OF_PEERS == self.agent & !OF_PEERS
    }
}

/// Arrivals that were requested earlier, at `pc`, with the clock of that time. Returns bytes that
/// the phase can't wait for.
#[must_use]
pub(crate) fn arrive_later(
    barriers: &mut Mbarriers,
    phases: &mut Vec<PhaseEnd>,
    (rank, offset): (u32, u32),
    count: u32,
    clock: &Clock,
    time: u64,
    pc: u32,
) -> Option<Case> {
    let barrier = barriers.get_mut(offset)?;
    barrier.told.learn(clock, false);
    barrier.pending -= count.min(barrier.pending);
    barrier.settle(phases, rank, offset, time, pc)
}

/// What brings bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) what: What,
    /// Where it was started.
    pub(crate) pc: u32,
    /// Whether the block that receives them started it.
    pub(crate) own: bool,
}

/// Why bytes are not waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// A phase has ended since they were sent, with what was done here.
    Late { ended: u32 },
    /// All arrivals are in, with what was done here.
    Short { last: u32 },
    /// The mbarrier's use ends, here or with the block.
    Unclaimed { inval: Option<u32> },
    /// It is another mbarrier now, or none.
    Lost,
}

/// Bytes at an mbarrier that does not wait for them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) sender: Sender,
    pub(crate) rank: u32,
    pub(crate) offset: u32,
    pub(crate) bytes: i64,
    pub(crate) trouble: Trouble,
    pub(crate) init: Option<u32>,
}

impl Mbarrier {
    /// Bytes have arrived. A sender that makes the count negative is remembered until the bytes are
    /// expected; none, if that was reported already.
    pub(crate) fn count_down(&mut self, bytes: u32, sender: Option<Sender>) {
        let before = self.bytes;
        self.bytes -= i64::from(bytes);
        if before >= 0 && self.bytes < 0 {
            self.early = sender;
        }
    }

    /// The bytes that were never expected, if any.
    pub(crate) fn unannounced(&mut self, rank: u32, offset: u32, trouble: Trouble) -> Option<Case> {
        if self.bytes >= 0 {
            return None;
        }
        // Told once.
        let sender = self.early.take()?;
        Some(Case {
            sender,
            rank,
            offset,
            bytes: -self.bytes,
            trouble,
            init: Some(self.init_pc),
        })
    }

    /// Bytes that the phase does not wait for although all its arrivals are in, with
    /// what was done at `last`.
    pub(crate) fn short(&mut self, rank: u32, offset: u32, last: u32) -> Option<Case> {
        self.unannounced(rank, offset, Trouble::Short { last })
    }

    /// Bytes that are left when the mbarrier is invalidated at an instruction.
    pub(crate) fn invalidated(&mut self, rank: u32, offset: u32, pc: u32) -> Option<Case> {
        self.unannounced(rank, offset, Trouble::Unclaimed { inval: Some(pc) })
    }
}
