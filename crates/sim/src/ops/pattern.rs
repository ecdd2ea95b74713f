//! How the lanes of an access lay to each other the last time.
//!
//! An instruction in a loop touches other words every time and mostly in the same
//! shape: lane after lane, two rows of a tile, one word for all. The shape is
//! worked out once and remembered by the instruction's place; when the addresses
//! fit it again, bounds, lines and lanes are known without looking at each lane.
//! Whole warps and 32-bit words only; everything else goes the long way.

use super::access::{Does, Group, Home, Look, find, tell};
use crate::context::Cx;
use crate::lanes::{ALL, LANES, map1, wide};
use crate::memory::touch::{LineTouch, Touch};
use crate::memory::window::Window;
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
}

/// A shape.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Where in its line lane 0 lies.
    phase: u64,
    /// Bytes from lane 0 to each lane, wrapping.
    deltas: [u64; LANES],
    /// Bytes from the lowest lane to lane 0, and from lane 0 to the end of the highest.
    back: u64,
    ahead: u64,
    parts: Vec<Part>,
    contiguous: bool,
    /// Whether two lanes touch one word.
    shared: bool,
    /// The word of the line that each lane touches, where all are in one.
    words: Option<[u8; LANES]>,
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
            });
        });
        let words = touch
            .only_line()
            .map(|_| addresses.map(|address| (address / 4 % 32) as u8));
        Pattern {
            phase: start % 128,
            deltas,
            back: signed
                .iter()
                .fold(0, |low, &delta| low.min(delta))
                .unsigned_abs(),
            ahead: signed.iter().fold(0, |high, &delta| high.max(delta)) as u64 + u64::from(WORD),
            parts,
            contiguous,
            shared,
            words,
        }
    }

    #[inline]
    fn fits(&self, addresses: &[u64; LANES]) -> bool {
        let start = addresses[0];
        start % 128 == self.phase
            && wide(
                #[inline(always)]
                || {
                    let mut differ = 0;
                    for (address, delta) in addresses.iter().zip(&self.deltas) {
                        differ |= address.wrapping_sub(start) ^ delta;
                    }
                    differ == 0
                },
            )
    }
}

/// What the instructions of a kernel remember, by their places.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    by_pc: Vec<([Option<Box<Pattern>>; WAYS], u8)>,
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
        let (ways, misses) = &mut self.by_pc[pc];
        if *misses >= PATIENCE
            || addresses
                .iter()
                .any(|address| !address.is_multiple_of(u64::from(WORD)))
        {
            return;
        }
        *misses += 1;
        ways[way_of(addresses[0])] = Some(Box::new(Pattern::of(addresses)));
    }
}

/// An access that was checked and recorded, with the memory that it is to.
pub(crate) struct Hit {
    home: Home,
    start: u64,
    pattern: Box<Pattern>,
}

/// Checks and records an access of whole words by a whole warp in a remembered
/// shape. Nothing, and nothing has happened, if it has another one.
///
/// `harmless` says whether a write that races with a write changes anything.
#[inline]
pub(crate) fn touch(
    cx: &mut Cx<'_>,
    window: Window,
    addresses: &[u64; LANES],
    does: Does,
    harmless: impl FnOnce(&mut Cx<'_>, &Group) -> bool,
) -> Option<Hit> {
    let pc = cx.fragment.pc;
    let way = way_of(addresses[0]);
    let known = &cx.machine.patterns.by_pc.get(pc as usize)?.0[way];
    let fits = known
        .as_ref()
        .is_some_and(|pattern| pattern.fits(addresses) && (does == Does::Reads || !pattern.shared));
    if !fits {
        return None;
    }
    let (back, ahead) = known.as_ref().map(|one| (one.back, one.ahead))?;
    let (home, base, len) = find(cx, window, addresses[0])?;
    let start = addresses[0] - base;
    if back > start || start.checked_add(ahead)? > len {
        return None;
    }
    if let Home::Shared(rank) = home {
        let block = &cx.blocks[rank as usize];
        if !block.flights.is_empty() || !block.mbarriers.is_empty() || !block.expected.is_empty() {
            return None;
        }
    }
    let pattern = cx.machine.patterns.by_pc.get_mut(pc as usize)?.0[way].take()?;
    let mut look = Look::new(cx, does, Kind::Plain);
    {
        let region = match home {
            Home::Global(at) => &mut cx.machine.global.get_mut(at)?.region,
            Home::Shared(rank) => &mut cx.blocks[rank as usize].shared,
            _ => return None,
        };
        let (clock, floor) = (&cx.warp.clock, &cx.team.floor);
        for part in &pattern.parts {
            let line = LineTouch {
                line: (start / 128).wrapping_add(part.line),
                bytes: part.bytes,
                lanes: &part.lanes,
                shift: part.shift,
                first: part.first,
                shared: part.shared,
            };
            look.line(region, &line, clock, floor);
        }
    }
    if look.has_found() {
        let group = Group {
            home,
            mask: ALL,
            offsets: addresses.map(|address| address.wrapping_sub(base)),
            size: WORD,
        };
        tell(cx, &group, look, |cx| harmless(cx, &group));
    }
    Some(Hit {
        home,
        start,
        pattern,
    })
}

impl Hit {
    /// Reads the words, and lets the shape go back to its place.
    #[inline]
    pub(crate) fn load(self, cx: &mut Cx<'_>) -> [u32; LANES] {
        let mut values = [0; LANES];
        if let Some(region) = cx.region(self.home) {
            if self.pattern.contiguous {
                values = region.run_of::<u32>(self.start);
            } else if let Some(words) = &self.pattern.words {
                let line = region.run_of::<u32>(self.start / 128 * 128);
                for (value, &word) in values.iter_mut().zip(words) {
                    *value = line[usize::from(word) % 32];
                }
            } else {
                values = region.gather::<u32>(&self.offsets(), ALL, 0);
            }
        }
        self.keep(cx);
        values
    }

    /// Writes the words, and lets the shape go back to its place.
    #[inline]
    pub(crate) fn store(self, cx: &mut Cx<'_>, values: &[u32; LANES]) {
        let offsets = (!self.pattern.contiguous).then(|| self.offsets());
        if let Some(region) = cx.region(self.home) {
            match offsets {
                None => region.put_run::<u32>(self.start, values),
                Some(offsets) => region.scatter::<u32>(&offsets, ALL, 0, values),
            }
        }
        self.keep(cx);
    }

    fn offsets(&self) -> [u64; LANES] {
        map1(self.pattern.deltas, |delta| self.start.wrapping_add(delta))
    }

    fn keep(self, cx: &mut Cx<'_>) {
        let pc = cx.fragment.pc as usize;
        // The phases of an address and of its offset are the same: regions start at lines.
        let way = way_of(self.pattern.phase);
        if let Some((ways, misses)) = cx.machine.patterns.by_pc.get_mut(pc) {
            ways[way] = Some(self.pattern);
            *misses = 0;
        }
    }
}
