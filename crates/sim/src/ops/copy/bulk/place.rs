//! The checks of a copy's source and destination: bounds, races, and proxy fences.

use crate::access::conflict::{place, report_race};
use crate::access::context::Cx;
use crate::access::flight;
use crate::access::group::{Does, Home};
use crate::race::access::{Access, AccessKind, LINE};
use crate::race::clock::Behind;
use crate::state::memory::window::{SharedPlace, Window};
use crate::state::tensor_map::Unready;
use heist_ptx::rule;
use std::ops::Range;

impl Cx<'_> {
    /// The block and offset of an address in the shared window.
    pub(super) fn shared_place(&mut self, lane: usize, address: u64) -> Option<(u32, u32)> {
        let offset = if address < 1 << 32 {
            address
        } else {
            match Window::of(address) {
                (Window::Shared, offset) => offset,
                _ => {
                    self.report(rule::WRONG_WINDOW, 1 << lane, |_, mut told| {
                        told.message = format!("{address:#x} is not an address of shared memory");
                        told
                    });
                    return None;
                }
            }
        };
        let place = SharedPlace::of(offset as u32);
        let rank = place.rank;
        if rank as usize >= self.blocks.len() {
            let size = self.blocks.len();
            self.report(rule::PEER_RANK, 1 << lane, |_, mut told| {
                told.message =
                    format!("uses shared memory of block rank {rank} in a cluster of {size}");
                told
            });
            return None;
        }
        // Below the first byte is beyond the last one.
        let start = self.machine.shared_start;
        Some((rank, place.within.wrapping_sub(start)))
    }

    pub(super) fn is_in_shared(
        &mut self,
        lane: usize,
        rank: u32,
        offset: u32,
        len: u64,
        does: Does,
    ) -> bool {
        let have = u64::from(self.machine.shared_len);
        let fits = u64::from(offset) + len <= have;
        self.team.control.sent |= rank != self.warp.rank && does == Does::Writes;
        if !fits {
            let address = offset.wrapping_add(self.machine.shared_start);
            let at = self.shared_offset(address, 0);
            self.report(rule::SHARED_OUT_OF_BOUNDS, 1 << lane, |_, mut told| {
                told.message = format!(
                    "{} {len} bytes at {at} of shared memory, of which the block has {have} bytes",
                    does.verb()
                );
                told
            });
        }
        if fits && self.blocks[rank as usize].has_exited() {
            self.report(rule::PEER_EXITED, 1 << lane, |_, mut told| {
                told.message = format!(
                    "{} shared memory of block rank {rank} of the cluster, which has exited",
                    does.verb()
                );
                told
            });
            return false;
        }
        fits
    }

    /// The allocation of a stretch of global memory.
    pub(super) fn global_place(
        &mut self,
        lane: usize,
        address: u64,
        len: u64,
        does: Does,
    ) -> Option<(Home, u64)> {
        if let Some(at) = self.machine.global.find(address)
            && let Some(one) = self.machine.global.get(at)
            && address - one.base + len <= one.len
        {
            return Some((Home::Global(at), address - one.base));
        }
        let what = self.machine.global.describe(address);
        self.report(rule::GLOBAL_OUT_OF_BOUNDS, 1 << lane, |_, mut told| {
            told.message = format!("{} {len} bytes of global memory at {what}", does.verb());
            told.help("check the copy's size and address against the buffer")
        });
        None
    }

    /// The bytes of a tensor map, wherever it lies.
    pub(super) fn map_bytes(&mut self, lane: usize, address: u64) -> Option<Vec<u8>> {
        let (window, offset) = Window::of(address);
        match window {
            Window::Param => Some(self.machine.params.bytes(offset, 128).to_vec()),
            Window::Const => Some(self.machine.constants.bytes(offset, 128).to_vec()),
            Window::Global if address >= crate::state::memory::window::GLOBAL => {
                let (home, offset) = self.global_place(lane, address, 128, Does::Reads)?;
                self.region(home)
                    .map(|region| region.bytes(offset, 128).to_vec())
            }
            _ => Some(self.machine.params.bytes(address, 128).to_vec()),
        }
    }

    /// The instruction that wrote a part of the map at an address, if the change may not be used yet, and why.
    pub(super) fn unready_map(&mut self, lane: usize, address: u64) -> Option<(u32, Unready)> {
        let (Window::Global, _) = Window::of(address) else {
            return None;
        };
        if !self.machine.options.checks.races {
            return None;
        }
        let (Home::Global(at), offset) = self.global_place(lane, address, 128, Does::Reads)? else {
            return None;
        };
        let (region, maps) = (
            &self.machine.global.get(at)?.region,
            &self.machine.tensor_maps,
        );
        let (clock, geography) = (&self.warp.clock, self.machine.geography);
        let mut found = None;
        for (line, bytes) in lines(offset..offset + 128) {
            region.history.each(line, bytes, |seen| {
                if found.is_none() && seen.write {
                    let write = (seen.agent, seen.clock, seen.lane);
                    let user = (clock, lane as u8);
                    let why = maps.unready(address, write, user, geography);
                    found = why.map(|why| (seen.pc, why));
                }
            });
        }
        found
    }

    /// Records an access of one lane to a stretch of memory, and checks it. What the async proxy does
    /// is only checked: it is over when its group or its mbarrier's phase is, and recorded as theirs.
    /// `same` says that a write leaves the bytes as they are.
    pub(super) fn touch_range(
        &mut self,
        lane: usize,
        (home, start, len): (Home, u64, u64),
        (does, kind): (Does, AccessKind),
        same: bool,
    ) {
        let checks = self.machine.options.checks;
        let (pc, geography, lanes) = (self.pc(), self.machine.geography, [lane as u8; 32]);
        let write = does == Does::Writes;
        let mut found = None;
        let mut missing = None;
        let mut unfenced = None;
        {
            let region = match home {
                Home::Global(at) => match self.machine.global.get_mut(at) {
                    Some(one) => &mut one.region,
                    None => return,
                },
                Home::Shared(rank) => &mut self.blocks[rank as usize].shared,
                _ => return,
            };
            // A reduction reads what it changes.
            let reduces = kind == AccessKind::Reduction;
            if (!write || reduces) && checks.unwritten {
                missing = region.first_empty(start, len);
            }
            region.traffic.range(start, len, write);
            let end = start + len;
            if matches!(home, Home::Global(_)) && checks.races {
                let minds = flight::Minds {
                    reads: write,
                    fence: Some(Behind::Global),
                    ordered: true,
                    // Atomics of both proxies meet in the L2 cache.
                    weak: reduces,
                    but: &[],
                };
                let clock = &self.warp.clock;
                unfenced = flight::unready(region, clock, lane as u8, start..end, minds);
            }
            if checks.races {
                let floor = crate::access::look::floor(self.team, home);
                let clock = &self.warp.clock;
                for (line, bytes) in lines(start..end) {
                    let access = Access {
                        write,
                        kind,
                        pc,
                        bytes,
                        lanes: &lanes,
                        shift: 2,
                        first: 0,
                        shared: false,
                        crowds: None,
                        cells: crate::race::trace::cell_mask(bytes, 2, 0),
                        order: None,
                    };
                    let conflict = match kind.by_proxy() {
                        true => region
                            .history
                            .foresee(line, &access, clock, geography, floor),
                        false => region
                            .history
                            .access(line, &access, clock, geography, floor),
                    };
                    if let Some(conflict) = conflict
                        && found.is_none()
                    {
                        found = Some((conflict, line * LINE as u64 + u64::from(conflict.byte)));
                    }
                }
            }
        }
        if let Some(offset) = missing {
            self.report_empty(lane, home, offset, write);
        }
        let harmless = same && !checks.same_value;
        let found = found.filter(|(conflict, _)| !(harmless && conflict.their_write));
        if let Some((conflict, offset)) = found {
            report_race(self, home, offset, conflict, does, kind);
        } else if let Some(unfenced) = unfenced {
            self.report_unfenced(lane, home, does, kind, unfenced);
        }
    }

    /// A copy of bytes, or a reduction into bytes, that nothing has written.
    fn report_empty(&mut self, lane: usize, home: Home, offset: u64, reduces: bool) {
        let code = if matches!(home, Home::Shared(_)) {
            rule::SHARED_UNWRITTEN
        } else {
            rule::GLOBAL_UNWRITTEN
        };
        let verb = if reduces { "reduces into" } else { "copies" };
        self.report(code, 1 << lane, |cx, mut told| {
            let place = place(cx, home, offset);
            told.message = format!("{verb} {place}, which nothing has written");
            told
        });
    }

    /// A copy of global bytes that a thread has used without a proxy fence since.
    fn report_unfenced(
        &mut self,
        lane: usize,
        home: Home,
        does: Does,
        kind: AccessKind,
        unfenced: flight::Unready,
    ) {
        let them = self.whom(unfenced.agent, unfenced.lane);
        // A reduction reads what a store has left, too.
        let (code, to) =
            match does == Does::Writes && !(kind == AccessKind::Reduction && unfenced.write) {
                true => (rule::PROXY_FENCE_BEFORE_ASYNC_WRITE, " to"),
                false => (rule::PROXY_FENCE_BEFORE_ASYNC_READ, ""),
            };
        self.report(code, 1 << lane, |cx, mut told| {
            let at = place(cx, home, unfenced.offset);
            let (verb, done) = if unfenced.write { ("wrote", "written") } else { ("read", "read") };
            told.message =
                format!("copies{to} {at}, which {them} {verb} without `fence.proxy.async` since");
            told.other(cx.code.span(unfenced.pc), format!("it was {done} here"))
                .help(format!("every thread that {verb} it runs `fence.proxy.async.global` before it hands the data over, or the copying thread does when it has received it"))
        });
    }

    /// Whether the source of a copy in shared memory is written and visible to the async proxy.
    pub(super) fn check_source(&mut self, lane: usize, rank: u32, start: u64, len: u64) {
        let flight = self.blocks[rank as usize]
            .flights
            .disturbed(start, start + len, false)
            .copied();
        if let Some(flight) = flight {
            let (code, help) = flight::explain(flight.what, flight.write, Does::Reads);
            self.report(code, 1 << lane, |cx, mut told| {
                told.message = format!(
                    "copies {}, which an asynchronous operation in flight has not written yet",
                    place(cx, Home::Shared(rank), flight.start.max(start))
                );
                told.other(cx.code.span(flight.pc), "that one starts here")
                    .help(help)
            });
            return;
        }
        if self.machine.options.checks.unwritten
            && let Some(offset) = self.blocks[rank as usize].shared.first_empty(start, len)
        {
            self.report_empty(lane, Home::Shared(rank), offset, false);
        }
        if !self.machine.options.checks.races {
            return;
        }
        let region = &mut self.blocks[rank as usize].shared;
        let found = flight::unready(
            region,
            &self.warp.clock,
            lane as u8,
            start..start + len,
            flight::Minds {
                reads: false,
                fence: Some(Behind::Shared),
                ordered: false,
                weak: false,
                but: &[],
            },
        );
        let Some(found) = found else { return };
        let them = self.whom(found.agent, found.lane);
        // Without an order there is no fence either: both are reported by the fence's rule.
        self.report(rule::PROXY_FENCE_BEFORE_ASYNC_READ, 1 << lane, |cx, mut told| {
            let why = if found.known { "without `fence.proxy.async` since" } else { "and nothing orders that before the copy" };
            told.message = format!("copies {}, which {them} wrote {why}", place(cx, Home::Shared(rank), found.offset));
            told.other(cx.code.span(found.pc), "it was written here")
                .help("every thread that wrote runs `fence.proxy.async.shared::cta`, then they meet, then one thread copies")
        });
    }

    /// Whether all earlier accesses to the destination of a copy happen before it. `reduces` says
    /// that it combines with the old value, and `fence` that it goes through the async proxy.
    pub(super) fn check_target(
        &mut self,
        lane: usize,
        rank: u32,
        range: std::ops::Range<u64>,
        reduces: bool,
        fence: bool,
    ) {
        let flight = self.blocks[rank as usize]
            .flights
            .overwritten(range.start, range.end, reduces)
            .copied();
        if let Some(flight) = flight {
            let (code, help) = flight::explain(flight.what, flight.write, Does::Writes);
            self.report(code, 1 << lane, |cx, mut told| {
                told.message = format!(
                    "copies to {}, which another operation in flight {}",
                    place(cx, Home::Shared(rank), range.start.max(flight.start)),
                    if flight.write {
                        "writes too"
                    } else {
                        "may still read"
                    },
                );
                told.other(cx.code.span(flight.pc), "that one starts here")
                    .help(help)
            });
        }
        let shared = &self.blocks[rank as usize].shared;
        if reduces
            && flight.is_none()
            && self.machine.options.checks.unwritten
            && let Some(offset) = shared.first_empty(range.start, range.end - range.start)
        {
            self.report_empty(lane, Home::Shared(rank), offset, true);
        }
        if !self.machine.options.checks.races {
            return;
        }
        let block = &mut self.blocks[rank as usize];
        let found = flight::unready(
            &block.shared,
            &self.warp.clock,
            lane as u8,
            range,
            flight::Minds {
                reads: true,
                fence: fence.then_some(Behind::Shared),
                ordered: false,
                weak: false,
                but: block.flights.reductions(reduces),
            },
        );
        let Some(found) = found else { return };
        let them = self.whom(found.agent, found.lane);
        let code = match (found.known, rank == self.warp.rank) {
            (false, _) if found.kind == AccessKind::Product => rule::WGMMA_SOURCE_OVERWRITTEN,
            (false, _) if found.kind == AccessKind::Async && !found.write => {
                rule::BULK_SOURCE_OVERWRITTEN
            }
            (true, _) => rule::PROXY_FENCE_BEFORE_ASYNC_WRITE,
            (false, true) => rule::SHARED_RACE,
            (false, false) => rule::CLUSTER_RACE,
        };
        self.report(code, 1 << lane, |cx, mut told| {
            let verb = if found.write { "wrote" } else { "read" };
            let why = if found.known { "without `fence.proxy.async` since" } else { "and nothing orders that before the copy" };
            told.message = format!("copies to {}, which {them} {verb} {why}", place(cx, Home::Shared(rank), found.offset));
            told.other(cx.code.span(found.pc), format!("{them} {verb} it here")).help(if found.known {
                "run `fence.proxy.async.shared::cta` behind the last ordinary access, before the threads meet"
            } else {
                "let the threads that use the buffer arrive at an mbarrier when they are done, and wait for that before the next copy"
            })
        });
    }
}

/// The lines that a range of bytes touches, each with the bytes of it.
fn lines(range: Range<u64>) -> impl Iterator<Item = (u64, u128)> {
    const LEN: u64 = LINE as u64;
    (range.start / LEN..range.end.div_ceil(LEN)).map(move |line| {
        let from = range.start.max(line * LEN);
        let count = range.end.min((line + 1) * LEN) - from;
        let bytes = match count {
            LEN => u128::MAX,
            some => ((1 << some) - 1) << (from % LEN),
        };
        (line, bytes)
    })
}
