//! A cluster of blocks while it runs; most kernels have clusters of one.

use super::barrier;
use super::executable::Executable;
use super::load::Shapes;
use super::site::Work;
use super::spares::Spares;
use super::step::{Slice, run_slice};
use crate::code::{Code, Wait};
use crate::lanes::{ALL, Mask};
use crate::race::clock::{Agent, WarpClock};
use crate::special::Standing;
use crate::state::block::Block;
use crate::state::machine::Machine;
use crate::state::team::{Happening, Team};
use crate::state::warp::{State, Warp};
use std::cmp::Reverse;

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
    /// Bytes between DRAM and L2 that are in no job yet.
    pub(crate) moved: u64,
}

/// Schedulers of an SM.
const SCHEDULERS: f64 = 4.0;

/// Why a cluster stopped running for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// All threads have exited.
    Done,
    /// It is about to interact with the device at this time, or has run for long without.
    At(u64),
    /// No warp can ever continue.
    Deadlock,
    /// The launch is over: a trap, or the budget.
    Stopped,
}

/// Instructions after which the clock is read.
const LOOK: u64 = 1 << 14;
/// What a slice costs besides its instructions, in instructions.
const SLICE: u64 = LOOK / 16;
/// Instructions of a cluster without an interaction with the device, after which the others get their
/// turn: it may wait for them by plain loads. Where no instruction passes anything on between blocks
/// it is far more, since then only a broken kernel waits.
const PATIENCE: u64 = 1 << 20;
const PATIENCE_ALONE: u64 = 1 << 24;
/// Events between two looks at the clock.
const EVENTS: u32 = 64;

impl Cluster {
    /// Launches cluster `number` on an SM.
    pub(crate) fn launch(
        number: u32,
        sm: u32,
        time: u64,
        code: &Code,
        machine: &mut Machine,
        spares: &mut Spares,
    ) -> Box<Cluster> {
        let mut cluster = spares.cluster().unwrap_or_default();
        let size = machine.cluster_shape.count() as u32;
        let threads = machine.launch.block.count() as u32;
        let warps = threads.div_ceil(32);
        let first = number * size * warps;
        let agents = (size * warps) as usize;
        (cluster.number, cluster.reached, cluster.ended) = (number, time, false);
        cluster.moved = 0;
        cluster.team.restart(first, agents, time);
        cluster.blocks.resize_with(size as usize, Block::new);
        cluster.warps.resize_with(agents, || None);
        for rank in 0..size {
            let block_number = number * size + rank;
            let ctaid = machine.coordinates(u64::from(block_number));
            let block = &mut cluster.blocks[rank as usize];
            block.restart(spares.shared());
            let defers = machine.options.checks.races && !code.shape.asynchronous;
            block.shared.reset(machine.shared_len as usize, defers);
            let reserved = &machine.shared_reserved;
            block.shared.mark(reserved.start.into(), reserved.len());
            (block.ctaid, block.number, block.end) = (ctaid, block_number, time);
            (block.live, block.live_warps) = (threads, warps);
            block.sm = (sm * size + rank) % machine.device.gpu().sms.max(1);
            let standing = Standing {
                block: machine.launch.block,
                grid: machine.launch.grid,
                cluster: machine.cluster_shape,
                ctaid,
                warp: 0,
                sm,
                sms: machine.device.gpu().sms,
                dynamic_shared: machine.launch.dynamic_shared,
                total_shared: machine.shared_len - machine.shared_reserved.len() as u32,
                reserved: machine.shared_reserved.start,
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
                let (mut made, known) = match spare.or_else(|| spares.warp()) {
                    Some(mut spare) => {
                        // Its special registers were set for the same thread of another block.
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
    pub(crate) fn run(
        &mut self,
        executable: &Executable,
        machine: &mut Machine,
        until: u64,
    ) -> Pause {
        // Work since the clock was read: instructions, and what a slice costs besides.
        let mut since = 0;
        let patience = match executable.code.shape.isolated {
            true => PATIENCE_ALONE,
            false => PATIENCE,
        };
        let begun = machine.stats.warp_instructions;
        loop {
            let look = since >= LOOK;
            if machine.stopped || machine.is_spent(look) {
                return Pause::Stopped;
            }
            if look {
                since = 0;
            }
            let Some(at) = self.next(&executable.code, machine) else {
                if machine.is_over() {
                    return Pause::Stopped;
                }
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
            let before = machine.stats.warp_instructions;
            let slice = run_slice(
                at,
                &mut warp,
                &mut self.blocks,
                &mut self.team,
                machine,
                executable,
                block_until,
                until,
            );
            since += SLICE + machine.stats.warp_instructions - before;
            let time = warp.cycle;
            self.warps[at] = Some(warp);
            match slice {
                Slice::Later => {
                    self.team.enqueue(at, time);
                    let long = machine.stats.warp_instructions - begun > patience;
                    if long && until != u64::MAX {
                        self.settle();
                        return Pause::At(self.team.next_ready());
                    }
                }
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

    /// The job up to a local time: its demand on the SMs since the last one.
    pub(crate) fn job(&mut self, until: u64, shapes: &mut Shapes) -> Work {
        let until = until.max(self.reached);
        let from = std::mem::replace(&mut self.reached, until);
        let schedulers = SCHEDULERS * self.blocks.len() as f64;
        let warps = self.warps.iter_mut().flatten();
        let stretches = warps.map(|warp| &mut warp.stretches);
        let pieces = shapes.pieces(stretches, from, until, schedulers);
        let traffic = match until - from {
            0 => 0.0,
            cycles => std::mem::take(&mut self.moved) as f64 / cycles as f64,
        };
        Work { pieces, traffic }
    }

    /// The end of its last block.
    pub(crate) fn end(&self) -> u64 {
        let ends = self.blocks.iter().map(|block| block.end);
        ends.max().unwrap_or(self.reached)
    }

    /// The next warp that can run, after everything that happens before it.
    fn next(&mut self, code: &Code, machine: &mut Machine) -> Option<usize> {
        let mut events = 0u32;
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
                    // One is dear where tens of thousands of copies are under way.
                    events += 1;
                    if events.is_multiple_of(EVENTS) && machine.is_over() {
                        return None;
                    }
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
                // Another event has advanced it in the meantime.
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
        barrier::settle_cluster(&mut self.team, &mut self.warps, &self.blocks);
    }

    /// Last resorts when no warp can run: lanes that wait at a join continue alone, and
    /// instructions run without the missing lanes.
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

    /// Whether every live thread waits for something that can't happen.
    pub(crate) fn waits(
        &self,
    ) -> impl Iterator<Item = (&Warp, &crate::state::warp::Fragment, Wait)> {
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
            if special.is_wide() {
                use crate::lanes::Lane;
                let value = standing.wide_value(special);
                u64::pack(&[value; 32], &mut warp.regs[row..row + rows]);
            } else {
                warp.regs[row].0 = standing.values(special);
            }
        }
        row += rows;
    }
}
