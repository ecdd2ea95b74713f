//! A cluster of blocks while it runs; most kernels have clusters of one.

use super::barrier::{self, Barrier};
use super::load::Shapes;
use super::site::Piece;
use super::step::{Slice, run_slice};
use super::warp::{State, Warp};
use crate::code::{Code, Wait};
use crate::lanes::{ALL, Mask, each};
use crate::race::clock::{Agent, Clock, WarpClock};
use crate::race::shadow::Floor;
use crate::special::Standing;
use crate::state::machine::Machine;
use crate::state::memory::region::Region;
use heist_launch::Dim3;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Named barriers of a block.
pub(crate) const BARRIERS: usize = 16;

/// A block's own state.
pub(crate) struct Block {
    /// Its coordinates, and its number in the order of launch.
    pub(crate) ctaid: Dim3,
    pub(crate) number: u32,
    pub(crate) shared: Region,
    /// Threads and warps that have not exited.
    pub(crate) live: u32,
    pub(crate) live_warps: u32,
    pub(crate) barriers: [Barrier; BARRIERS],
    /// One bit for each of them that somebody has come to.
    pub(crate) used_barriers: u16,
    pub(crate) mbarriers: crate::ops::mbarrier::Mbarriers,
    pub(crate) flights: crate::access::flight::Flights,
    pub(crate) expected: crate::ops::copy::cp_async::Expected,
    pub(crate) registers: crate::ops::warp::registers::Pool,
    pub(crate) issued: crate::ops::wgmma::pending::Issued,
    pub(crate) end: u64,
}

impl Block {
    /// Room for one.
    fn new() -> Block {
        Block {
            ctaid: Dim3::ONE,
            number: 0,
            shared: Region::default(),
            live: 0,
            live_warps: 0,
            barriers: Default::default(),
            used_barriers: 0,
            mbarriers: Default::default(),
            flights: Default::default(),
            expected: Default::default(),
            registers: Default::default(),
            issued: Default::default(),
            end: 0,
        }
    }

    /// Back to the start, for another block; its place, threads and memory are still to
    /// be set. It keeps its buffers, but for shared memory where another is given.
    fn restart(&mut self, shared: Option<Region>) {
        if let Some(shared) = shared {
            self.shared = shared;
        }
        for id in each(std::mem::take(&mut self.used_barriers).into()) {
            self.barriers[id].restart();
        }
        self.mbarriers = Default::default();
        self.flights = Default::default();
        self.expected = Default::default();
        self.registers = Default::default();
        self.issued = Default::default();
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.live == 0
    }
}

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
    /// Counts everything that could end somebody's wait.
    pub(crate) progress: u64,
    /// Barriers that are complete, by rank and number.
    pub(crate) completed: Vec<(u32, u32)>,
    /// Mbarriers whose phase completed, by rank and offset, and when.
    pub(crate) phases: Vec<(u32, u32, u64)>,
    pub(crate) cluster_barrier: crate::ops::barrier::cluster::ClusterBarrier,
    pub(crate) control: crate::ops::clc::Control,
    /// Generic accesses that a proxy fence has ordered before asynchronous ones.
    pub(crate) proxied: Clock,
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    timers: BinaryHeap<Reverse<(u64, usize)>>,
    events: BinaryHeap<Reverse<Event>>,
    events_made: u64,
}

/// Something that happens to a cluster at a moment: an answer, a copied tile.
struct Event {
    time: u64,
    order: u64,
    act: Box<dyn FnOnce(&mut Happening<'_>) + Send + Sync>,
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
        let span = self.code.span(pc);
        let line = self.code.source_line(pc);
        self.machine.findings.report(rule, pc, || {
            let mut told = heist_ptx::Diagnostic::error(rule, span, message).help(help);
            if let Some(line) = line {
                told.notes.push(format!("source line {line}"));
            }
            told
        });
    }
}

impl Team {
    /// Back to the start, for another cluster; keeps its buffers.
    fn restart(&mut self, first: Agent, agents: usize, time: u64) {
        (self.first, self.agents) = (first, agents);
        (self.start, self.offset) = (time, 0);
        self.floor = Floor::new(first, agents);
        (self.progress, self.events_made) = (0, 0);
        self.completed.clear();
        self.phases.clear();
        self.cluster_barrier = Default::default();
        self.control = Default::default();
        self.proxied.restart(first, agents);
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

    fn next_ready(&self) -> u64 {
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

/// A cluster that has been launched.
#[derive(Default)]
pub(crate) struct Cluster {
    pub(crate) blocks: Vec<Block>,
    pub(crate) warps: Vec<Option<Box<Warp>>>,
    pub(crate) team: Team,
    /// Its number in the order of launch.
    pub(crate) number: u32,
    /// The time of its own up to which its jobs reach, and whether it has ended then.
    pub(crate) reached: u64,
    pub(crate) ended: bool,
}

/// Schedulers of an SM.
const SCHEDULERS: f64 = 4.0;

/// Why a cluster stopped running for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// All threads have exited.
    Done,
    /// It is about to interact with the device at this time.
    At(u64),
    /// Nobody can go on, ever.
    Deadlock,
    /// The launch is over: a trap, or the budget.
    Stopped,
}

impl Cluster {
    /// Launches cluster `number` on an SM.
    pub(crate) fn launch(
        number: u32,
        sm: u32,
        time: u64,
        code: &Code,
        machine: &mut Machine,
    ) -> Box<Cluster> {
        // In the buffers of one that has ended, where there is one: short blocks are
        // launched as often as they run a few hundred instructions.
        let mut cluster = machine.pool.spare_cluster().unwrap_or_default();
        let size = machine.cluster_shape.count() as u32;
        let threads = machine.launch.block.count() as u32;
        let warps = threads.div_ceil(32);
        let first = number * size * warps;
        let agents = (size * warps) as usize;
        (cluster.number, cluster.reached, cluster.ended) = (number, time, false);
        cluster.team.restart(first, agents, time);
        cluster.blocks.resize_with(size as usize, Block::new);
        cluster.warps.resize_with(agents, || None);
        for rank in 0..size {
            let block_number = number * size + rank;
            let ctaid = machine.coordinates(u64::from(block_number));
            let block = &mut cluster.blocks[rank as usize];
            block.restart(machine.pool.spare_shared());
            let defers = machine.options.checks.races && !code.shape.asynchronous;
            block.shared.reset(machine.shared_len as usize, defers);
            (block.ctaid, block.number, block.end) = (ctaid, block_number, time);
            (block.live, block.live_warps) = (threads, warps);
            let standing = Standing {
                block: machine.launch.block,
                grid: machine.launch.grid,
                cluster: machine.cluster_shape,
                ctaid,
                warp: 0,
                sm,
                sms: machine.device.gpu().sms,
                dynamic_shared: machine.launch.dynamic_shared,
                total_shared: machine.shared_len,
                workspace: machine.workspace,
            };
            for warp in 0..warps {
                let lanes = lanes_of(warp, threads);
                // A little spread, so that different seeds give different orders.
                let jitter = if machine.options.seed == 0 {
                    0
                } else {
                    machine.rng.below(64)
                };
                let cycle = time + jitter;
                let at = (rank * warps + warp) as usize;
                let agent = first + at as Agent;
                let spare = cluster.warps[at].take();
                let (mut made, known) = match spare.or_else(|| machine.pool.spare_warp()) {
                    Some(mut spare) => {
                        // Its special registers are of the same thread of another block.
                        let known = (spare.number, spare.rank) == (warp, rank);
                        spare.reuse(warp, rank, lanes, code, (agent, first, agents), cycle);
                        (spare, known)
                    }
                    None => {
                        let clock = WarpClock::new(agent, first, agents);
                        let new = Warp::new(warp, rank, lanes, code, clock, cycle);
                        (Box::new(new), false)
                    }
                };
                made.share = (f64::from(warps) / SCHEDULERS).max(1.0);
                fill_specials(&mut made, code, &Standing { warp, ..standing }, known);
                cluster.team.enqueue(at, cycle);
                cluster.warps[at] = Some(made);
            }
        }
        cluster
    }

    /// Runs until everything is done or something interacts with the rest of the
    /// device after `until`, a time of its own.
    pub(crate) fn run(&mut self, code: &Code, machine: &mut Machine, until: u64) -> Pause {
        let mut slices = 0;
        loop {
            slices += 1;
            if machine.stopped || machine.is_spent(slices) {
                return Pause::Stopped;
            }
            let Some(at) = self.next(code, machine) else {
                if self.blocks.iter().all(Block::has_exited) {
                    return Pause::Done;
                }
                if self.unstick() {
                    continue;
                }
                return Pause::Deadlock;
            };
            let Some(mut warp) = self.warps[at].take() else {
                continue;
            };
            let block_until = self.team.next_ready();
            let slice = run_slice(
                at,
                &mut warp,
                &mut self.blocks,
                &mut self.team,
                machine,
                code,
                block_until,
                until,
            );
            let time = warp.cycle;
            self.warps[at] = Some(warp);
            match slice {
                Slice::Later => self.team.enqueue(at, time),
                Slice::Device => {
                    self.team.enqueue(at, time);
                    self.settle();
                    if self.team.next_ready() >= time {
                        return Pause::At(time);
                    }
                }
                Slice::Blocked | Slice::Done => {}
                Slice::Stop => return Pause::Stopped,
            }
            self.settle();
        }
    }

    /// The job up to a time of its own: what it asked of its SMs since the last one.
    pub(crate) fn job(&mut self, until: u64, shapes: &mut Shapes) -> Arc<[Piece]> {
        let until = until.max(self.reached);
        let from = std::mem::replace(&mut self.reached, until);
        let schedulers = SCHEDULERS * self.blocks.len() as f64;
        let warps = self.warps.iter_mut().flatten();
        let stretches = warps.map(|warp| &mut warp.stretches);
        shapes.pieces(stretches, from, until, schedulers)
    }

    /// The end of its last block.
    pub(crate) fn end(&self) -> u64 {
        let ends = self.blocks.iter().map(|block| block.end);
        ends.max().unwrap_or(self.reached)
    }

    /// The next warp that can run, after everything that happens before it.
    fn next(&mut self, code: &Code, machine: &mut Machine) -> Option<usize> {
        loop {
            let next = self.team.next_ready();
            if next == u64::MAX {
                return None;
            }
            if let Some(Reverse(event)) = self.team.events.peek()
                && event.time == next
            {
                if let Some(Reverse(event)) = self.team.events.pop() {
                    (event.act)(&mut Happening {
                        blocks: &mut self.blocks,
                        team: &mut self.team,
                        machine,
                        code,
                        time: event.time,
                    });
                    self.settle();
                }
                continue;
            }
            if let Some(&Reverse((time, at))) = self.team.timers.peek()
                && time == next
            {
                self.team.timers.pop();
                if let Some(warp) = &mut self.warps[at]
                    && warp.wake(|wait| match wait {
                        Wait::Mbarrier { until, .. } | Wait::Until { time: until } => until <= time,
                        _ => false,
                    })
                {
                    warp.advance(time);
                    self.team.enqueue(at, warp.cycle);
                }
                continue;
            }
            let Reverse((time, at)) = self.team.ready.pop()?;
            let Some(warp) = &mut self.warps[at] else {
                continue;
            };
            if warp.cycle > time {
                // Somebody moved it on in the meantime.
                if warp.is_ready() {
                    self.team.enqueue(at, warp.cycle);
                }
                continue;
            }
            if warp.is_ready() {
                return Some(at);
            }
        }
    }

    /// Ends the waits that the last steps have made pointless.
    fn settle(&mut self) {
        while let Some((rank, id)) = self.team.completed.pop() {
            let block = &mut self.blocks[rank as usize];
            barrier::complete(block, id, &mut self.warps, &mut self.team);
        }
        while let Some((rank, offset, time)) = self.team.phases.pop() {
            for (at, warp) in self.warps.iter_mut().enumerate() {
                if let Some(warp) = warp
                    && warp.wake(|wait| {
                        matches!(wait, Wait::Mbarrier { rank: r, offset: o, .. } if (r, o) == (rank, offset))
                    })
                {
                    warp.advance(time);
                    self.team.enqueue(at, warp.cycle);
                }
            }
        }
        crate::ops::barrier::cluster::settle(&mut self.team, &mut self.warps, &self.blocks);
    }

    /// Last resorts when nobody can run: lanes that wait at a join go on alone,
    /// and instructions run without the lanes that never came.
    fn unstick(&mut self) -> bool {
        let mut any = false;
        for (at, warp) in self.warps.iter_mut().enumerate() {
            if let Some(warp) = warp
                && warp.let_go()
            {
                any = true;
                self.team.enqueue(at, warp.cycle);
            }
        }
        if any {
            return true;
        }
        for (at, warp) in self.warps.iter_mut().enumerate() {
            if let Some(warp) = warp
                && warp.force()
            {
                any = true;
                self.team.enqueue(at, warp.cycle);
            }
        }
        any
    }

    /// Whether every thread that has not exited waits in vain.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (&Warp, &super::warp::Fragment, Wait)> {
        self.warps.iter().flatten().flat_map(|warp| {
            warp.fragments
                .iter()
                .filter_map(move |fragment| match fragment.state {
                    State::Waiting(wait) => Some((&**warp, fragment, wait)),
                    _ => None,
                })
        })
    }
}

fn lanes_of(warp: u32, threads: u32) -> Mask {
    match threads - warp * 32 {
        left if left >= 32 => ALL,
        left => (1 << left) - 1,
    }
}

/// Sets the special registers; where `known` says that they were set for the same
/// thread of another block, only those that differ.
fn fill_specials(warp: &mut Warp, code: &Code, standing: &Standing, known: bool) {
    let mut row = 0;
    for &special in &code.specials {
        let rows = special.rows() as usize;
        if special.is_of_block() {
            let value = standing.value(special, 0);
            warp.regs[row].0.fill(value);
        } else if !known {
            let values = standing.values(special);
            if special.is_wide() {
                use crate::lanes::Lane;
                u64::pack(&values.map(u64::from), &mut warp.regs[row..row + rows]);
            } else {
                warp.regs[row].0 = values;
            }
        }
        row += rows;
    }
}
