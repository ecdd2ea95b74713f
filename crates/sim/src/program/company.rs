//! Launches in several streams, on one simulated GPU.

use super::plan::Plan;
use super::{Memory, Program, Report, report};
use crate::device::Device;
use crate::engine::company::{Company, Guest, Room};
use crate::options::Options;
use crate::rng::Rng;
use heist_launch::{Arguments, BufferRef, Launch};
use heist_ptx::Diagnostic;
use std::time::Instant;

/// A launch that a stream will come to.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    /// The program.
    pub program: &'a Program,
    /// The kernel's name.
    pub entry: &'a str,
    /// How it is launched.
    pub launch: &'a Launch,
    /// What it is given; every launch has memory of its own.
    pub arguments: &'a Arguments,
    /// When the host launches it, in nanoseconds.
    pub not_before: u64,
}

/// Launches that follow each other.
pub struct Stream<'a> {
    /// Less is more urgent, as with CUDA's streams.
    pub priority: i32,
    /// In order.
    pub orders: Vec<Order<'a>>,
}

/// What a launch of a stream gave. Times are nanoseconds of the device.
#[derive(Clone, Debug)]
pub struct Ran {
    /// When it could have begun: it was launched, and its stream had come to it.
    pub ready: u64,
    /// When its last block left.
    pub ended: u64,
    /// Everything else.
    pub report: Report,
}

/// The memory of launches that run.
pub trait Reach {
    /// Writes into the buffer of an argument of what a stream runs now; false if it runs
    /// nothing, or there is no such buffer.
    fn write(&mut self, stream: usize, argument: usize, offset: usize, bytes: &[u8]) -> bool;
    /// Reads from it.
    fn read(&mut self, stream: usize, argument: usize, offset: usize, bytes: &mut [u8]) -> bool;
    /// How many clusters of what a stream runs now wait for a place on the GPU; `None` if it runs
    /// nothing.
    fn waiting(&self, stream: usize) -> Option<u32>;
}

/// The host while kernels run: it reads and writes their memory now and then.
pub trait Host {
    /// When it acts next, in nanoseconds; never before the last time.
    fn next(&self) -> Option<u64>;
    /// It acts; [`Host::next`] is later afterwards.
    fn act(&mut self, now: u64, reach: &mut dyn Reach);
    /// A launch has ended.
    fn ended(&mut self, stream: usize, order: usize, now: u64) {
        let _ = (stream, order, now);
    }
}

/// A host that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Host for Silent {
    fn next(&self) -> Option<u64> {
        None
    }
    fn act(&mut self, _: u64, _: &mut dyn Reach) {}
}

/// From one launch to the next in a stream, in nanoseconds.
const GAP_NS: u64 = 1000;
/// Launches in the queue from which on requests may be refused for no visible reason, and
/// in one of how many launches, as reported from the field.
const CROWD: usize = 10;
const CROWDED: u64 = 40;

/// A stream while it runs.
struct Running {
    /// The order that comes next.
    next: usize,
    /// When the last one ended.
    free_at: u64,
    now: Option<Now>,
}

/// What a stream runs.
struct Now {
    guest: usize,
    memory: Memory,
    ready: u64,
}

struct Floor<'c> {
    company: &'c mut Company,
    running: &'c [Running],
}

impl Floor<'_> {
    fn region<T>(
        &mut self,
        stream: usize,
        argument: usize,
        reach: (usize, usize),
        apply: impl FnOnce(&mut crate::state::memory::region::Region) -> T,
    ) -> Option<T> {
        let now = self.running.get(stream)?.now.as_ref()?;
        let slots = &now.memory.bound.slots;
        let at = slots
            .iter()
            .position(|slot| slot.name == BufferRef::Argument(argument))?;
        if reach.0 + reach.1 > now.memory.lengths[at] {
            return None;
        }
        let guest = self.company.guests[now.guest].as_mut()?;
        let global = &mut guest.machine.global;
        let found = global.find(now.memory.addresses[at])?;
        // Counts as a change, so that a thread that spins on it is no livelock.
        guest.machine.changes += 1;
        Some(apply(&mut global.get_mut(found)?.region))
    }
}

impl Reach for Floor<'_> {
    fn write(&mut self, stream: usize, argument: usize, offset: usize, bytes: &[u8]) -> bool {
        let reach = (offset, bytes.len());
        let write = |region: &mut crate::state::memory::region::Region| {
            region.write_bytes(offset as u64, bytes);
            region.mark(offset as u64, bytes.len());
        };
        self.region(stream, argument, reach, write).is_some()
    }

    fn read(&mut self, stream: usize, argument: usize, offset: usize, bytes: &mut [u8]) -> bool {
        let reach = (offset, bytes.len());
        let read = |region: &mut crate::state::memory::region::Region| {
            bytes.copy_from_slice(region.bytes(offset as u64, reach.1));
        };
        self.region(stream, argument, reach, read).is_some()
    }

    fn waiting(&self, stream: usize) -> Option<u32> {
        let now = self.running.get(stream)?.now.as_ref()?;
        let guest = self.company.guests[now.guest].as_ref()?;
        Some(guest.machine.pool.left())
    }
}

/// Runs the launches of several streams to their end; for each stream, what each launch
/// gave. After a launch in which an error was found, the rest is left out.
///
/// # Errors
/// What kept a launch from starting.
pub fn together(
    device: &Device,
    streams: &[Stream<'_>],
    options: &Options,
    host: &mut dyn Host,
) -> Result<Vec<Vec<Ran>>, Vec<Diagnostic>> {
    let mut party = Party {
        device,
        streams,
        options,
        started: Instant::now(),
        rng: Rng::new(options.seed ^ 0x5eed),
        company: Company::new(
            *device,
            options.budget.time_ns.saturating_mul(1000) / device.cycle_ps(),
        ),
        running: streams
            .iter()
            .map(|_| Running {
                next: 0,
                free_at: 0,
                now: None,
            })
            .collect(),
        ran: streams.iter().map(|_| Vec::new()).collect(),
        stopped: false,
    };
    while party.advance(host)? {}
    Ok(party.ran)
}

/// Everything that runs.
struct Party<'a> {
    device: &'a Device,
    streams: &'a [Stream<'a>],
    options: &'a Options,
    started: Instant,
    rng: Rng,
    company: Company,
    running: Vec<Running>,
    ran: Vec<Vec<Ran>>,
    stopped: bool,
}

impl Party<'_> {
    fn cycles(&self, ns: u64) -> u64 {
        ns.saturating_mul(1000) / self.device.cycle_ps()
    }

    fn nanoseconds(&self, cycles: u64) -> u64 {
        cycles * self.device.cycle_ps() / 1000
    }

    /// The stream whose next launch comes first, and when.
    fn arrival(&self) -> Option<(u64, usize)> {
        let streams = self.running.iter().zip(self.streams).enumerate();
        let ready = streams.filter_map(|(at, (running, stream))| {
            let order = stream.orders.get(running.next)?;
            let ready = order.not_before.max(running.free_at);
            running.now.is_none().then_some((ready, at))
        });
        ready.min()
    }

    /// Lets the next thing happen. False when nothing is left.
    fn advance(&mut self, host: &mut dyn Host) -> Result<bool, Vec<Diagnostic>> {
        if self.stopped {
            return Ok(false);
        }
        let arrival = self.arrival();
        let block = self.company.next_time();
        if arrival.is_none() && block.is_none() {
            return Ok(false);
        }
        let block = block.map(|cycle| self.nanoseconds(cycle));
        let next = arrival.map(|(at, _)| at).into_iter().chain(block).min();
        if let (Some(at), Some(next)) = (host.next(), next)
            && at <= next
        {
            let mut floor = Floor {
                company: &mut self.company,
                running: &self.running,
            };
            host.act(at, &mut floor);
            return Ok(true);
        }
        match arrival {
            Some((ready, stream)) if block.is_none_or(|block| ready <= block) => {
                self.begin(stream, ready)?;
            }
            _ => self.step(host),
        }
        Ok(true)
    }

    fn begin(&mut self, stream: usize, ready: u64) -> Result<(), Vec<Diagnostic>> {
        let Stream { priority, orders } = &self.streams[stream];
        let order = &orders[self.running[stream].next];
        let executable = order.program.executable(order.entry, self.device)?;
        let (program, code) = (order.program, &executable.code);
        let mut options = self.options.clone();
        // Every launch has its own random generator.
        if options.seed != 0 {
            options.seed = self.rng.below(u64::MAX - 1) + 1;
        }
        let queued: usize = self
            .streams
            .iter()
            .zip(&self.running)
            .map(|(stream, running)| stream.orders.len() - running.next)
            .sum();
        if options.chaos.crowded && queued >= CROWD && self.rng.one_in(CROWDED) {
            options.chaos.refusals = 2;
        }
        let plan = Plan::of(
            &program.module,
            order.entry,
            self.device,
            code,
            order.launch,
            &options,
        )?;
        program.fits(order.arguments, &options)?;
        let (mut machine, memory) = program.ready(
            self.device,
            code,
            order.entry,
            order.launch,
            order.arguments,
            &options,
            &plan,
            false,
        )?;
        machine.started = self.started;
        let limits = self.device.gpu().arch.limits();
        let block = Room::of_block(&limits, plan.block);
        let guest = Guest::new(executable, machine, *priority, block);
        let time = self.cycles(ready);
        let guest = self.company.come(guest, time);
        self.running[stream].now = Some(Now {
            guest,
            memory,
            ready,
        });
        Ok(())
    }

    fn step(&mut self, host: &mut dyn Host) {
        let Some((guest, time)) = self.company.step() else {
            return;
        };
        let ended = self.nanoseconds(time);
        let whose = |running: &Running| running.now.as_ref().is_some_and(|now| now.guest == guest);
        let Some(stream) = self.running.iter().position(whose) else {
            return;
        };
        let running = &mut self.running[stream];
        let (Some(now), Some(guest)) = (running.now.take(), self.company.go(guest)) else {
            return;
        };
        let order = running.next;
        running.next += 1;
        running.free_at = ended + GAP_NS;
        let entry = self.streams[stream].orders[order].entry;
        let report = report(entry, guest.machine, &now.memory, guest.spans);
        self.stopped |= report.has_errors();
        self.ran[stream].push(Ran {
            ready: now.ready,
            ended,
            report,
        });
        host.ended(stream, order, ended);
    }
}
