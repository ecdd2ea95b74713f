//! The access history of a region of memory: its lines, and a list of deferred reads.
//!
//! Where all writes to a line happen before every agent that can reach it, a read can't conflict;
//! it must only be recorded for the next write. That holds for a block's shared memory between a
//! barrier of the whole block and the first write after it. Such a read is deferred: it is put on a
//! list, whatever its lanes touch. A barrier of the whole block orders all reads of the list and
//! clears it; a write to a line with deferred reads first records them in their lines. And for the
//! first write after a barrier the earlier history of its line is superfluous.
//!
//! An input buffer of the launch is [still](History::is_still): it is assumed read-only. As long as
//! nobody writes it, no read of it can conflict and none is recorded. A write *stirs* it: then the
//! missing reads are lost, and the launch is run again without still memory.

use super::access::{Access, AccessKind, Conflict, Geography};
use super::clock::{Agent, WarpClock};
use super::shadow::{Floor, Line};
use super::touch::Touch;
use super::trace::{Clash, Seen};
use crate::lanes::{LANES, Mask};

/// Lines that are allocated together: as many as a page has bits to tell them apart.
const PAGE: usize = 64;
/// How many reads are deferred at first, and at most; then they are recorded in their lines.
const PUT_OFF: std::ops::Range<usize> = 64..2048;

/// The memory of a region.
#[derive(Debug, Default)]
pub(crate) struct History {
    pages: Vec<Option<Box<Page>>>,
    /// Whether reads are deferred.
    defers: bool,
    /// The number of barriers of all agents that can reach the region, plus one.
    met: u32,
    /// What has happened to each line since the last such barrier, where reads are deferred.
    marks: Vec<Mark>,
    /// Deferred reads, the first `waiting` of the list.
    reads: Vec<Read>,
    waiting: usize,
    /// Whether reads are not recorded, because the memory is assumed read-only.
    still: bool,
    /// Whether it was written nevertheless.
    stirred: bool,
}

/// Some lines.
#[derive(Debug)]
struct Page {
    lines: [Line; PAGE],
    /// A bit for each that may remember something: a block touches few of them, and the others need not be cleared for the next one.
    used: u64,
}

impl Page {
    /// A line that is about to remember something.
    #[inline(always)]
    fn line(&mut self, line: u64) -> &mut Line {
        let at = line as usize % PAGE;
        self.used |= 1 << at;
        &mut self.lines[at]
    }

    /// Forgets everything.
    fn clear(&mut self) {
        let mut used = std::mem::take(&mut self.used);
        while used != 0 {
            self.lines[used.trailing_zeros() as usize].clear();
            used &= used - 1;
        }
    }
}

/// At which barrier a line was last touched, by what kind of access.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// A write.
    written: u32,
    /// A deferred read.
    put_off: u32,
    /// Whatever the line itself remembers.
    recorded: u32,
}

/// A plain read of a warp, all lines of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    offsets: [u32; LANES],
    mask: Mask,
    size: u32,
    pc: u32,
    agent: Agent,
    clock: u32,
}

impl Read {
    /// Of `size` bytes at each offset of the lanes in `mask`, by the instruction at `pc`.
    #[inline(always)]
    pub(crate) fn of(
        offsets: [u32; LANES],
        (mask, size): (Mask, u32),
        pc: u32,
        clock: &WarpClock,
    ) -> Read {
        Read {
            offsets,
            mask,
            size,
            pc,
            agent: clock.agent,
            clock: clock.now,
        }
    }
}

impl History {
    /// Of memory that is reached from anywhere.
    pub(crate) fn new(lines: usize) -> History {
        History {
            pages: (0..lines.div_ceil(PAGE)).map(|_| None).collect(),
            ..History::default()
        }
    }

    /// Of a copy of the memory, without a past.
    pub(crate) fn fork(&self, lines: usize) -> History {
        History {
            still: self.still,
            ..History::new(lines)
        }
    }

    /// From now on the memory is assumed read-only.
    pub(crate) fn keep_still(&mut self) {
        self.still = true;
    }

    /// Whether no read is recorded.
    #[inline(always)]
    pub(crate) fn is_still(&self) -> bool {
        self.still
    }

    /// Notes a write.
    #[inline(always)]
    pub(crate) fn stir(&mut self) {
        self.stirred |= self.still;
    }

    /// Whether still memory was written.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Of a block's own memory, for the next block; keeps its buffers. `defers` says whether reads
    /// may be deferred: not where asynchronous operations may follow, which must find earlier reads
    /// without a proxy fence.
    pub(crate) fn restart(&mut self, lines: usize, defers: bool) {
        for page in self.pages.iter_mut().flatten() {
            page.clear();
        }
        self.pages.resize_with(lines.div_ceil(PAGE), || None);
        self.defers = defers;
        self.marks.resize(lines, Mark::default());
        self.all_met();
    }

    /// A barrier of all agents that can reach the memory: all earlier accesses are ordered.
    pub(crate) fn all_met(&mut self) {
        self.waiting = 0;
        self.met = self.met.wrapping_add(1);
        if self.met == 0 {
            self.marks.fill(Mark::default());
            self.met = 1;
        }
    }

    /// Whether plain reads can be deferred at all.
    #[inline(always)]
    pub(crate) fn defers(&self) -> bool {
        self.defers
    }

    /// Defers a plain read that touches these lines. False, without effect, if one of them was
    /// written since the last barrier, or if there are too many reads.
    #[inline(always)]
    pub(crate) fn put_off(
        &mut self,
        mut lines: impl Iterator<Item = u64>,
        read: impl FnOnce() -> Read,
    ) -> bool {
        if !self.defers || self.waiting >= self.reads.len() && !self.has_room() {
            return false;
        }
        let (met, marks) = (self.met, &mut self.marks[..]);
        let calm = lines.all(|line| match marks.get_mut(line as usize) {
            Some(mark) if mark.written != met => {
                mark.put_off = met;
                true
            }
            _ => false,
        });
        let Some(slot) = self.reads.get_mut(self.waiting).filter(|_| calm) else {
            return false;
        };
        *slot = read();
        self.waiting += 1;
        true
    }

    #[cold]
    #[inline(never)]
    fn has_room(&mut self) -> bool {
        let more = (2 * self.reads.len()).clamp(PUT_OFF.start, PUT_OFF.end);
        self.reads.resize(more, Read::default());
        self.waiting < more
    }

    /// Records a plain access to a whole line in an order of the lanes, if that is simple and there
    /// is no conflict. False, without effect, otherwise.
    #[inline(always)]
    pub(crate) fn access_in_order(
        &mut self,
        line: u64,
        (write, order): (bool, u8),
        pc: u32,
        clock: &WarpClock,
    ) -> bool {
        if self.still {
            // A write is not as simple as that.
            return !write;
        }
        if self.has_waiting(line) {
            return false;
        }
        let fresh = self.touch(line, write);
        let Some(Some(page)) = self.pages.get_mut(line as usize / PAGE) else {
            return false;
        };
        let line = page.line(line);
        if fresh {
            line.clear();
        }
        line.access_in_order(write, order, pc, clock)
    }

    /// Records an access to a line and returns the first conflict that it has.
    #[inline(always)]
    pub(crate) fn access(
        &mut self,
        line: u64,
        access: &Access<'_>,
        clock: &WarpClock,
        geography: Geography,
        floor: &Floor,
    ) -> Option<Conflict> {
        if self.still && !access.write {
            return None;
        }
        self.stir();
        if self.has_waiting(line) {
            self.catch_up(geography, floor);
        }
        let fresh = self.touch(line, access.write);
        let line = self.line(line)?;
        if fresh {
            line.clear();
        }
        line.access(access, clock, geography, floor)
    }

    /// The writes that the access to a line which was recorded last conflicts with, if it was a write.
    pub(crate) fn clashes(&mut self, line: u64) -> Vec<Clash> {
        match self.pages.get_mut(line as usize / PAGE) {
            Some(Some(page)) => page.lines[line as usize % PAGE].clashes(),
            _ => Vec::new(),
        }
    }

    /// The first conflict that an access to a line would have now. Records nothing.
    pub(crate) fn foresee(
        &mut self,
        line: u64,
        access: &Access<'_>,
        clock: &WarpClock,
        geography: Geography,
        floor: &Floor,
    ) -> Option<Conflict> {
        if self.has_waiting(line) {
            self.catch_up(geography, floor);
        }
        match self.pages.get(line as usize / PAGE) {
            Some(Some(page)) => page.lines[line as usize % PAGE].foresee(access, clock, geography),
            _ => None,
        }
    }

    /// Whether a line has deferred reads.
    #[inline(always)]
    fn has_waiting(&self, line: u64) -> bool {
        let of_line = |mark: &Mark| !self.defers || mark.put_off == self.met;
        self.waiting != 0 && self.marks.get(line as usize).is_none_or(of_line)
    }

    /// Marks a line that is about to be accessed. True if its whole history is ordered before every
    /// agent, so that a write makes it superfluous.
    #[inline(always)]
    fn touch(&mut self, line: u64, write: bool) -> bool {
        if !self.defers {
            return false;
        }
        let Some(mark) = self.marks.get_mut(line as usize) else {
            return false;
        };
        let fresh = write && mark.recorded != self.met;
        mark.recorded = self.met;
        if write {
            mark.written = self.met;
        }
        fresh
    }

    /// Forgets what was known of `bytes` of a line, and notes that an asynchronous
    /// operation wrote them.
    pub(crate) fn overwrite(
        &mut self,
        line: u64,
        bytes: u128,
        kind: AccessKind,
        by: (Agent, u32),
        pc: u32,
    ) {
        self.stir();
        // No barrier makes that known.
        self.defers = false;
        if let Some(line) = self.line(line) {
            line.overwrite(bytes, kind, by, pc);
        }
    }

    /// Notes that an asynchronous reduction changes some bytes: what was known of them stays, since
    /// others may change them at the same time.
    pub(crate) fn reduce(&mut self, line: u64, bytes: u128, by: (Agent, u32), pc: u32) {
        self.stir();
        // No barrier makes that known.
        self.defers = false;
        if let Some(line) = self.line(line) {
            line.add_by_proxy(bytes, (true, AccessKind::Reduction), by, pc);
        }
    }

    /// Notes that an asynchronous operation of `agent`, its `clock`th, reads some bytes.
    pub(crate) fn read_by_proxy(
        &mut self,
        line: u64,
        bytes: u128,
        kind: AccessKind,
        by: (Agent, u32),
        pc: u32,
    ) {
        if self.still {
            return;
        }
        // No barrier makes that known.
        self.defers = false;
        if let Some(line) = self.line(line) {
            line.add_by_proxy(bytes, (false, kind), by, pc);
        }
    }

    /// Calls `f` for every recorded access to one of `bytes` of a line, cell by cell. Deferred
    /// reads are not included.
    pub(crate) fn each(&self, line: u64, bytes: u128, f: impl FnMut(Seen)) {
        if let Some(Some(page)) = self.pages.get(line as usize / PAGE) {
            page.lines[line as usize % PAGE].each(bytes, f);
        }
    }

    /// The reads that have seen a recorded write of a line.
    pub(crate) fn observers(
        &self,
        line: u64,
        seen: Seen,
    ) -> impl Iterator<Item = (Agent, u32, u8)> {
        let page = self
            .pages
            .get(line as usize / PAGE)
            .and_then(Option::as_ref);
        let line = page.map(|page| &page.lines[line as usize % PAGE]);
        line.into_iter().flat_map(move |line| line.observers(seen))
    }

    /// Records the deferred reads in their lines.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, geography: Geography, floor: &Floor) {
        let reads = std::mem::take(&mut self.reads);
        for read in &reads[..self.waiting] {
            let touch = Touch {
                offsets: &read.offsets.map(u64::from),
                mask: read.mask,
                size: read.size,
            };
            touch.lines(touch.is_contiguous(), |part| {
                let access = Access::of(part, false, AccessKind::Plain, read.pc);
                self.touch(part.line, false);
                if let Some(line) = self.line(part.line) {
                    line.read_quietly(&access, (read.agent, read.clock), geography, floor);
                }
            });
        }
        (self.reads, self.waiting) = (reads, 0);
    }

    #[inline(always)]
    fn line(&mut self, line: u64) -> Option<&mut Line> {
        let page = self.pages.get_mut(line as usize / PAGE)?;
        let page = match page {
            Some(page) => page,
            none => none.insert(fresh_page()),
        };
        Some(page.line(line))
    }
}

#[cold]
#[inline(never)]
fn fresh_page() -> Box<Page> {
    Box::new(Page {
        lines: std::array::from_fn(|_| Line::default()),
        used: 0,
    })
}

#[cfg(test)]
mod tests;
