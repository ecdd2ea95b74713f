//! The state that the warps of a cluster share apart from their blocks, and timed events on it.

use super::block::Block;
use super::machine::Machine;
use crate::code::Code;
use crate::race::clock::Agent;
use crate::race::shadow::Floor;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What the warps of a cluster share apart from their blocks.
#[derive(Default)]
pub(crate) struct Team {
    /// The first agent of the cluster, and how many there are.
    pub(crate) first: Agent,
    pub(crate) agents: usize,
    /// When it was launched.
    pub(crate) start: u64,
    /// What the device's time is ahead of the cluster's own.
    pub(crate) offset: u64,
    pub(crate) floor: Floor,
    /// Counts everything that could end a wait.
    pub(crate) progress: u64,
    /// Barriers that are complete, by rank and number.
    pub(crate) completed: Vec<(u32, u32)>,
    /// Mbarriers whose phase completed, by rank and offset, and when.
    pub(crate) phases: Vec<super::mbarrier::PhaseEnd>,
    pub(crate) cluster_barrier: crate::state::barrier::ClusterBarrier,
    pub(crate) control: crate::state::control::Control,
    pub(crate) ready: BinaryHeap<Reverse<(u64, usize)>>,
    pub(crate) timers: BinaryHeap<Reverse<(u64, usize)>>,
    pub(crate) events: BinaryHeap<Reverse<Event>>,
    pub(crate) events_made: u64,
}

/// Something that happens to a cluster at a moment: an answer, a copied tile.
pub(crate) struct Event {
    pub(crate) time: u64,
    pub(crate) order: u64,
    pub(crate) act: Box<dyn FnOnce(&mut Happening<'_>) + Send + Sync>,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        (self.time, self.order) == (other.time, other.order)
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.time, self.order).cmp(&(other.time, other.order))
    }
}

/// What an event sees.
pub(crate) struct Happening<'a> {
    pub(crate) blocks: &'a mut [Block],
    pub(crate) team: &'a mut Team,
    pub(crate) machine: &'a mut Machine,
    pub(crate) code: &'a Code,
    pub(crate) time: u64,
}

impl Happening<'_> {
    /// Reports a broken rule at an instruction that ran earlier.
    pub(crate) fn report(&mut self, rule: heist_ptx::Code, pc: u32, message: String, help: &str) {
        self.machine
            .findings
            .report(rule, pc, || self.code.finding(rule, pc, message).help(help));
    }
}

impl Team {
    /// Back to the start, for another cluster; keeps its buffers.
    pub(crate) fn restart(&mut self, first: Agent, agents: usize, time: u64) {
        (self.first, self.agents) = (first, agents);
        (self.start, self.offset) = (time, 0);
        self.floor = Floor::new(first, agents);
        (self.progress, self.events_made) = (0, 0);
        self.completed.clear();
        self.phases.clear();
        self.cluster_barrier = Default::default();
        self.control = Default::default();
        self.ready.clear();
        self.timers.clear();
        self.events.clear();
    }

    /// A name for an asynchronous operation of the cluster.
    pub(crate) fn new_flight(&mut self) -> u64 {
        self.events_made += 1;
        self.events_made
    }

    /// Puts a warp in line to run at `time`.
    pub(crate) fn enqueue(&mut self, warp: usize, time: u64) {
        self.ready.push(Reverse((time, warp)));
    }

    /// Looks at a warp's waits again at `time`.
    pub(crate) fn set_timer(&mut self, warp: usize, time: u64) {
        self.timers.push(Reverse((time, warp)));
    }

    /// Makes something happen at `time`.
    pub(crate) fn after(
        &mut self,
        time: u64,
        act: impl FnOnce(&mut Happening<'_>) + Send + Sync + 'static,
    ) {
        self.events_made += 1;
        self.events.push(Reverse(Event {
            time,
            order: self.events_made,
            act: Box::new(act),
        }));
    }

    pub(crate) fn next_ready(&self) -> u64 {
        let first = |heap: &BinaryHeap<Reverse<(u64, usize)>>| {
            heap.peek().map_or(u64::MAX, |Reverse((time, _))| *time)
        };
        let event = self
            .events
            .peek()
            .map_or(u64::MAX, |Reverse(event)| event.time);
        first(&self.ready).min(first(&self.timers)).min(event)
    }
}
