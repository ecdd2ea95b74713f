//! Several kernels on one GPU: which of them gets the next place on an SM.
//!
//! Each launch has a machine of its own, with its memory and its findings; they share
//! the SMs. A block takes warps, registers, shared memory and a slot of its SM. The most
//! urgent launch with blocks to place comes first, then the one that came first; while
//! none of its blocks fits anywhere, nobody else's is placed. A running block is never
//! stopped.

use super::cluster::Cluster;
use super::dram::Dram;
use super::executable::Executable;
use super::grid::{ClusterSlot, run_cluster};
use super::load::Shapes;
use super::site::{Ended, LAUNCH, Piece, Sites, Work};
use super::spares::Spares;
use crate::device::Device;
use crate::state::machine::Machine;
use heist_launch::{BlockSpan, Time};
use heist_ptx::arch::{Footprint, Limits};
use std::sync::Arc;

/// What an SM has, or a block takes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    blocks: u32,
    warps: u32,
    registers: u32,
    shared: u32,
}

impl Room {
    fn of_sm(limits: &Limits) -> Room {
        Room {
            blocks: limits.blocks_per_sm,
            warps: limits.warps_per_sm,
            registers: limits.registers_per_sm,
            shared: limits.shared_per_sm,
        }
    }

    /// What a block takes.
    pub(crate) fn of_block(limits: &Limits, block: Footprint) -> Room {
        let warps = block.threads.div_ceil(32).max(1);
        let per_warp = (block.registers * 32).next_multiple_of(limits.register_unit.max(1));
        Room {
            blocks: 1,
            warps,
            registers: per_warp * warps,
            shared: (block.shared + limits.shared_reserved)
                .next_multiple_of(limits.shared_unit.max(1)),
        }
    }

    fn holds(&self, block: &Room) -> bool {
        self.blocks >= block.blocks
            && self.warps >= block.warps
            && self.registers >= block.registers
            && self.shared >= block.shared
    }

    fn take(&mut self, block: &Room) {
        self.blocks -= block.blocks;
        self.warps -= block.warps;
        self.registers -= block.registers;
        self.shared -= block.shared;
    }

    fn give_back(&mut self, block: &Room) {
        self.blocks += block.blocks;
        self.warps += block.warps;
        self.registers += block.registers;
        self.shared += block.shared;
    }
}

/// A launch on the device.
pub(crate) struct Guest {
    pub(crate) executable: Arc<Executable>,
    pub(crate) machine: Machine,
    /// Less is more urgent.
    pub(crate) priority: i32,
    /// What one block takes.
    pub(crate) block: Room,
    pub(crate) spans: Vec<BlockSpan>,
    /// Clusters on the device.
    running: u32,
    spares: Spares,
    shapes: Shapes,
}

impl Guest {
    pub(crate) fn new(
        executable: Arc<Executable>,
        machine: Machine,
        priority: i32,
        block: Room,
    ) -> Guest {
        Guest {
            executable,
            machine,
            priority,
            block,
            spans: Vec::new(),
            running: 0,
            spares: Spares::default(),
            shapes: Shapes::default(),
        }
    }

    fn is_done(&self) -> bool {
        self.running == 0 && (self.machine.pool.left() == 0 || self.machine.stopped)
    }
}

/// A cluster on the device: whose it is, where, and how far.
struct Seat {
    guest: usize,
    site: u32,
    place: ClusterSlot,
}

/// All launches that are on the device.
pub(crate) struct Company {
    device: Device,
    sites: Sites,
    /// What each SM has left.
    rooms: Vec<Room>,
    /// By the order in which they came; those that have ended are gone.
    pub(crate) guests: Vec<Option<Guest>>,
    seats: Vec<Seat>,
    free: Vec<usize>,
    starting: Work,
    limit: u64,
}

impl Company {
    /// An empty GPU, and the cycle that the budget ends at.
    pub(crate) fn new(device: Device, limit: u64) -> Company {
        let gpu = device.gpu();
        Company {
            device,
            sites: Sites::new(gpu.sms, Dram::of(gpu)),
            rooms: vec![Room::of_sm(&gpu.arch.limits()); gpu.sms as usize],
            guests: Vec::new(),
            seats: Vec::new(),
            free: Vec::new(),
            starting: Work::without_memory([Piece::idle(LAUNCH)].into()),
            limit,
        }
    }

    /// A launch comes; its number.
    pub(crate) fn come(&mut self, guest: Guest, time: u64) -> usize {
        self.guests.push(Some(guest));
        self.place(time);
        self.guests.len() - 1
    }

    /// A launch that has ended leaves.
    pub(crate) fn go(&mut self, guest: usize) -> Option<Guest> {
        self.guests[guest].take()
    }

    /// When something happens next.
    pub(crate) fn next_time(&mut self) -> Option<u64> {
        self.sites.next_time()
    }

    /// Lets the next thing happen; the launch that has ended by it, if one has, and when.
    pub(crate) fn step(&mut self) -> Option<(usize, u64)> {
        let Ended { time, site, who } = self.sites.next()?;
        let guest = self.seats[who].guest;
        let waits = self.someone_more_urgent_waits(guest);
        let host = self.guests[guest].as_mut()?;
        host.machine.yields = waits;
        let code = &host.executable.code;
        let place = &mut self.seats[who].place;
        if let ClusterSlot::Starting { number } = *place {
            let cluster = Cluster::launch(
                number,
                site,
                time,
                code,
                &mut host.machine,
                &mut host.spares,
            );
            *place = ClusterSlot::Taken(cluster);
        }
        let ClusterSlot::Taken(cluster) = place else {
            return None;
        };
        cluster.team.offset = time - cluster.reached.min(time);
        if !cluster.ended {
            let until = run_cluster(cluster, &host.executable, &mut host.machine, self.limit);
            cluster.moved += host.machine.take_traffic();
            if let Some(until) = until {
                let job = cluster.job(until, &mut host.shapes);
                if cluster.ended {
                    host.spares.strip(cluster);
                }
                self.sites.start(site, who, time, job);
                return None;
            }
            host.spares.strip(cluster);
        }
        self.leave(who, time);
        let ended = self.guests[guest].as_ref().is_some_and(Guest::is_done);
        self.place(time);
        ended.then_some((guest, time))
    }

    /// The launch that comes next: the most urgent one with blocks to place.
    fn front(&self) -> Option<usize> {
        let waiting = self.guests.iter().enumerate().filter_map(|(at, guest)| {
            let guest = guest.as_ref()?;
            let waits = guest.machine.pool.left() > 0 && !guest.machine.stopped;
            waits.then_some((guest.priority, at))
        });
        waiting.min().map(|(_, at)| at)
    }

    fn someone_more_urgent_waits(&self, guest: usize) -> bool {
        let Some(own) = self.guests[guest].as_ref() else {
            return false;
        };
        self.guests.iter().flatten().any(|other| {
            other.priority < own.priority && other.machine.pool.left() > 0 && !other.machine.stopped
        })
    }

    /// Puts blocks on SMs, as many as fit.
    fn place(&mut self, time: u64) {
        while let Some(at) = self.front() {
            let Some(guest) = self.guests[at].as_mut() else {
                return;
            };
            let size = guest.machine.cluster_shape.count() as usize;
            let Some(site) = site_for(&self.rooms, &guest.block, size) else {
                return;
            };
            let Some(number) = guest.machine.pool.take() else {
                return;
            };
            for room in &mut self.rooms[site..site + size] {
                room.take(&guest.block);
            }
            guest.running += 1;
            let seat = Seat {
                guest: at,
                site: site as u32,
                place: ClusterSlot::Starting { number },
            };
            let who = match self.free.pop() {
                Some(who) => {
                    self.seats[who] = seat;
                    who
                }
                None => {
                    self.seats.push(seat);
                    self.seats.len() - 1
                }
            };
            self.sites
                .start(site as u32, who, time, self.starting.clone());
        }
    }

    /// A cluster has left its SMs.
    fn leave(&mut self, who: usize, time: u64) {
        let seat = &mut self.seats[who];
        let (at, site) = (seat.guest, seat.site);
        let place = std::mem::replace(&mut seat.place, ClusterSlot::Free);
        self.free.push(who);
        let (Some(guest), ClusterSlot::Taken(cluster)) = (self.guests[at].as_mut(), place) else {
            return;
        };
        let machine = &mut guest.machine;
        let size = machine.cluster_shape.count() as usize;
        for room in &mut self.rooms[site as usize..site as usize + size] {
            room.give_back(&guest.block);
        }
        guest.running -= 1;
        let cycle_ps = self.device.cycle_ps();
        machine.stats.cycles = machine.stats.cycles.max(time);
        for (rank, block) in cluster.blocks.iter().enumerate() {
            machine.stats.blocks += 1;
            guest.spans.push(BlockSpan {
                block: machine.launch.grid.linear(block.ctaid) as u32,
                cluster: cluster.number,
                sm: site + rank as u32,
                start: Time(cluster.team.start * cycle_ps),
                end: Time((block.end + cluster.team.offset) * cycle_ps),
            });
        }
        guest.spares.keep(cluster);
    }
}

/// The first of `size` neighbouring SMs that have room for a block each: where most is
/// free, and of equals the first.
fn site_for(rooms: &[Room], block: &Room, size: usize) -> Option<usize> {
    let mut best: Option<((u32, u32), usize)> = None;
    for (group, sms) in rooms.chunks_exact(size).enumerate() {
        if !sms.iter().all(|room| room.holds(block)) {
            continue;
        }
        let free = sms.iter().map(|room| (room.warps, room.shared)).min();
        let free = free.unwrap_or((0, 0));
        if best.is_none_or(|(most, _)| free > most) {
            best = Some((free, group * size));
        }
    }
    best.map(|(_, site)| site)
}
