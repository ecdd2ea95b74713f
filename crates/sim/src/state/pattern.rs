//! Access patterns: a cache of the relative addresses of an instruction's lanes.
//!
//! An instruction in a loop touches other words every time and mostly in the same
//! shape: lane after lane, two rows of a tile, one word for all. The shape is
//! computed once and cached for the instruction; when the addresses match it again, bounds, lines
//! and lanes are known without looking at each lane. Shapes are of 32-bit words and whole warps.

use super::memory::region::{Region, Word};
use crate::lanes::{ALL, LANES, Mask};
use crate::race::touch::{Crowds, LineTouch, Touch};

/// Bytes that each lane touches.
pub(crate) const WORD: u32 = 4;
/// Bytes that are looked for in one piece.
const NEAR: usize = 256;
/// Shapes that one instruction keeps, told apart by where in its line lane 0 lies.
const WAYS: usize = 4;
/// Accesses in new shapes after which an instruction has none.
const PATIENCE: u8 = 32;

/// The words of one line.
#[derive(Debug)]
pub(crate) struct Part {
    /// Lines from lane 0's, wrapping.
    line: u64,
    bytes: u128,
    lanes: [u8; 32],
    shift: u8,
    first: u8,
    shared: bool,
    crowds: Option<Box<Crowds>>,
    cells: Mask,
    order: Option<u8>,
}

impl Part {
    /// The number of the line, where lane 0 lies at `start`.
    #[inline(always)]
    pub(crate) fn line(&self, start: u64) -> u64 {
        (start / 128).wrapping_add(self.line)
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u128 {
        self.bytes
    }

    #[inline(always)]
    pub(crate) fn touch(&self, start: u64) -> LineTouch<'_> {
        LineTouch {
            line: self.line(start),
            bytes: self.bytes,
            lanes: &self.lanes,
            shift: self.shift,
            first: self.first,
            shared: self.shared,
            crowds: self.crowds.as_deref(),
            cells: self.cells,
            order: self.order,
        }
    }
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
    #[inline(always)]
    pub(crate) fn load(&self, region: &Region, start: u64, values: &mut [u32]) {
        let at = start.wrapping_add(self.delta);
        if self.one {
            values.fill(region.word(at));
        } else {
            region.words(at, values);
        }
    }

    /// The same for half a warp, where lane 0 lies at `start` of some bytes.
    #[inline(always)]
    pub(crate) fn take(&self, bytes: &[u8], start: u64, values: &mut [u32; LANES / 2]) {
        let at = start.wrapping_add(self.delta) as usize;
        if self.one {
            let word = bytes.get(at..at.saturating_add(4)).unwrap_or(&[]);
            *values = [u32::take(word); LANES / 2];
        } else if let Some(words) = bytes.get(at..at.saturating_add(4 * LANES / 2)) {
            bytemuck::cast_slice_mut::<u32, u8>(values).copy_from_slice(words);
            for word in values {
                *word = u32::from_le(*word);
            }
        }
    }

    /// Cuts the lanes into `N` equal chunks, if they are such.
    pub(crate) fn cut<const N: usize>(deltas: &[u64; LANES]) -> Option<[Chunk; N]> {
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
    pub(crate) fn of(deltas: &[u64; LANES], contiguous: bool) -> Plan {
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
    whole_line: Option<u8>,
    shared: bool,
    plan: Plan,
}

impl Pattern {
    pub(crate) fn of(addresses: &[u64; LANES]) -> Pattern {
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
                crowds: line.crowds.map(|crowds| Box::new(*crowds)),
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
            whole_line: match &parts[..] {
                [part] => part.order,
                _ => None,
            },
            parts,
            shared,
            plan: Plan::of(&deltas, contiguous),
        }
    }

    /// Whether addresses have this shape; `start` is lane 0's, with the offset that all
    /// of `base` lack.
    #[inline(always)]
    pub(crate) fn fits_long(&self, base: &[u64; LANES], start: u64) -> bool {
        let (mut differ, first) = ([0; 4], base[0]);
        let (addresses, _) = base.as_chunks::<4>();
        let (deltas, _) = self.deltas.as_chunks::<4>();
        for (addresses, deltas) in addresses.iter().zip(deltas) {
            for at in 0..4 {
                differ[at] |= addresses[at] ^ deltas[at].wrapping_add(first);
            }
        }
        differ == [0; 4] && start % 128 == self.phase
    }

    /// The same for addresses of 32 bits. That no lane wraps around where lane 0 does
    /// not is what the bounds say.
    #[inline(always)]
    pub(crate) fn fits_word(&self, base: &[u32; LANES], start: u64) -> bool {
        let (mut differ, first) = ([0; 8], base[0]);
        let (addresses, _) = base.as_chunks::<8>();
        let (deltas, _) = self.short_deltas.as_chunks::<8>();
        for (addresses, deltas) in addresses.iter().zip(deltas) {
            for at in 0..8 {
                differ[at] |= addresses[at] ^ deltas[at].wrapping_add(first);
            }
        }
        differ == [0; 8] && start % 128 == self.phase
    }

    /// What it touches of each line.
    #[inline(always)]
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// In which order of the lanes it touches a whole line and nothing else, if it does.
    #[inline(always)]
    pub(crate) fn whole_line(&self) -> Option<u8> {
        self.whole_line
    }

    /// Whether two lanes touch one word.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Where each lane lies, if lane 0 is at `start`.
    pub(crate) fn offsets(&self, start: u64) -> [u64; LANES] {
        self.deltas.map(|delta| start.wrapping_add(delta))
    }

    /// The same in 32 bits.
    #[inline(always)]
    pub(crate) fn short_offsets(&self, start: u64) -> [u32; LANES] {
        let mut offsets = self.short_deltas;
        for offset in &mut offsets {
            *offset = offset.wrapping_add(start as u32);
        }
        offsets
    }

    /// Whether everything lies within `len` bytes.
    #[inline(always)]
    pub(crate) fn is_inside(&self, start: u64, len: u64) -> bool {
        self.back <= start && start < len && self.ahead <= len - start
    }

    #[inline(always)]
    pub(crate) fn load(&self, region: &Region, start: u64, values: &mut [u32; LANES]) {
        match &self.plan {
            Plan::Run => region.words(start, values),
            Plan::Halves([low, high]) => {
                let (halves, _) = values.as_chunks_mut::<{ LANES / 2 }>();
                let [first, second] = halves else {
                    return;
                };
                let span = (self.back + self.ahead) as usize;
                if span <= NEAR {
                    let bytes = region.bytes(start - self.back, span);
                    if bytes.len() == span {
                        low.take(bytes, self.back, first);
                        high.take(bytes, self.back, second);
                        return;
                    }
                }
                low.load(region, start, first);
                high.load(region, start, second);
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
                *values = region.gather::<u32>(&self.offsets(start), ALL, 0);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn store(&self, region: &mut Region, start: u64, values: &[u32; LANES]) {
        if let Plan::Run = self.plan {
            region.put_run::<u32>(start, values);
        } else {
            region.scatter::<u32>(&self.offsets(start), ALL, 0, values);
        }
    }
}

/// What one instruction remembers.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) ways: Ways,
    pub(crate) misses: u8,
    /// The allocation that it accessed last.
    pub(crate) recent: usize,
}

/// The shapes of one instruction.
#[derive(Debug, Default)]
pub(crate) struct Ways([Option<Box<Pattern>>; WAYS]);

impl Ways {
    /// The shape of an access whose lane 0 is at an address, if it is any of these.
    #[inline(always)]
    pub(crate) fn at(&self, address: u64) -> Option<&Pattern> {
        self.0[way_of(address)].as_deref()
    }
}

/// What the instructions of a kernel remember, by their places.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    by_pc: Vec<Memory>,
}

#[inline(always)]
fn way_of(address: u64) -> usize {
    (address >> 5) as usize % WAYS
}

impl Patterns {
    #[inline(always)]
    pub(crate) fn of(&mut self, pc: u32) -> Option<&mut Memory> {
        self.by_pc.get_mut(pc as usize)
    }

    /// An access has fitted no shape: whether to [`learn`](Patterns::learn) its own.
    pub(crate) fn misses(&mut self, pc: u32) -> bool {
        let pc = pc as usize;
        if self.by_pc.len() <= pc {
            self.by_pc.resize_with(pc + 1, Default::default);
        }
        self.by_pc[pc].misses < PATIENCE
    }

    /// Learns the shape of an access that fitted none.
    pub(crate) fn learn(&mut self, pc: u32, addresses: &[u64; LANES]) {
        let aligned = |address: &u64| address.is_multiple_of(u64::from(WORD));
        if let Some(memory) = self.by_pc.get_mut(pc as usize)
            && addresses.iter().all(aligned)
        {
            memory.misses += 1;
            memory.ways.0[way_of(addresses[0])] = Some(Box::new(Pattern::of(addresses)));
        }
    }
}
