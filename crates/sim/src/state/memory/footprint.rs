//! Which bytes of a fork of memory were read and which were written.
//!
//! Most accesses are to whole lines, so a line is one byte until a part of it is touched.

/// Lines of which parts are kept together.
const PAGE: usize = 64;
/// All of a line was read, or written; or some of it, which a page knows.
const READ: u8 = 1;
const WRITTEN: u8 = 2;
const PARTLY: u8 = 4;

/// What was touched; of memory that is no fork, nothing is noted.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    lines: Vec<u8>,
    /// Bytes that were read and bytes that were written, of lines that were touched in part.
    parts: Vec<Option<Box<[[u128; 2]; PAGE]>>>,
}

impl Footprint {
    /// Of this many lines, none of them touched.
    pub(crate) fn new(lines: usize) -> Footprint {
        Footprint {
            lines: vec![0; lines],
            parts: vec![None; lines.div_ceil(PAGE)],
        }
    }

    /// Notes an access to some bytes of a line.
    #[inline(always)]
    pub(crate) fn note(&mut self, line: u64, bytes: u128, write: bool) {
        let Some(state) = self.lines.get_mut(line as usize) else {
            return;
        };
        let whole = if write { WRITTEN } else { READ };
        if bytes == u128::MAX {
            *state |= whole;
        } else if *state & whole == 0 {
            *state |= PARTLY;
            self.note_part(line as usize, bytes, write);
        }
    }

    #[inline(never)]
    fn note_part(&mut self, line: usize, bytes: u128, write: bool) {
        if let Some(page) = self.parts.get_mut(line / PAGE) {
            let page = page.get_or_insert_with(|| Box::new([[0; 2]; PAGE]));
            page[line % PAGE][usize::from(write)] |= bytes;
        }
    }

    /// The bytes of a line that were read, and those that were written.
    pub(crate) fn of(&self, line: usize) -> [u128; 2] {
        let state = self.lines.get(line).copied().unwrap_or(0);
        let mut touched = match self.parts.get(line / PAGE) {
            Some(Some(page)) if state & PARTLY != 0 => page[line % PAGE],
            _ => [0; 2],
        };
        for (bytes, whole) in touched.iter_mut().zip([READ, WRITTEN]) {
            if state & whole != 0 {
                *bytes = u128::MAX;
            }
        }
        touched
    }

    /// Notes what another one has noted of the same lines.
    pub(crate) fn add(&mut self, other: &Footprint) {
        let lines = other.lines.iter().enumerate();
        for (line, _) in lines.filter(|(_, state)| **state != 0) {
            for (bytes, write) in other.of(line).into_iter().zip([false, true]) {
                if bytes != 0 {
                    self.note(line as u64, bytes, write);
                }
            }
        }
    }

    /// Whether all of a line was written.
    pub(crate) fn is_written(&self, line: usize) -> bool {
        self.of(line)[1] == u128::MAX
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether no fork has written a byte of these lines that another one has touched.
    pub(crate) fn are_apart(all: &[&Footprint], mut lines: std::ops::Range<usize>) -> bool {
        lines.all(|line| {
            let states = || all.iter().filter_map(|one| one.lines.get(line).copied());
            let together = states().fold(0, |union, state| union | state);
            let alone = states().filter(|&state| state != 0).count() <= 1;
            alone || together == READ || {
                let (mut read, mut written, mut clash) = (0, 0, 0);
                for one in all {
                    let [reads, writes] = one.of(line);
                    clash |= writes & (read | written) | reads & written;
                    read |= reads;
                    written |= writes;
                }
                clash == 0
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_whole_lines_are_told_apart() {
        let mut one = Footprint::new(70);
        one.note(2, 0xf0, false);
        one.note(2, 0x0f, true);
        one.note(66, u128::MAX, true);
        one.note(66, 1, true);
        one.note(99, 1, true);
        assert_eq!(one.of(2), [0xf0, 0x0f]);
        assert_eq!(one.of(66), [0, u128::MAX]);
        assert_eq!(one.of(99), [0, 0]);
        let mut both = Footprint::new(70);
        both.note(2, 0x100, false);
        both.add(&one);
        assert_eq!((both.of(2), both.of(66)), ([0x1f0, 0x0f], [0, u128::MAX]));
        one.note(2, u128::MAX, true);
        assert!(one.is_written(2) && !one.is_written(3));
        assert_eq!(one.of(2), [0xf0, u128::MAX]);
    }

    #[test]
    fn a_write_is_apart_from_other_bytes_only() {
        let touch = |bytes, write| {
            let mut one = Footprint::new(1);
            one.note(0, bytes, write);
            one
        };
        let apart = |a: (u128, bool), b: (u128, bool)| {
            let (a, b) = (touch(a.0, a.1), touch(b.0, b.1));
            assert_eq!(
                Footprint::are_apart(&[&a, &b], 0..1),
                Footprint::are_apart(&[&b, &a], 0..1)
            );
            Footprint::are_apart(&[&a, &b], 0..1)
        };
        assert!(apart((0xf, true), (0xf0, true)));
        assert!(apart((0xf, true), (0xf0, false)));
        assert!(!apart((0xf, true), (0x18, false)));
        assert!(!apart((0xf, true), (0x18, true)));
        assert!(apart((u128::MAX, false), (u128::MAX, false)));
        assert!(apart((u128::MAX, false), (1, false)));
        assert!(!apart((u128::MAX, false), (1, true)));
        assert!(!apart((u128::MAX, true), (u128::MAX, true)));
    }
}
