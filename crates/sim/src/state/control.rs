//! The launch-control requests of a cluster: what was asked for, granted and used.

use heist_launch::Dim3;
use rustc_hash::FxHashMap;

/// The state of the cluster's requests.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) made: u64,
    pub(crate) in_flight: Vec<Request>,
    /// The blocks, by rank, in which a thread has seen a refusal. PTX says that a block that has
    /// must not ask again, and nothing of its peers.
    pub(crate) refusal_seen: u32,
    pub(crate) granted: Vec<Grant>,
    /// Where answers have arrived: rank and offset.
    pub(crate) slots: Vec<(u32, u32)>,
    /// Where blocks stored for a grant at an address that does not depend on their own rank.
    pub(crate) unplaced: crate::state::control::Unplaced,
    /// The first request of a block with peers whose answer goes to that block alone.
    pub(crate) plain: Option<u32>,
    /// Whether a block has sent anything to a peer, which may be an answer.
    pub(crate) sent: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) slot: u32,
    pub(crate) pc: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) first: Dim3,
    pub(crate) decoded: bool,
    /// Whether its id was used: for an access, a branch, or a message to others.
    pub(crate) used: bool,
    pub(crate) pc: u32,
}

impl Control {
    /// Whether an answer has arrived that covers this byte.
    pub(crate) fn is_slot(&self, rank: u32, offset: u64) -> bool {
        self.slots
            .iter()
            .any(|&(at, slot)| at == rank && offset.wrapping_sub(u64::from(slot)) < 16)
    }

    /// A request of this block that has not been answered, for the check at exit.
    pub(crate) fn unanswered(&self, rank: u32) -> Option<u32> {
        self.in_flight
            .iter()
            .find(|request| request.rank == rank)
            .map(|request| request.pc)
    }

    /// The first grant whose id was never used, and how many of those there are.
    pub(crate) fn dropped(&self) -> Option<(Grant, usize)> {
        let mut dropped = self.granted.iter().filter(|grant| !grant.used);
        let first = dropped.next()?;
        Some((*first, 1 + dropped.count()))
    }

    /// The request whose answer the other blocks can't have got.
    pub(crate) fn kept(&self) -> Option<u32> {
        let granted = !self.granted.is_empty();
        self.plain.filter(|_| granted && !self.sent)
    }
}

/// Where the blocks of a cluster stored something at an address that comes from the
/// first block's place alone: by instruction and address, the block's rank.
pub(crate) type Unplaced = FxHashMap<(u32, u64), u32>;
