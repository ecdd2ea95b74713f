//! A stretch of memory: its bytes, which of them were ever written, and what the
//! race detector remembers.

use crate::lanes::{LANES, Mask, each};
use crate::race::shadow::{LINE, Line};

/// Lines whose shadow is allocated together.
const PAGE: usize = 64;

/// A stretch of memory. Offsets passed in are in bounds; the callers check them,
/// and an offset that is not reads zero and writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Region {
    data: Vec<u8>,
    /// One bit per byte, a line each; empty when everything counts as written.
    written: Vec<u128>,
    shadow: Vec<Option<Box<[Line]>>>,
    /// Of a fork: the bytes of each line that were read, and those that were written.
    touched: Vec<[u128; 2]>,
}

impl Region {
    /// Memory of `len` bytes that nobody has written, all zero.
    pub(crate) fn unwritten(len: usize) -> Region {
        let lines = len.div_ceil(LINE);
        Region {
            data: vec![0; lines * LINE],
            written: vec![0; lines],
            shadow: (0..lines.div_ceil(PAGE)).map(|_| None).collect(),
            touched: Vec::new(),
        }
    }

    /// A copy without a past, which notes the bytes that are read and written.
    pub(crate) fn fork(&self) -> Region {
        let lines = self.data.len().div_ceil(LINE);
        Region {
            data: self.data.clone(),
            written: self.written.clone(),
            shadow: (0..lines.div_ceil(PAGE)).map(|_| None).collect(),
            touched: vec![[0; 2]; lines],
        }
    }

    /// Notes an access to some bytes of a line, in a fork.
    #[inline]
    pub(crate) fn note(&mut self, line: u64, bytes: u128, write: bool) {
        if let Some(touched) = self.touched.get_mut(line as usize) {
            touched[usize::from(write)] |= bytes;
        }
    }

    /// Whether no fork has written a byte that another one has touched.
    pub(crate) fn are_apart<'a>(forks: impl Iterator<Item = &'a Region>) -> bool {
        let mut before: Vec<[u128; 2]> = Vec::new();
        for fork in forks {
            if before.is_empty() {
                before.clone_from(&fork.touched);
                continue;
            }
            for (before, now) in before.iter_mut().zip(&fork.touched) {
                if now[1] & (before[0] | before[1]) | now[0] & before[1] != 0 {
                    return false;
                }
                before[0] |= now[0];
                before[1] |= now[1];
            }
        }
        true
    }

    /// Takes over what a fork has written.
    pub(crate) fn absorb(&mut self, fork: &Region) {
        for (line, &[_, written]) in fork.touched.iter().enumerate() {
            if written == 0 {
                continue;
            }
            let bytes = line * LINE..(line + 1) * LINE;
            let (Some(target), Some(source)) =
                (self.data.get_mut(bytes.clone()), fork.data.get(bytes))
            else {
                continue;
            };
            if written == u128::MAX {
                target.copy_from_slice(source);
            } else {
                for (at, (target, source)) in target.iter_mut().zip(source).enumerate() {
                    if written >> at & 1 != 0 {
                        *target = *source;
                    }
                }
            }
            self.mark_line(line as u64, written);
        }
    }

    /// Memory that starts with these bytes, all of them written.
    pub(crate) fn of(bytes: impl Into<Vec<u8>>) -> Region {
        let mut data = bytes.into();
        let lines = data.len().div_ceil(LINE);
        data.resize(lines * LINE, 0);
        Region {
            data,
            written: Vec::new(),
            shadow: (0..lines.div_ceil(PAGE)).map(|_| None).collect(),
            touched: Vec::new(),
        }
    }

    /// The first `len` bytes.
    pub(crate) fn into_bytes(mut self, len: usize) -> Vec<u8> {
        self.data.truncate(len);
        self.data
    }

    /// Fills memory that nobody has written, so that reading it shows.
    pub(crate) fn poison(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.data.len());
        self.data[..len].copy_from_slice(&bytes[..len]);
    }

    /// Back to unwritten, for the next block; keeps its buffers.
    pub(crate) fn reset(&mut self, len: usize) {
        let lines = len.div_ceil(LINE);
        self.data.clear();
        self.data.resize(lines * LINE, 0);
        self.written.clear();
        self.written.resize(lines, 0);
        for page in self.shadow.iter_mut().flatten() {
            page.iter_mut().for_each(Line::clear);
        }
        self.shadow.resize_with(lines.div_ceil(PAGE), || None);
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        usize::try_from(offset)
            .ok()
            .and_then(|start| self.data.get(start..start.checked_add(len)?))
            .unwrap_or(&[])
    }

    pub(crate) fn bytes_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        usize::try_from(offset)
            .ok()
            .and_then(|start| self.data.get_mut(start..start.checked_add(len)?))
            .unwrap_or(&mut [])
    }

    /// Reads up to 16 bytes as a number.
    #[inline]
    pub(crate) fn read(&self, offset: u64, size: usize) -> u128 {
        let bytes = self.bytes(offset, size);
        match bytes.len() {
            4 => u128::from(word(bytes)),
            8 => u128::from(long(bytes)),
            _ => {
                let mut value = [0; 16];
                value[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
                u128::from_le_bytes(value)
            }
        }
    }

    /// Writes the low `size` bytes of a number, and marks them written.
    #[inline]
    pub(crate) fn write(&mut self, offset: u64, size: usize, value: u128) {
        self.write_bytes(offset, &value.to_le_bytes()[..size.min(16)]);
    }

    /// Writes bytes of any number, and marks them written.
    pub(crate) fn write_bytes(&mut self, offset: u64, bytes: &[u8]) {
        let target = self.bytes_mut(offset, bytes.len());
        if target.len() == bytes.len() {
            target.copy_from_slice(bytes);
            self.mark(offset, bytes.len());
        }
    }

    /// Marks bytes as written.
    pub(crate) fn mark(&mut self, offset: u64, len: usize) {
        if self.written.is_empty() {
            return;
        }
        let (mut at, end) = (offset as usize, offset as usize + len);
        while at < end {
            let stop = end.min((at / LINE + 1) * LINE);
            if let Some(line) = self.written.get_mut(at / LINE) {
                *line |= run(at % LINE, stop - at);
            }
            at = stop;
        }
    }

    /// Marks some bytes of one line as written.
    #[inline]
    pub(crate) fn mark_line(&mut self, line: u64, bytes: u128) {
        if let Some(written) = self.written.get_mut(line as usize) {
            *written |= bytes;
        }
    }

    /// Which of `bytes` of a line nobody has written.
    #[inline]
    pub(crate) fn unwritten_in(&self, line: u64, bytes: u128) -> u128 {
        match self.written.get(line as usize) {
            Some(written) => bytes & !written,
            None => 0,
        }
    }

    /// The first byte of a range that nobody has written.
    pub(crate) fn first_unwritten(&self, offset: u64, len: usize) -> Option<u64> {
        if self.written.is_empty() {
            return None;
        }
        (offset..offset + len as u64).find(|&at| {
            self.written
                .get(at as usize / LINE)
                .is_some_and(|line| line >> (at as usize % LINE) & 1 == 0)
        })
    }

    /// What the race detector remembers of a line.
    #[inline]
    pub(crate) fn shadow(&mut self, line: u64) -> Option<&mut Line> {
        let page = self.shadow.get_mut(line as usize / PAGE)?;
        let page = page.get_or_insert_with(|| vec![Line::default(); PAGE].into_boxed_slice());
        page.get_mut(line as usize % PAGE)
    }

    /// Reads one value per lane.
    #[inline]
    pub(crate) fn gather<T: Word>(
        &self,
        offsets: &[u64; LANES],
        mask: Mask,
        plus: u64,
    ) -> [T; LANES] {
        let mut out = [T::default(); LANES];
        for lane in each(mask) {
            out[lane] = T::take(self.bytes(offsets[lane] + plus, T::SIZE));
        }
        out
    }

    /// Reads one value per lane, lane after lane.
    #[inline]
    pub(crate) fn run_of<T: Word>(&self, offset: u64) -> [T; LANES] {
        let mut out = [T::default(); LANES];
        let bytes = self.bytes(offset, LANES * T::SIZE);
        for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
            *out = T::take(bytes);
        }
        out
    }

    /// Writes one value per lane; the highest lane wins where two write one place.
    #[inline]
    pub(crate) fn scatter<T: Word>(
        &mut self,
        offsets: &[u64; LANES],
        mask: Mask,
        plus: u64,
        values: &[T; LANES],
    ) {
        for lane in each(mask) {
            values[lane].put(self.bytes_mut(offsets[lane] + plus, T::SIZE));
        }
    }

    /// Writes one value per lane, lane after lane.
    #[inline]
    pub(crate) fn put_run<T: Word>(&mut self, offset: u64, values: &[T; LANES]) {
        let bytes = self.bytes_mut(offset, LANES * T::SIZE);
        for (value, bytes) in values.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            value.put(bytes);
        }
    }
}

/// `len` bits from bit `start`.
fn run(start: usize, len: usize) -> u128 {
    if len >= 128 {
        u128::MAX
    } else {
        ((1u128 << len) - 1) << start
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// A number as it lies in memory.
pub(crate) trait Word: crate::lanes::Lane {
    /// Its size in bytes.
    const SIZE: usize;
    /// Reads it; zero from a slice of another length.
    fn take(bytes: &[u8]) -> Self;
    /// Writes it; nothing to a slice of another length.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! words {
    ($($ty:ty),*) => {$(
        impl Word for $ty {
            const SIZE: usize = size_of::<$ty>();
            #[inline(always)]
            fn take(bytes: &[u8]) -> $ty {
                bytes.try_into().map_or(0, <$ty>::from_le_bytes)
            }
            #[inline(always)]
            fn put(self, bytes: &mut [u8]) {
                if bytes.len() == Self::SIZE {
                    bytes.copy_from_slice(&self.to_le_bytes());
                }
            }
        }
    )*};
}
words!(u8, u16, u32, u64, u128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_known_one_by_one() {
        let mut region = Region::unwritten(300);
        region.write(126, 4, 0xddcc_bbaa);
        assert_eq!(region.read(126, 4), 0xddcc_bbaa);
        assert_eq!(region.first_unwritten(126, 4), None);
        assert_eq!(region.first_unwritten(125, 4), Some(125));
        assert_eq!(region.unwritten_in(1, 0b111), 0b100);
    }

    #[test]
    fn a_reset_region_is_unwritten_and_zero() {
        let mut region = Region::unwritten(128);
        region.write(0, 8, 99);
        region.reset(64);
        assert_eq!(
            (region.read(0, 8), region.first_unwritten(0, 1)),
            (0, Some(0))
        );
    }

    #[test]
    fn forks_are_put_together_byte_by_byte() {
        let mut whole = Region::unwritten(256);
        let (mut a, mut b) = (whole.fork(), whole.fork());
        a.write(4, 4, 0x0101_0101);
        a.note(0, 0xf0, true);
        b.write(8, 4, 0x0202_0202);
        b.note(0, 0xf00, true);
        b.note(1, 0xff, false);
        assert!(Region::are_apart([&a, &b].into_iter()));
        whole.absorb(&a);
        whole.absorb(&b);
        assert_eq!(whole.read(4, 8), 0x0202_0202_0101_0101);
        assert_eq!(whole.first_unwritten(4, 9), Some(12));
        a.note(1, 0x80, true);
        assert!(!Region::are_apart([&a, &b].into_iter()));
        assert!(!Region::are_apart([&b, &a].into_iter()));
    }

    #[test]
    fn what_lies_outside_reads_zero_and_is_not_written() {
        let mut region = Region::of([1; 128]);
        region.write_bytes(127, &[7; 4]);
        assert_eq!(region.read(1 << 40, 4), 0);
        assert_eq!(region.bytes(127, 1), [1]);
    }
}
