//! The operands of tensor cores in shared memory: reading those of `wgmma` through descriptors, and
//! the race checks of that memory.

use crate::access::context::Cx;
use crate::access::group::{Does, Group, Home};
use crate::access::{conflict, flight};
use crate::code::Slot;
use crate::lanes::{ALL, LANES, first};
use crate::race::access::{AccessKind, LINE};
use crate::race::clock::{Agent, Behind};
use heist_arith::tensor::wgmma::{Major, Numbers, SharedOperand};
use heist_ptx::rule;

/// The bytes of some lines of shared memory, in the order of the lines.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(u64, u128)>);

impl Lines {
    pub(crate) fn add(&mut self, chunk: u32) {
        let line = u64::from(chunk) / LINE as u64;
        let bytes = 0xffffu128 << (chunk as usize % LINE / 16 * 16);
        // Mostly it is the line of the last time, or a higher one.
        match self.0.last_mut() {
            Some((last, all)) if *last == line => *all |= bytes,
            Some((last, _)) if *last > line => {
                match self.0.binary_search_by_key(&line, |&(line, _)| line) {
                    Ok(at) => self.0[at].1 |= bytes,
                    Err(at) => self.0.insert(at, (line, bytes)),
                }
            }
            _ => self.0.push((line, bytes)),
        }
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let counts = self
            .0
            .iter()
            .map(|(_, bytes)| u64::from(bytes.count_ones()));
        counts.sum()
    }

    /// The lines of both.
    pub(crate) fn join(&mut self, other: Lines) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (line, bytes) in other.0 {
            match self.0.binary_search_by_key(&line, |&(line, _)| line) {
                Ok(at) => self.0[at].1 |= bytes,
                Err(at) => self.0.insert(at, (line, bytes)),
            }
        }
    }
}

/// The descriptor in a register, which is the same in all lanes.
pub(super) fn descriptor(cx: &mut Cx<'_>, slot: Slot, which: &str) -> u64 {
    let all: [u64; LANES] = cx.read(slot);
    let bits = all[first(cx.mask)];
    if all.iter().any(|&other| other != bits) {
        cx.report(rule::WGMMA_DESCRIPTOR, ALL, |_, mut told| {
            told.message = format!("the descriptor of {which} is not the same in all lanes");
            told.help("compute descriptors from what is the same in the whole warpgroup: `shfl.sync` the warp's number from lane 0")
        });
    }
    bits
}

/// The 16-byte chunks of an operand: first row or column, and address.
fn chunks(operand: &SharedOperand) -> impl Iterator<Item = (usize, u32)> {
    let operand = *operand;
    let (lines, chunks) = operand.lines_and_chunks();
    let per = 128 / operand.element.bits() as usize;
    (0..lines).flat_map(move |line| {
        (0..chunks).map(move |chunk| {
            let mn = match operand.major {
                Major::K => line,
                Major::Mn => chunk * per,
            };
            (mn, operand.chunk_address(line, chunk))
        })
    })
}

/// Notes what is read of an operand, and reports what lies outside shared memory.
fn note(
    cx: &mut Cx<'_>,
    operand: &SharedOperand,
    which: &str,
    lines: &mut Lines,
    wanted: impl Fn(usize) -> bool,
) {
    let (start, len) = (cx.machine.shared_start, cx.machine.shared_len);
    let mut outside = None;
    for (mn, address) in chunks(operand) {
        // Below the first byte is beyond the last one.
        let offset = address.wrapping_sub(start);
        if offset.saturating_add(16) > len {
            outside.get_or_insert(address);
        } else if wanted(mn) {
            lines.add(offset);
        }
    }
    if let Some(address) = outside {
        let told_of = operand.descriptor;
        let at = cx.shared_offset(address, 0);
        cx.report(rule::WGMMA_DESCRIPTOR, ALL, |_, mut told| {
            told.message = format!(
                "the descriptor of {which} leads to {at} of shared memory, of which the block has {len} bytes"
            );
            told.note(format!(
                "it says: start {:#x}, leading offset {}, stride offset {}, swizzle {:?}",
                told_of.start, told_of.leading, told_of.stride, told_of.swizzle
            ))
            .help("offsets are in units of 16 bytes, bits 4 to 17 of the byte offset; check them against the tile's layout")
        });
    }
}

/// A chunk of the block's shared memory; zeros outside. Descriptors have no room for a
/// rank: they always lead to the own block.
fn chunk(cx: &Cx<'_>, address: u32) -> [u8; 16] {
    let offset = address.wrapping_sub(cx.machine.shared_start);
    cx.blocks[cx.warp.rank as usize]
        .shared
        .read(u64::from(offset), 16)
        .to_le_bytes()
}

/// Reads A, of which a warp uses a quarter of the rows.
pub(super) fn read_rows(
    cx: &mut Cx<'_>,
    operand: &SharedOperand,
    part: usize,
    lines: &mut Lines,
) -> Numbers {
    note(cx, operand, "A", lines, |row| row / 16 == part);
    operand.read_rows(|address| chunk(cx, address))
}

/// Reads B.
pub(super) fn read_columns(cx: &mut Cx<'_>, operand: &SharedOperand, lines: &mut Lines) -> Numbers {
    note(cx, operand, "B", lines, |_| true);
    operand.read_columns(|address| chunk(cx, address))
}

/// An earlier access that does not happen before a product, or that no proxy fence covers.
struct Unready {
    offset: u64,
    agent: Agent,
    lane: u8,
    pc: u32,
    known: bool,
}

/// Checks a product's operands in shared memory for uninitialised bytes and races.
pub(crate) fn check(cx: &mut Cx<'_>, rank: u32, lines: &Lines) {
    check_flights(cx, rank, lines);
    let checks = cx.machine.options.checks;
    let lane = first(cx.mask) as u8;
    let mut unwritten = None;
    let mut unready: Option<Unready> = None;
    let clock = &cx.warp.clock;
    let region = &mut cx.blocks[rank as usize].shared;
    // The last access that was known and fenced: a tile is written by few.
    let mut ready = None;
    for &(line, bytes) in &lines.0 {
        let start = line * LINE as u64;
        let missing = region.unwritten_in(line, bytes);
        if missing != 0 && unwritten.is_none() {
            unwritten = Some(start + u64::from(missing.trailing_zeros()));
        }
        if !checks.races {
            continue;
        }
        region.history.each(line, bytes, |seen| {
            if !seen.write || unready.as_ref().is_some_and(|found| !found.known) {
                return;
            }
            let by_proxy = seen.kind.by_proxy();
            let access = (seen.agent, seen.clock, seen.lane);
            if ready == Some((access, by_proxy)) {
                return;
            }
            let own = seen.agent == clock.agent && seen.lane == lane;
            let known = own || clock.knows(seen.agent, seen.clock, seen.lane, lane);
            let fenced = by_proxy || clock.knows_fenced(Behind::Shared, access, lane);
            if known && fenced {
                ready = Some((access, by_proxy));
            }
            if !known || (!fenced && unready.is_none()) {
                unready = Some(Unready {
                    offset: start + u64::from(seen.byte),
                    agent: seen.agent,
                    lane: seen.lane,
                    pc: seen.pc,
                    known,
                });
            }
        });
    }
    if let Some(offset) = unwritten
        && checks.unwritten
    {
        cx.report(rule::SHARED_UNWRITTEN, cx.mask, |cx, mut told| {
            told.message = format!(
                "multiplies {}, which nothing has written",
                conflict::place(cx, Home::Shared(rank), offset)
            );
            told.help("write the tile before it is multiplied, and check the descriptor's offsets against its layout")
        });
    }
    if let Some(found) = unready {
        report_unready(cx, rank, &found);
    }
}

#[cold]
fn report_unready(cx: &mut Cx<'_>, rank: u32, found: &Unready) {
    let code = if found.known {
        rule::PROXY_FENCE_BEFORE_ASYNC_READ
    } else {
        rule::SHARED_RACE
    };
    let them = cx.whom(found.agent, found.lane);
    cx.report(code, cx.mask, |cx, mut told| {
        let place = conflict::place(cx, Home::Shared(rank), found.offset);
        told.message = if found.known {
            format!("multiplies {place}, which {them} wrote without `fence.proxy.async` since")
        } else {
            format!("multiplies {place}, and {them} wrote it with nothing to order the two")
        };
        told.other(cx.code.span(found.pc), format!("{them} wrote it here"))
            .help(if found.known {
                "tensor cores read shared memory through the async proxy: let every thread that wrote run `fence.proxy.async.shared::cta`, and then meet at a barrier"
            } else {
                "wait for whoever writes the tile: a barrier, or the mbarrier of the copy"
            })
    });
}

/// Checks the operands against asynchronous copies in flight.
fn check_flights(cx: &mut Cx<'_>, rank: u32, lines: &Lines) {
    if cx.blocks[rank as usize].flights.is_empty() {
        return;
    }
    let mut group = Group {
        home: Home::Shared(rank),
        mask: 0,
        offsets: [0; LANES],
        size: 16,
    };
    let mut filled = 0;
    for &(line, bytes) in &lines.0 {
        for chunk in 0..LINE / 16 {
            if bytes >> (16 * chunk) & 1 == 0 {
                continue;
            }
            group.offsets[filled] = line * LINE as u64 + 16 * chunk as u64;
            group.mask |= 1 << filled;
            filled += 1;
            if filled == LANES {
                flight::check(cx, &group, Does::Reads);
                (filled, group.mask) = (0, 0);
            }
        }
    }
    if filled > 0 {
        flight::check(cx, &group, Does::Reads);
    }
}

/// Records that a product reads a block's shared memory until the completion of `by`, a warpgroup's
/// group or a commit, is observed.
pub(crate) fn fly(cx: &mut Cx<'_>, rank: u32, pc: u32, lines: &Lines, by: (Agent, u32)) {
    if !cx.machine.options.checks.races {
        return;
    }
    let history = &mut cx.blocks[rank as usize].shared.history;
    for &(line, bytes) in &lines.0 {
        history.read_by_proxy(line, bytes, AccessKind::Product, by, pc);
    }
}
