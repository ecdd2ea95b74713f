//! The copies of `cp.async` in flight, and the words that they will write.

use crate::lanes::{LANES, Mask, each, first};
use crate::race::access::LINE;
use crate::race::clock::Agent;
use std::collections::VecDeque;

/// One instruction's copies.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) pc: u32,
    pub(crate) mask: Mask,
    pub(crate) offsets: [u64; LANES],
    pub(crate) size: u32,
    /// What each lane copies, in the low `size` bytes.
    pub(crate) data: [u128; LANES],
    /// The bytes of it that nothing has written, a bit each.
    pub(crate) holes: [u16; LANES],
    /// The number of its group.
    pub(crate) number: u32,
    pub(crate) ready: u64,
}

/// A warp's copies that have not been waited for.
#[derive(Debug, Default)]
pub(crate) struct WarpCopies {
    pub(crate) open: Vec<Copy>,
    pub(crate) groups: VecDeque<Vec<Copy>>,
    /// Lists to use again.
    pub(crate) spare: Vec<Vec<Copy>>,
    /// Who reads the sources, once they may be written, and how many groups there were before the next copy's: the
    /// race detector knows a group's end by its number.
    pub(crate) reader: Option<Agent>,
    pub(crate) before: u32,
    /// Those out of shared memory, by their flights.
    pub(crate) bulk: crate::state::bulk_group::Groups,
}

impl WarpCopies {
    /// Makes a group of the copies that are in none.
    pub(crate) fn commit(&mut self) {
        self.before += 1;
        let next = self.spare.pop().unwrap_or_default();
        self.groups
            .push_back(std::mem::replace(&mut self.open, next));
    }

    /// A copy without a commit, and one without a wait.
    pub(crate) fn left_over(&self) -> (Option<u32>, Option<u32>) {
        let in_groups = self.groups.iter().flatten().next();
        (
            self.open.first().map(|copy| copy.pc),
            in_groups.map(|copy| copy.pc),
        )
    }
}

/// The words of a block's shared memory that copies in flight will write.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    lines: Vec<ExpectedLine>,
    /// How many words they are.
    count: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct ExpectedLine {
    /// A bit for each word.
    words: u32,
    /// The instruction that copies to each of them.
    pcs: [u32; LINE / 4],
}

impl Expected {
    /// Whether no copy is in flight.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The line and the words of some bytes, which lie in one line.
    #[inline(always)]
    pub(crate) fn place(offset: u64, size: u32) -> (usize, u32) {
        let first = offset as u32 / 4 % 32;
        let last = (offset as u32 + size.max(1) - 1) / 4 % 32;
        let words = (u32::MAX >> (31 - last)) & (u32::MAX << first);
        ((offset / LINE as u64) as usize, words)
    }

    /// Adds a copy in flight to some bytes. Returns one that is already in flight to them.
    pub(crate) fn expect(&mut self, offset: u64, size: u32, pc: u32) -> Option<u32> {
        let other = self.at(offset, size);
        let (line, words) = Expected::place(offset, size);
        if line >= self.lines.len() {
            self.lines.resize(line + 1, ExpectedLine::default());
        }
        let line = &mut self.lines[line];
        self.count += (words & !line.words).count_ones();
        line.words |= words;
        for word in each(words) {
            line.pcs[word] = pc;
        }
        other
    }

    /// The copy to some bytes has completed.
    pub(crate) fn land(&mut self, offset: u64, size: u32) {
        let (line, words) = Expected::place(offset, size);
        if let Some(line) = self.lines.get_mut(line) {
            self.count -= (words & line.words).count_ones();
            line.words &= !words;
        }
    }

    /// The copy in flight to one of some bytes.
    #[inline(always)]
    pub(crate) fn at(&self, offset: u64, size: u32) -> Option<u32> {
        let (line, words) = Expected::place(offset, size);
        let line = self.lines.get(line)?;
        let met = line.words & words;
        (met != 0).then(|| line.pcs[first(met)])
    }
}
