//! Who has used an mbarrier, or the shared memory of a peer: the mbarrier's invalidation, and the end of
//! the peer, must come behind all of them.

use super::mbarrier::Mbarrier;
use crate::lanes::{Mask, each, first};
use crate::race::clock::{Agent, WarpClock};

/// What a use does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It arrives, announces or brings bytes: who knows that its phase has ended knows of it.
    Counts,
    /// It waits, and nobody learns of it.
    Looks,
}

/// The last use by some lanes of a warp.
#[derive(Clone, Copy, Debug)]
struct Use {
    agent: Agent,
    clock: u32,
    lanes: Mask,
    pc: u32,
    /// The phase it found.
    phase: u64,
    part: Part,
}

/// The invalidation that has ended an mbarrier's use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) agent: Agent,
    pub(crate) clock: u32,
    pub(crate) lane: u8,
    pub(crate) pc: u32,
}

/// A use that nothing orders before an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unordered {
    /// Who it was; none for a copy that completes here.
    pub(crate) user: Option<(Agent, u8)>,
    pub(crate) pc: u32,
}

/// The users of an mbarrier, or of a block's memory.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// A lane is in one of these at most for each part.
    uses: Vec<Use>,
    /// The last phase that bytes of a copy have come to, and where the copy was started.
    delivered: Option<(u64, u32)>,
}

impl Users {
    /// A lane uses the mbarrier, which is in this phase.
    pub(crate) fn note(
        &mut self,
        (part, phase): (Part, u64),
        clock: &WarpClock,
        lane: u8,
        pc: u32,
    ) {
        let (agent, clock) = (clock.agent, clock.now);
        let same = |one: &Use| {
            (one.agent, one.clock, one.pc) == (agent, clock, pc)
                && (one.phase, one.part) == (phase, part)
        };
        // The lanes of a warp come one after the other.
        if let Some(last) = self.uses.last_mut().filter(|one| same(one)) {
            last.lanes |= 1 << lane;
        } else {
            self.uses.push(Use {
                agent,
                clock,
                lanes: 1 << lane,
                pc,
                phase,
                part,
            });
        }
        let newest = self.uses.len() - 1;
        for one in &mut self.uses[..newest] {
            if (one.agent, one.part) == (agent, part) {
                one.lanes &= !(1 << lane);
            }
        }
        self.uses.retain(|one| one.lanes != 0);
    }

    /// Forgets the uses that one of some lanes knows of.
    pub(crate) fn forget_known(&mut self, clock: &WarpClock, lanes: Mask) {
        for one in &mut self.uses {
            for their in each(one.lanes) {
                let knows =
                    |lane: usize| clock.knows(one.agent, one.clock, their as u8, lane as u8);
                if each(lanes).any(knows) {
                    one.lanes &= !(1 << their);
                }
            }
        }
        self.uses.retain(|one| one.lanes != 0);
    }

    /// The first use that is left: who it was, and where.
    pub(crate) fn left(&self) -> Option<((Agent, u8), u32)> {
        let one = self.uses.first()?;
        Some(((one.agent, first(one.lanes) as u8), one.pc))
    }

    /// Bytes of a copy that was started at `pc` have come to a phase.
    pub(crate) fn delivered(&mut self, phase: u64, pc: u32) {
        self.delivered = Some((phase, pc));
    }
}

impl Mbarrier {
    /// A use that a lane does not know of.
    pub(crate) fn unknown_to(&self, clock: &WarpClock, lane: u8) -> Option<Unordered> {
        let Users { uses, delivered } = &self.users;
        let own = |one: &&Use| one.agent == clock.agent && one.lanes >> lane & 1 != 0;
        // What the lane has found itself is over, whether it has acquired anything or not.
        let found = uses.iter().filter(own).map(|one| one.phase).max();
        let is_over = |phase: u64| {
            found.is_some_and(|found| phase < found)
                || clock.knows(self.agent, phase as u32 + 1, lane, lane)
        };
        let used = uses.iter().find_map(|one| {
            let mut lanes = each(one.lanes).map(|lane| lane as u8);
            let unknown = lanes.find(|&their| {
                let own = one.agent == clock.agent && their == lane;
                let over = || one.part == Part::Counts && is_over(one.phase);
                !(own || clock.knows(one.agent, one.clock, their, lane) || over())
            });
            unknown.map(|their| Unordered {
                user: Some((one.agent, their)),
                pc: one.pc,
            })
        });
        let unwaited = || {
            let (_, pc) = delivered.filter(|&(phase, _)| !is_over(phase))?;
            Some(Unordered { user: None, pc })
        };
        used.or_else(unwaited)
    }
}
