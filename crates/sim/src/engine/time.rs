//! A warp's modelled time: when its instructions issue, and when their results are there.

use crate::state::demand::Demand;
use crate::state::warp::Warp;

/// A wait for an operand of at least this many cycles counts as a stall.
const STALL: u64 = 64;

impl Warp {
    /// Counts an instruction: when it issues given its operands, and when its
    /// result is there.
    #[inline]
    pub(crate) fn account(&mut self, op: &crate::engine::executable::Op) {
        let [a, b, rest @ ..] = op.reads;
        let when = |row: u16| self.ready.get(row as usize).copied().unwrap_or(0);
        let mut needed = when(a).max(when(b));
        // Most have no more than two.
        if rest != [0, 0] {
            needed = needed.max(when(rest[0])).max(when(rest[1]));
        }
        let mut there = needed;
        if op.demand != Demand::default() {
            let port = self.cycle + u64::from(op.issue);
            if needed > port + STALL {
                self.stall(port, needed);
            }
            self.cycle = self.cycle.max(port).max(needed);
            self.demand.0 += op.demand.0;
            there = self.cycle + u64::from(op.latency);
        }
        if let Some(ready) = self.ready.get_mut(op.writes as usize)
            && op.writes != 0
        {
            *ready = there;
        }
    }

    /// A long wait for an operand: what came before is a stretch of its own.
    #[cold]
    pub(crate) fn stall(&mut self, port: u64, until: u64) {
        let end = port.max(self.by_units());
        self.stretches.push(self.segment, end, self.demand);
        self.demand = Demand::default();
        self.cycle = end;
        self.segment = until.max(end);
    }

    /// When the units are done that the block's other warps use as well.
    pub(crate) fn by_units(&self) -> u64 {
        self.segment + (f64::from(self.demand.longest()) * self.share) as u64
    }

    /// The time, with what the block's other warps take from the scheduler.
    #[inline]
    pub(crate) fn settle(&mut self) -> u64 {
        self.cycle = self.cycle.max(self.by_units());
        self.stretches.push(self.segment, self.cycle, self.demand);
        self.segment = self.cycle;
        self.demand = Demand::default();
        self.cycle
    }

    /// Moves to a later time.
    pub(crate) fn advance(&mut self, time: u64) {
        self.settle();
        self.cycle = self.cycle.max(time);
        self.segment = self.cycle;
    }
}
