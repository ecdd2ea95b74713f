//! What the race detector remembers of a stretch of memory: its lines, and reads that
//! nobody has had to look at yet.
//!
//! Where everybody who can reach the memory knows all that was written to it, a read
//! conflicts with nothing, and all there is to do is to remember it for the next write.
//! A block's shared memory is like that between a barrier of the whole block and the
//! first write behind it, and a tile's worth of reads goes by without a write. Such reads
//! are put on a list. A barrier of the whole block makes them known to everybody and
//! clears the list; whatever else wants to know about the memory first gives each line
//! its reads.
//!
//! Memory that the launch calls an input is [still](History::is_still): nobody is
//! expected to write it, and as long as nobody does, no read of it can conflict and none
//! is remembered. A write stirs it, and what was not remembered is lost: then the launch
//! is to be run again with no such memory.

use super::clock::{Agent, WarpClock};
use super::shadow::{Access, Conflict, Floor, Geography, Kind, Line, Seen};
use crate::lanes::Mask;

/// Lines that are allocated together.
const PAGE: usize = 64;
/// Reads that are put off at first, and at most; then their lines get them.
const PUT_OFF: std::ops::Range<usize> = 64..2048;

/// The memory of a region.
#[derive(Debug, Default)]
pub(crate) struct History {
    pages: Vec<Option<Box<[Line; PAGE]>>>,
    /// Whether reads are ever put off.
    defers: bool,
    /// Whether they are now, since all who can reach the region know all writes to it.
    quiet: bool,
    /// Reads that were put off, the first `waiting` of the list.
    reads: Vec<Read>,
    waiting: usize,
    /// Whether reads are not remembered, since nobody is expected to write.
    still: bool,
    /// Whether somebody has written nevertheless.
    stirred: bool,
}

/// A plain read of some words of a line.
#[derive(Clone, Debug, Default)]
struct Read {
    line: u32,
    cells: Mask,
    agent: Agent,
    clock: u32,
    pc: u32,
    shared: bool,
    lanes: [u8; 32],
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

    /// From now on, nobody is expected to write.
    pub(crate) fn keep_still(&mut self) {
        self.still = true;
    }

    /// Whether no read is remembered.
    #[inline(always)]
    pub(crate) fn is_still(&self) -> bool {
        self.still
    }

    /// Somebody writes.
    #[inline(always)]
    pub(crate) fn stir(&mut self) {
        self.stirred |= self.still;
    }

    /// Whether somebody has written what was to be still.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// Of a block's own memory, for the next block; keeps its buffers. `defers` says
    /// whether reads may be put off: not where asynchronous operations come after them,
    /// which look for the reads that no fence has made known to them.
    pub(crate) fn restart(&mut self, lines: usize, defers: bool) {
        for page in self.pages.iter_mut().flatten() {
            page.iter_mut().for_each(Line::clear);
        }
        self.pages.resize_with(lines.div_ceil(PAGE), || None);
        (self.defers, self.quiet, self.waiting) = (defers, defers, 0);
    }

    /// All who can reach the memory have met: they know what was done to it.
    pub(crate) fn all_met(&mut self) {
        (self.quiet, self.waiting) = (self.defers, 0);
    }

    /// Whether a plain read can be put off.
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// How many reads are put off, to [take back](History::take_back) what comes behind.
    #[inline(always)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Forgets the reads that were put off behind the first `waiting`.
    pub(crate) fn take_back(&mut self, waiting: usize) {
        self.waiting = self.waiting.min(waiting);
    }

    /// Puts off a plain read of whole words, of which `shared` says whether several
    /// lanes touch one, while the memory [is quiet](History::is_quiet). False if there
    /// are too many of them.
    #[inline(always)]
    pub(crate) fn put_off(
        &mut self,
        line: u64,
        (cells, lanes, shared): (Mask, &[u8; 32], bool),
        pc: u32,
        clock: &WarpClock,
    ) -> bool {
        if self.waiting >= self.reads.len() && !self.has_room() {
            return false;
        }
        let Some(read) = self.reads.get_mut(self.waiting) else {
            return false;
        };
        read.line = line as u32;
        read.cells = cells;
        (read.agent, read.clock) = (clock.agent, clock.now);
        read.pc = pc;
        read.shared = shared;
        read.lanes = *lanes;
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

    /// Records a plain access to a whole line in an order of the lanes, of which it is a
    /// write or not, if that is simple and it conflicts with nothing. False if nothing
    /// has happened.
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
        let Some(Some(page)) = self.pages.get_mut(line as usize / PAGE) else {
            return false;
        };
        self.quiet &= !write;
        self.waiting == 0 && page[line as usize % PAGE].access_in_order(write, order, pc, clock)
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
        if self.waiting != 0 {
            self.catch_up(geography, floor);
        }
        self.quiet &= !access.write;
        self.line(line)?.access(access, clock, geography, floor)
    }

    /// Forgets what was known of `bytes` of a line, and notes that an asynchronous
    /// operation wrote them.
    pub(crate) fn overwrite(&mut self, line: u64, bytes: u128, agent: Agent, clock: u32, pc: u32) {
        self.stir();
        // No barrier makes that known.
        (self.quiet, self.defers) = (false, false);
        if let Some(line) = self.line(line) {
            line.overwrite(bytes, agent, clock, pc);
        }
    }

    /// Calls `f` for every recorded access to one of `bytes` of a line, cell by cell.
    /// Reads that were put off are not among them.
    pub(crate) fn each(&self, line: u64, bytes: u128, f: impl FnMut(Seen)) {
        if let Some(Some(page)) = self.pages.get(line as usize / PAGE) {
            page[line as usize % PAGE].each(bytes, f);
        }
    }

    /// Gives each line the reads that were put off.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, geography: Geography, floor: &Floor) {
        let reads = std::mem::take(&mut self.reads);
        for read in &reads[..self.waiting] {
            let access = Access {
                write: false,
                kind: Kind::Plain,
                pc: read.pc,
                bytes: crate::memory::touch::spread(read.cells, 2),
                lanes: &read.lanes,
                shift: 2,
                first: 0,
                shared: read.shared,
                cells: read.cells,
                order: None,
            };
            if let Some(line) = self.line(u64::from(read.line)) {
                line.read_quietly(&access, (read.agent, read.clock), geography, floor);
            }
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
        Some(&mut page[line as usize % PAGE])
    }
}

#[cold]
#[inline(never)]
fn fresh_page() -> Box<[Line; PAGE]> {
    Box::new(std::array::from_fn(|_| Line::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::ALL;
    use crate::memory::touch::spread;
    use crate::race::clock::{SEVERAL, meet};
    use crate::rng::Rng;

    const ONE_BLOCK: Geography = Geography {
        warps_per_block: 3,
        blocks_per_cluster: 1,
        isolated: true,
    };

    fn access(write: bool, cells: Mask, lanes: &[u8; 32], pc: u32) -> Access<'_> {
        Access {
            write,
            kind: Kind::Plain,
            pc,
            bytes: spread(cells, 2),
            lanes,
            shift: 2,
            first: 0,
            shared: lanes.contains(&SEVERAL),
            cells,
            order: None,
        }
    }

    fn shared_memory(defers: bool) -> History {
        let mut history = History::default();
        history.restart(4, defers);
        history
    }

    #[test]
    fn a_write_finds_a_read_that_was_put_off_until_all_have_met() {
        let floor = Floor::new(0, 2);
        let (mut a, mut b) = (WarpClock::new(0, 0, 2), WarpClock::new(1, 0, 2));
        let lanes: [u8; 32] = std::array::from_fn(|lane| lane as u8);
        let mut history = shared_memory(true);
        assert!(history.is_quiet());
        assert!(history.put_off(1, (0b1000, &lanes, false), 17, &a));
        let write = access(true, ALL, &lanes, 30);
        assert_eq!(history.access(0, &write, &b, ONE_BLOCK, &floor), None);
        let conflict = history.access(1, &write, &b, ONE_BLOCK, &floor);
        assert!(
            conflict.is_some_and(|found| {
                (found.agent, found.their_lane, found.their_pc, found.byte) == (0, 3, 17, 12)
            }),
            "{conflict:?}"
        );
        assert!(!history.is_quiet(), "there are writes that not all know of");

        assert!(meet(&mut [&mut a, &mut b]));
        history.all_met();
        assert!(history.is_quiet());
        assert!(history.put_off(1, (0b1000, &lanes, false), 17, &a));
        assert!(meet(&mut [&mut a, &mut b]));
        history.all_met();
        assert_eq!(history.access(1, &write, &b, ONE_BLOCK, &floor), None);
    }

    #[test]
    fn what_an_asynchronous_operation_wrote_ends_putting_off() {
        let mut history = shared_memory(true);
        history.overwrite(0, 0xf, 9, 1, 3);
        history.all_met();
        assert!(!history.is_quiet());
        history.restart(4, true);
        assert!(history.is_quiet());
    }

    #[test]
    fn there_is_an_end_to_putting_off() {
        let (a, lanes) = (WarpClock::new(0, 0, 1), [0; 32]);
        let mut history = shared_memory(true);
        let put_off = |history: &mut History| history.put_off(0, (1, &lanes, false), 5, &a);
        assert_eq!((0..9999).filter(|_| put_off(&mut history)).count(), 2048);
        history.take_back(2047);
        assert!(put_off(&mut history) && !put_off(&mut history));
    }

    /// The same accesses and barriers with reads put off and without: every access finds
    /// the same conflict.
    #[test]
    fn putting_off_changes_nothing_that_is_found() {
        let mut found = 0;
        for seed in 1..400 {
            let mut rng = Rng::new(seed);
            let mut clocks: Vec<WarpClock> = (0..3).map(|at| WarpClock::new(at, 0, 3)).collect();
            let mut floor = Floor::new(0, 3);
            let (mut lazy, mut eager) = (shared_memory(true), shared_memory(false));
            for pc in 0..60 {
                let what = rng.below(12);
                if what == 0 {
                    let mut all: Vec<&mut WarpClock> = clocks.iter_mut().collect();
                    assert!(meet(&mut all));
                    for clock in all {
                        floor.raise(clock.agent, clock.now);
                    }
                    lazy.all_met();
                    eager.all_met();
                    continue;
                }
                let at = rng.below(3) as usize;
                if what == 1 {
                    clocks[at].sync_lanes(ALL, ALL);
                    continue;
                }
                let clock = &clocks[at];
                let cells = [0xf, 0xf0, 0xff00, ALL][rng.below(4) as usize];
                let mut lanes: [u8; 32] = std::array::from_fn(|lane| lane as u8);
                if rng.below(2) == 0 {
                    lanes.reverse();
                }
                if what.is_multiple_of(3) {
                    lanes[4] = SEVERAL;
                }
                let (line, write) = (rng.below(2), what > 9);
                let access = access(write, cells, &lanes, pc);
                let eagerly = eager.access(line, &access, clock, ONE_BLOCK, &floor);
                let lazily = if !write && lazy.is_quiet() {
                    assert!(lazy.put_off(line, (cells, &lanes, access.shared), pc, clock));
                    None
                } else {
                    lazy.access(line, &access, clock, ONE_BLOCK, &floor)
                };
                assert_eq!(lazily, eagerly, "seed {seed}, access {pc}");
                found += u32::from(eagerly.is_some());
            }
        }
        assert!(found > 1000, "{found} conflicts are too few to tell");
    }
}
