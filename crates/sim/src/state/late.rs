//! Reads that race with a write of the same block, and whether their values matter.
//!
//! Compilers of tiles have several threads load the same element, where a tile has fewer elements
//! than a block has threads, and let one of them update it in place. Nothing orders the other loads
//! before that store, but what they read is dropped. So before such a race is told, the launch is run twice more:
//! to see which thread updates which byte, and to follow what the other threads have read
//! (`crate::access::late`). If none of it has an effect, the race is none that anybody could notice.

use crate::race::clock::Agent;
use rustc_hash::{FxHashMap, FxHashSet};

/// Bytes whose writers are noted; with more of them the races are told.
const MOST: usize = 1 << 20;

/// What is known of such reads, from run to run.
#[derive(Debug, Default)]
pub(crate) struct Late {
    pub(crate) pass: Pass,
    /// The loads and stores that race, by their places in the code.
    pub(crate) loads: FxHashSet<u32>,
    pub(crate) stores: FxHashSet<u32>,
    /// How often such a race was told, by rule and place.
    pub(crate) told: FxHashMap<(&'static str, u32), u64>,
    /// Which thread writes a byte of an allocation; none if several do.
    pub(crate) owners: FxHashMap<(usize, u64), Option<(Agent, u8)>>,
    /// Whether a value that was read too late has had an effect, or can't be followed.
    pub(crate) matters: bool,
}

/// What a run is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pass {
    /// To find the races.
    #[default]
    Finds,
    /// To note who writes.
    Notes,
    /// To follow what others read.
    Follows,
}

impl Late {
    /// Notes a race that is told, in the first run.
    pub(crate) fn race(&mut self, told: (&'static str, u32), load: u32, store: u32) {
        if self.pass == Pass::Finds {
            *self.told.entry(told).or_default() += 1;
            self.loads.insert(load);
            self.stores.insert(store);
        }
    }

    /// Notes that a thread writes a byte.
    pub(crate) fn writes(&mut self, byte: (usize, u64), by: (Agent, u8)) {
        self.matters |= self.owners.len() >= MOST;
        if !self.matters {
            let owner = self.owners.entry(byte).or_insert(Some(by));
            *owner = owner.filter(|one| *one == by);
        }
    }
}
