//! Asynchronous operations in flight: what they are going to write or still read.
//!
//! Data of an asynchronous copy is held back until its completion, and the bytes
//! that it will write are known here meanwhile.

use crate::race::access::LINE;
use crate::race::clock::Agent;
use rustc_hash::FxHashMap;

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
    /// A `wgmma`.
    Product,
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

/// Some bytes of a line that a warp's part of a product reads.
#[derive(Debug)]
struct Reading {
    bytes: u128,
    flight: Flight,
    /// Whether another warp of the group has waited for the product. It is over then, as
    /// whoever that warp lets know may take it; the warp whose part it is has not waited.
    over: bool,
}

/// The operations in flight that use a block's shared memory.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    list: Vec<Flight>,
    /// What products read, by line.
    lines: FxHashMap<u64, Vec<Reading>>,
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

    /// The places of the reductions, if those do not mind each other.
    pub(crate) fn reductions(&self, reduces: bool) -> &[u32] {
        if reduces { &self.reductions } else { &[] }
    }

    /// An operation that one which writes some bytes, started by `agent`, would disturb.
    pub(crate) fn overwritten(
        &self,
        start: u64,
        end: u64,
        reduces: bool,
        agent: Agent,
    ) -> Option<&Flight> {
        self.list
            .iter()
            .find(|flight| flight.start < end && start < flight.end && !(flight.reduces && reduces))
            .or_else(|| self.product(start, end, agent))
    }

    /// An operation is done with this memory.
    pub(crate) fn land(&mut self, id: u64) {
        self.list.retain(|flight| flight.id != id);
    }

    /// A product reads some bytes of a line.
    pub(crate) fn push_line(&mut self, line: u64, bytes: u128, flight: Flight) {
        self.lines.entry(line).or_default().push(Reading {
            bytes,
            flight,
            over: false,
        });
    }

    /// The products with these numbers are done: a warp has waited for them.
    pub(crate) fn land_products(&mut self, ids: std::ops::RangeInclusive<u64>, waiter: Agent) {
        self.lines.retain(|_, list| {
            list.retain_mut(|reading| {
                let done = ids.contains(&reading.flight.id);
                reading.over |= done;
                !done || reading.flight.agent != waiter
            });
            !list.is_empty()
        });
    }

    /// The product that reads one of some bytes, as far as warp `agent` can know.
    pub(crate) fn product(&self, start: u64, end: u64, agent: Agent) -> Option<&Flight> {
        if self.lines.is_empty() {
            return None;
        }
        (start / LINE as u64..end.div_ceil(LINE as u64)).find_map(|line| {
            let base = line * LINE as u64;
            let (from, to) = (start.max(base) - base, end.min(base + LINE as u64) - base);
            let bytes = u128::MAX >> (LINE as u64 - (to - from)) << from;
            let list = self.lines.get(&line)?;
            let found = list.iter().find(|reading| {
                reading.bytes & bytes != 0 && (!reading.over || reading.flight.agent == agent)
            })?;
            Some(&found.flight)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.lines.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.list.iter()
    }

    /// An operation that an access of `agent` to some bytes would disturb, or be disturbed by.
    pub(crate) fn disturbed(
        &self,
        start: u64,
        end: u64,
        write: bool,
        agent: Agent,
    ) -> Option<&Flight> {
        self.list
            .iter()
            .find(|flight| flight.start < end && start < flight.end && (flight.write || write))
            .or_else(|| {
                if write {
                    self.product(start, end, agent)
                } else {
                    None
                }
            })
    }
}
