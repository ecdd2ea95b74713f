//! How the lanes of an access lay to each other the last time.
//!
//! An instruction in a loop touches other words every time and mostly in the same
//! shape: lane after lane, two rows of a tile, one word for all. The shape is
//! worked out once and remembered by the instruction's place; when the addresses
//! fit it again, bounds, lines and lanes are known without looking at each lane.
//! Whole warps and 32-bit words of global memory and of the block's own shared
//! memory only; everything else goes the long way, and so does what [`load`] and
//! [`store`] find reason to look at more closely.

use super::access::{Does, Group, Home, Look, tell};
use crate::code::Slot;
use crate::context::Cx;
use crate::decode::operand::{Addr, Base};
use crate::engine::cluster::Block;
use crate::lanes::{ALL, LANES, Mask, Row, wide};
use crate::memory::global::Global;
use crate::memory::region::Region;
use crate::memory::touch::{LineTouch, Touch};
use crate::memory::window::{PEER_SHIFT, Window};
use crate::race::shadow::Kind;

const WORD: u32 = 4;
/// Shapes that one instruction keeps, told apart by where in its line lane 0 lies.
const WAYS: usize = 4;
/// Accesses in new shapes after which an instruction has none.
const PATIENCE: u8 = 32;

/// The words of one line.
#[derive(Debug)]
struct Part {
    /// Lines from lane 0's, wrapping.
    line: u64,
    bytes: u128,
    lanes: [u8; 32],
    shift: u8,
    first: u8,
    shared: bool,
    cells: Mask,
    order: Option<u8>,
}

/// How the words get to the lanes.
#[derive(Debug)]
enum Plan {
    /// One after the other.
    Run,
    /// By half warps, for the tiles of 16 that are so common.
    Halves([Chunk; 2]),
    /// By four lanes.
    Fours([Chunk; 8]),
    /// Each from its own place.
    Each,
}

/// Lanes that all get one word, or words one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Bytes from lane 0 to the first of them, wrapping.
    delta: u64,
    one: bool,
}

impl Chunk {
    /// Cuts the lanes into `N` equal chunks, if they are such.
    fn cut<const N: usize>(deltas: &[u64; LANES]) -> Option<[Chunk; N]> {
        let mut cut = [Chunk::default(); N];
        for (slot, chunk) in cut.iter_mut().zip(deltas.chunks_exact(LANES / N)) {
            let delta = chunk[0];
            let one = chunk.iter().all(|&other| other == delta);
            let run = chunk
                .iter()
                .enumerate()
                .all(|(at, &other)| other == delta.wrapping_add(4 * at as u64));
            if !one && !run {
                return None;
            }
            *slot = Chunk { delta, one };
        }
        Some(cut)
    }
}

impl Plan {
    fn of(deltas: &[u64; LANES], contiguous: bool) -> Plan {
        if contiguous {
            Plan::Run
        } else if let Some(halves) = Chunk::cut(deltas) {
            Plan::Halves(halves)
        } else if let Some(fours) = Chunk::cut(deltas) {
            Plan::Fours(fours)
        } else {
            Plan::Each
        }
    }
}

/// A shape.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Where in its line lane 0 lies.
    phase: u64,
    /// Bytes from lane 0 to each lane, wrapping; and the same in 32 bits.
    deltas: [u64; LANES],
    short_deltas: [u32; LANES],
    /// Bytes from the lowest lane to lane 0, and from lane 0 to the end of the highest.
    back: u64,
    ahead: u64,
    parts: Vec<Part>,
    /// Whether two lanes touch one word.
    shared: bool,
    plan: Plan,
}

impl Pattern {
    fn of(addresses: &[u64; LANES]) -> Pattern {
        let start = addresses[0];
        let deltas = addresses.map(|address| address.wrapping_sub(start));
        let signed = deltas.map(|delta| delta as i64);
        let touch = Touch {
            offsets: addresses,
            mask: ALL,
            size: WORD,
        };
        let contiguous = touch.is_contiguous();
        let (mut parts, mut shared) = (Vec::new(), false);
        touch.lines(contiguous, |line| {
            shared |= line.shared;
            parts.push(Part {
                line: line.line.wrapping_sub(start / 128),
                bytes: line.bytes,
                lanes: *line.lanes,
                shift: line.shift,
                first: line.first,
                shared: line.shared,
                cells: line.cells,
                order: line.order,
            });
        });
        Pattern {
            phase: start % 128,
            deltas,
            short_deltas: deltas.map(|delta| delta as u32),
            back: signed
                .iter()
                .fold(0, |low, &delta| low.min(delta))
                .unsigned_abs(),
            ahead: signed.iter().fold(0, |high, &delta| high.max(delta)) as u64 + u64::from(WORD),
            parts,
            shared,
            plan: Plan::of(&deltas, contiguous),
        }
    }

    #[inline(always)]
    fn fits_long(&self, base: &[u64; LANES], start: u64) -> bool {
        let mut differ = (start % 128) ^ self.phase;
        for (address, delta) in base.iter().zip(&self.deltas) {
            differ |= address.wrapping_sub(base[0]) ^ delta;
        }
        differ == 0
    }

    /// The same for addresses of 32 bits. That no lane wraps around where lane 0 does
    /// not is what the bounds say.
    #[inline(always)]
    fn fits_word(&self, base: &[u32; LANES], start: u64) -> bool {
        let mut differ = 0;
        for (address, delta) in base.iter().zip(&self.short_deltas) {
            differ |= address.wrapping_sub(base[0]) ^ delta;
        }
        differ == 0 && start % 128 == self.phase
    }

    /// Whether everything lies within `len` bytes.
    #[inline(always)]
    fn is_inside(&self, start: u64, len: u64) -> bool {
        self.back <= start && start < len && self.ahead <= len - start
    }

    #[inline(always)]
    fn load(&self, region: &Region, start: u64, values: &mut [u32; LANES]) {
        match &self.plan {
            Plan::Run => *values = region.run_of::<u32>(start),
            Plan::Halves(halves) => {
                let (slots, _) = values.as_chunks_mut::<{ LANES / 2 }>();
                for (slot, half) in slots.iter_mut().zip(halves) {
                    let at = start.wrapping_add(half.delta);
                    if half.one {
                        slot.fill(region.word(at));
                    } else {
                        slot.copy_from_slice(&region.some::<u32, { LANES / 2 }>(at));
                    }
                }
            }
            Plan::Fours(fours) => {
                let (slots, _) = values.as_chunks_mut::<4>();
                for (slot, four) in slots.iter_mut().zip(fours) {
                    let at = start.wrapping_add(four.delta);
                    // As one number, lest the compiler moves word by word.
                    let words: u128 = if four.one {
                        bytemuck::cast([region.word(at); 4])
                    } else {
                        bytemuck::cast(region.some::<u32, 4>(at))
                    };
                    *slot = bytemuck::cast(words);
                }
            }
            Plan::Each => {
                let offsets = self.deltas.map(|delta| start.wrapping_add(delta));
                *values = region.gather::<u32>(&offsets, ALL, 0);
            }
        }
    }

    #[inline(always)]
    fn store(&self, region: &mut Region, start: u64, values: &[u32; LANES]) {
        if let Plan::Run = self.plan {
            region.put_run::<u32>(start, values);
        } else {
            let offsets = self.deltas.map(|delta| start.wrapping_add(delta));
            region.scatter::<u32>(&offsets, ALL, 0, values);
        }
    }
}

/// What one instruction remembers.
#[derive(Debug, Default)]
struct Memory {
    ways: [Option<Box<Pattern>>; WAYS],
    misses: u8,
    /// The allocation that it accessed last.
    recent: usize,
}

/// What the instructions of a kernel remember, by their places.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    by_pc: Vec<Memory>,
}

fn way_of(address: u64) -> usize {
    (address >> 5) as usize % WAYS
}

impl Patterns {
    /// Learns the shape of an access that fitted none.
    pub(crate) fn learn(&mut self, pc: u32, addresses: &[u64; LANES]) {
        let pc = pc as usize;
        if self.by_pc.len() <= pc {
            self.by_pc.resize_with(pc + 1, Default::default);
        }
        let memory = &mut self.by_pc[pc];
        if memory.misses >= PATIENCE
            || addresses
                .iter()
                .any(|address| !address.is_multiple_of(u64::from(WORD)))
        {
            return;
        }
        memory.misses += 1;
        memory.ways[way_of(addresses[0])] = Some(Box::new(Pattern::of(addresses)));
    }
}

/// The memory at an address: whose it is, where it starts, its length and itself.
/// Nothing if it needs a closer look.
#[inline(always)]
fn place<'a>(
    global: &'a mut Global,
    blocks: &'a mut [Block],
    (rank, shared_len): (u32, u32),
    recent: &mut usize,
    window: Window,
    address: u64,
) -> Option<(Home, u64, u64, &'a mut Region)> {
    match window {
        Window::Global => {
            if !global.holds(*recent, address) {
                *recent = global.find(address)?;
            }
            let one = global.get_mut(*recent)?;
            (!one.freed).then_some((Home::Global(*recent), one.base, one.len, &mut one.region))
        }
        Window::Shared if address < 1 << PEER_SHIFT => {
            let block = blocks.get_mut(rank as usize)?;
            let calm =
                block.flights.is_empty() && block.mbarriers.is_empty() && block.expected.is_empty();
            calm.then_some((
                Home::Shared(rank),
                0,
                u64::from(shared_len),
                &mut block.shared,
            ))
        }
        _ => None,
    }
}

/// What became of an access.
enum Touched {
    /// It was checked and recorded, and its words have moved.
    Done,
    /// It was checked and recorded, there is something to tell, and no word has moved.
    Found(Box<(Look, Group)>),
}

/// Holds an access against the shapes that its instruction remembers, checks and
/// records it, and moves its words with `act`, which gets the warp's registers. Nothing,
/// and nothing has happened, if it has another shape.
#[inline(always)]
fn touch(
    cx: &mut Cx<'_>,
    window: Window,
    addr: &Addr,
    does: Does,
    act: impl FnOnce(&Pattern, &mut Region, u64, &mut [Row]),
) -> Option<Touched> {
    let mut look = Look::new(cx, does, Kind::Plain);
    let memory = cx.machine.patterns.by_pc.get(cx.fragment.pc as usize)?;
    let (address, way) = match addr.base {
        Base::Long(slot) => {
            let base = cx.view::<u64>(slot);
            let address = base[0].wrapping_add(addr.offset as u64);
            let way = way_of(address);
            let fits = memory.ways[way].as_ref()?.fits_long(base, address);
            (fits.then_some(address)?, way)
        }
        Base::Word(slot) => {
            let base = cx.view::<u32>(slot);
            let address = u64::from(base[0].wrapping_add(addr.offset as u32));
            let way = way_of(address);
            let fits = memory.ways[way].as_ref()?.fits_word(base, address);
            (fits.then_some(address)?, way)
        }
        Base::Frame(_) => return None,
    };
    let own = (cx.warp.rank, cx.machine.shared_len);
    let memory = cx.machine.patterns.by_pc.get_mut(cx.fragment.pc as usize)?;
    let (home, origin, len, region) = place(
        &mut cx.machine.global,
        cx.blocks,
        own,
        &mut memory.recent,
        window,
        address,
    )?;
    let pattern = memory.ways[way].as_deref()?;
    let start = address - origin;
    if !pattern.is_inside(start, len) || (pattern.shared && does == Does::Writes) {
        return None;
    }
    memory.misses = 0;
    let warp = &mut *cx.warp;
    let (clock, floor) = (&warp.clock, &cx.team.floor);
    for part in &pattern.parts {
        let line = LineTouch {
            line: (start / 128).wrapping_add(part.line),
            bytes: part.bytes,
            lanes: &part.lanes,
            shift: part.shift,
            first: part.first,
            shared: part.shared,
            cells: part.cells,
            order: part.order,
        };
        look.line(region, &line, clock, floor);
    }
    if look.has_found() {
        let group = Group {
            home,
            mask: ALL,
            offsets: pattern.deltas.map(|delta| start.wrapping_add(delta)),
            size: WORD,
        };
        return Some(Touched::Found(Box::new((look, group))));
    }
    act(pattern, region, start, &mut warp.regs);
    Some(Touched::Done)
}

/// Loads words with a whole warp ([`Cx::mask`] is [`ALL`]) in a remembered shape, with every check. False, and
/// nothing has happened, if they have another one.
#[inline]
pub(crate) fn load(cx: &mut Cx<'_>, window: Window, addr: &Addr, target: Slot) -> bool {
    wide(
        #[inline(always)]
        || {
            let row = (target.row() + cx.fragment.base) as usize;
            let touched = touch(
                cx,
                window,
                addr,
                Does::Reads,
                #[inline(always)]
                |pattern, region, start, regs| pattern.load(region, start, &mut regs[row].0),
            );
            match touched {
                None => return false,
                Some(Touched::Done) => {}
                Some(Touched::Found(found)) => {
                    let (look, group) = *found;
                    tell(cx, &group, look, |_| false);
                    if let Some(region) = cx.region(group.home) {
                        let values = region.gather::<u32>(&group.offsets, ALL, 0);
                        cx.write(target, &values);
                    }
                }
            }
            true
        },
    )
}

/// Stores words with a whole warp in a remembered shape, with every check. False, and
/// nothing has happened, if they have another one.
///
/// `harmless` says whether a write that races with a write changes anything.
#[inline]
pub(crate) fn store(
    cx: &mut Cx<'_>,
    window: Window,
    addr: &Addr,
    source: Slot,
    harmless: impl FnOnce(&mut Cx<'_>, &Group) -> bool,
) -> bool {
    wide(
        #[inline(always)]
        || {
            let values = *cx.row(source);
            let touched = touch(
                cx,
                window,
                addr,
                Does::Writes,
                #[inline(always)]
                |pattern, region, start, _| pattern.store(region, start, &values),
            );
            match touched {
                None => return false,
                Some(Touched::Done) => {}
                Some(Touched::Found(found)) => {
                    let (look, group) = *found;
                    tell(cx, &group, look, |cx| harmless(cx, &group));
                    if let Some(region) = cx.region(group.home) {
                        region.scatter::<u32>(&group.offsets, ALL, 0, &values);
                    }
                }
            }
            true
        },
    )
}
