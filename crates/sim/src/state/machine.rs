//! The device while a kernel runs on it: its memory, its options, its findings.

use super::memory::global::Global;
use super::memory::region::Region;
use crate::device::Device;
use crate::findings::Findings;
use crate::options::Options;
use crate::race::access::Geography;
use crate::race::sync::Flags;
use crate::rng::Rng;
use heist_launch::{Dim3, Launch};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State that every block of a launch shares.
pub(crate) struct Machine {
    pub(crate) device: Device,
    pub(crate) options: Options,
    pub(crate) launch: Launch,
    pub(crate) cluster_shape: Dim3,
    pub(crate) geography: Geography,
    pub(crate) global: Global,
    /// What was asked of its traffic before.
    pub(crate) traffic: u64,
    /// Constant variables and kernel parameters, one region each.
    pub(crate) constants: Region,
    pub(crate) constant_len: u64,
    pub(crate) params: Region,
    pub(crate) param_len: u64,
    pub(crate) flags: Flags,
    pub(crate) findings: Findings,
    pub(crate) late: super::late::Late,
    pub(crate) rng: Rng,
    pub(crate) stats: Stats,
    pub(crate) printed: String,
    /// Clusters not launched yet.
    pub(crate) pool: super::pool::Pool,
    pub(crate) tensor_maps: super::tensor_map::TensorMaps,
    /// The tensor memory of each SM.
    pub(crate) columns: super::tensor_memory::Pool,
    pub(crate) decisions: Vec<heist_launch::Decision>,
    /// How atomics on one address wait for each other.
    pub(crate) contention: super::contention::Contention,
    /// Bytes of a block's shared memory, and where they start in its stretch of the window.
    pub(crate) shared_len: u32,
    pub(crate) shared_start: u32,
    /// Those of them that are reserved for the system, where the kernel names them.
    pub(crate) shared_reserved: Range<u32>,
    /// The workspace of a cooperative grid's barrier; 0 for none.
    pub(crate) workspace: u64,
    /// Bytes that the stacks of warps have taken since they were launched.
    pub(crate) grown: u64,
    /// Counts stores and atomics, to detect livelock.
    pub(crate) changes: u64,
    pub(crate) spinners: Spinners,
    /// The shapes of recent accesses.
    pub(crate) patterns: super::pattern::Patterns,
    pub(crate) stopped: bool,
    /// For a worker beside others: whether one of them has given up, so that what the others do is for nothing.
    pub(crate) given_up: Option<Arc<AtomicBool>>,
    /// Whether a more urgent kernel waits for room: then launch control refuses.
    pub(crate) yields: bool,
    pub(crate) started: std::time::Instant,
}

/// What is known of warps that read the same words again and again.
#[derive(Debug, Default)]
pub(crate) struct Spinners {
    /// One has read in vain for so long that all warps are to be looked at.
    pub(crate) look: bool,
    /// A thread has read a clock, so a loop may end by itself.
    pub(crate) timed: bool,
    /// The number of changes since which everybody spins or waits for those who do.
    pub(crate) alone: Option<u64>,
}

impl Spinners {
    /// Strong reads of a warp without any write in between, after which it spins.
    pub(crate) const OFTEN: u32 = 2_000;
    /// As many of all warps together, after which a loop that ends by its own count is not to be
    /// expected any more.
    pub(crate) const ENOUGH: u64 = 500_000;
}

impl Machine {
    /// By how many cycles chaos holds up something asynchronous.
    pub(crate) fn held_up(&mut self) -> u64 {
        match u64::from(self.options.chaos.delay) {
            0 => 0,
            delay => self.rng.below(delay + 1),
        }
    }

    /// The same device before anything ran on it, with a memory of its own that
    /// notes what is touched.
    pub(crate) fn fork(&self) -> Machine {
        Machine {
            device: self.device,
            options: self.options.clone(),
            launch: self.launch,
            cluster_shape: self.cluster_shape,
            geography: self.geography,
            global: self.global.fork(),
            traffic: 0,
            constants: self.constants.fork(),
            constant_len: self.constant_len,
            params: self.params.fork(),
            param_len: self.param_len,
            flags: Flags::default(),
            findings: Findings::default(),
            late: Default::default(),
            rng: Rng::new(self.options.seed),
            stats: Stats::default(),
            printed: String::new(),
            pool: super::pool::Pool::default(),
            // Bulk copies reach beyond a block, and are not run by forks.
            tensor_maps: Default::default(),
            columns: Default::default(),
            decisions: Vec::new(),
            contention: Default::default(),
            shared_len: self.shared_len,
            shared_start: self.shared_start,
            shared_reserved: self.shared_reserved.clone(),
            workspace: self.workspace,
            grown: 0,
            changes: 0,
            spinners: Spinners::default(),
            patterns: Default::default(),
            stopped: false,
            given_up: None,
            yields: false,
            started: self.started,
        }
    }

    /// Bytes between DRAM and L2 since this was asked the last time.
    pub(crate) fn take_traffic(&mut self) -> u64 {
        let all = self.global.traffic();
        all - std::mem::replace(&mut self.traffic, all)
    }

    /// The parameters of the race checks.
    #[inline(always)]
    pub(crate) fn watches(&self) -> (crate::options::Checks, Geography) {
        (self.options.checks, self.geography)
    }

    /// Whether the host has spent as long as it may, from planning on.
    pub(crate) fn is_late(&self) -> bool {
        self.started.elapsed().as_millis() as u64 >= self.options.budget.wall_ms
    }

    /// Whether the run has used up its budget; the clock is read only where `look` says so.
    pub(crate) fn is_spent(&self, look: bool) -> bool {
        self.stats.warp_instructions > self.options.budget.warp_instructions
            || (look && self.is_over())
    }

    /// Whether to go on has no use: it is late, or this is a worker's share of a run that has to be
    /// repeated in order, because this worker or another has found something.
    pub(crate) fn is_over(&self) -> bool {
        let in_vain = |up: &Arc<AtomicBool>| self.findings.len() > 0 || up.load(Ordering::Relaxed);
        self.given_up.as_ref().is_some_and(in_vain) || self.is_late()
    }
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Instructions times the lanes that ran them.
    pub thread_instructions: u64,
    /// Instructions, counted once a warp.
    pub warp_instructions: u64,
    /// Blocks that ran.
    pub blocks: u64,
    /// The longest modelled time of any block's end, in cycles of the SM clock.
    pub cycles: u64,
    /// Whether blocks or warps interact other than by plain accesses, so that the result may depend
    /// on the schedule.
    pub interactions: bool,
}
