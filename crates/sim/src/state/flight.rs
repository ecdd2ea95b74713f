//! Asynchronous operations in flight, with their sources and destinations.
//!
//! Data of an asynchronous copy is held back until its completion, and the bytes
//! that it will write are known here meanwhile.

use crate::race::clock::Agent;

/// What is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The answer to a launch-control request.
    Answer,
    /// A bulk or tensor copy, or a word for a peer; with a group, if it leaves the
    /// block's shared memory.
    Bulk,
    /// A copy to a peer, at its source.
    Sent,
}

/// One stretch of a block's shared memory that an operation in flight uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) id: u64,
    pub(crate) what: What,
    pub(crate) write: bool,
    /// Whether it combines what it writes with what is there, each word at once.
    pub(crate) reduces: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) pc: u32,
    pub(crate) agent: Agent,
    pub(crate) lane: u8,
}

/// The operations in flight that use a block's shared memory.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    list: Vec<Flight>,
    /// The reductions that there have been, by their places.
    reductions: Vec<u32>,
}

impl Flights {
    pub(crate) fn push(&mut self, flight: Flight) {
        if flight.reduces && !self.reductions.contains(&flight.pc) {
            self.reductions.push(flight.pc);
        }
        self.list.push(flight);
    }

    /// The instructions of the reductions, if reductions do not conflict with each other.
    pub(crate) fn reductions(&self, reduces: bool) -> &[u32] {
        if reduces { &self.reductions } else { &[] }
    }

    /// An operation that one which writes some bytes would disturb.
    pub(crate) fn overwritten(&self, start: u64, end: u64, reduces: bool) -> Option<&Flight> {
        self.list
            .iter()
            .find(|flight| flight.start < end && start < flight.end && !(flight.reduces && reduces))
    }

    /// An operation is done with this memory.
    pub(crate) fn land(&mut self, id: u64) {
        self.list.retain(|flight| flight.id != id);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.list.iter()
    }

    /// An operation that an access to some bytes would disturb, or be disturbed by.
    pub(crate) fn disturbed(&self, start: u64, end: u64, write: bool) -> Option<&Flight> {
        self.list
            .iter()
            .find(|flight| flight.start < end && start < flight.end && (flight.write || write))
    }
}
