//! Memory that outlives a launch, at addresses that its owner has chosen.
//!
//! Programs keep pointers in structs and in memory, so their allocations keep their addresses from
//! launch to launch, with the written bit of each byte.
//!
//! ```
//! use heist_launch::Placed;
//!
//! let mut pool = Placed::fresh("pool", 0x7000_0000, 64); // nobody has written it
//! pool.mark(0, 16);
//! let written = pool.written.as_ref().expect("in part");
//! assert_eq!(written.first_missing(0, 64), Some(16));
//! assert!(Placed::filled("table", 0x7100_0000, vec![1, 2, 3]).written.is_none());
//! ```

use std::sync::Arc;

/// A stretch of memory at an address. A kernel may read and write it; after a launch it
/// is given back as the kernel left it.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// What messages, pointers and tensor maps call it.
    pub name: String,
    /// Its address.
    pub at: u64,
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Which of them were written; all, where nothing is said.
    pub written: Option<Written>,
}

impl Placed {
    /// Memory of which every byte was written.
    pub fn filled(name: impl Into<String>, at: u64, bytes: Vec<u8>) -> Placed {
        Placed {
            name: name.into(),
            at,
            bytes: Arc::new(bytes),
            written: None,
        }
    }

    /// Memory that nobody has written yet.
    pub fn fresh(name: impl Into<String>, at: u64, len: usize) -> Placed {
        Placed {
            name: name.into(),
            at,
            bytes: Arc::new(vec![0; len]),
            written: Some(Written::none(len)),
        }
    }

    /// Notes that the host wrote some bytes.
    pub fn mark(&mut self, offset: usize, len: usize) {
        if let Some(written) = &mut self.written {
            written.mark(offset, len);
            if written.is_all(self.bytes.len()) {
                self.written = None;
            }
        }
    }
}

/// Addresses that a program may have and that are no memory of the device. An access there is an
/// error in any case; these say what to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The addresses.
    pub at: std::ops::Range<u64>,
    /// Why they are none of the device.
    pub why: ForeignKind,
}

/// What addresses are that are none of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignKind {
    /// Memory by this name that was given back before the launch.
    Freed(String),
    /// Memory of the host that the device can't access.
    Host,
}

/// Which bytes were written: one bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// A line of 128 bytes each, the first byte in the lowest bit.
    pub lines: Vec<u128>,
}

impl Written {
    /// The bytes of a line.
    pub const LINE: usize = 128;

    /// None of so many bytes.
    pub fn none(len: usize) -> Written {
        Written {
            lines: vec![0; len.div_ceil(Self::LINE)],
        }
    }

    /// Notes a range as written.
    pub fn mark(&mut self, offset: usize, len: usize) {
        let (mut at, end) = (offset, offset.saturating_add(len));
        while at < end {
            let stop = end.min((at / Self::LINE + 1) * Self::LINE);
            let Some(line) = self.lines.get_mut(at / Self::LINE) else {
                return;
            };
            *line |= ones(stop - at) << (at % Self::LINE);
            at = stop;
        }
    }

    /// The first of some bytes that was not written.
    pub fn first_missing(&self, offset: usize, len: usize) -> Option<usize> {
        (offset..offset.saturating_add(len)).find(|&at| {
            let line = self.lines.get(at / Self::LINE);
            line.is_some_and(|line| line >> (at % Self::LINE) & 1 == 0)
        })
    }

    /// Whether all of `len` bytes were written.
    pub fn is_all(&self, len: usize) -> bool {
        let (whole, rest) = (len / Self::LINE, len % Self::LINE);
        let last = ones(rest);
        self.lines.iter().take(whole).all(|line| *line == u128::MAX)
            && self.lines.get(whole).is_none_or(|line| line & last == last)
    }
}

/// The lowest bits, so many of them.
fn ones(count: usize) -> u128 {
    match count {
        128.. => u128::MAX,
        _ => (1 << count) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_known_by_the_byte() {
        let mut one = Placed::fresh("a", 0, 300);
        one.mark(10, 200);
        let written = one.written.clone().unwrap();
        assert_eq!(written.first_missing(10, 200), None);
        assert_eq!(written.first_missing(9, 1), Some(9));
        assert_eq!(written.first_missing(200, 20), Some(210));
        one.mark(0, 10);
        one.mark(210, 89);
        assert!(one.written.is_some());
        one.mark(299, 1);
        assert_eq!(one.written, None);
    }
}
