//! A region of memory: its bytes, a written bit for each, and the race detector's history.

use super::footprint::Footprint;
use super::traffic::Traffic;
use crate::lanes::{LANES, Mask, each};
use crate::race::access::LINE;
use crate::race::clock::WarpClock;
use crate::race::history::{History, Read};
use crate::race::touch::Touch;
use crate::state::follow::Origin;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes that are cleared together for the next block: most blocks touch little of the memory that they have, at both of its ends.
const CHUNK: usize = 8 * LINE;

/// Lines of forks that one thread puts together.
const SHARE: usize = 1 << 13;

/// A stretch of memory. Offsets passed in are in bounds; the callers check them,
/// and an offset that is not reads zero and writes nothing.
#[derive(Debug, Default)]
pub(crate) struct Region {
    data: Vec<u8>,
    /// Copy-on-write: the shared bytes, as long as they are not written. A fork copies the lines
    /// that it writes, and `present` says which; a region that is no fork copies everything at its
    /// first write.
    base: Option<Arc<Vec<u8>>>,
    present: Vec<bool>,
    /// Since the last [`Region::reset`], a bit for each [`CHUNK`] that may have been written; empty where there was none.
    dirty: Vec<u64>,
    /// One bit per byte, a line each; empty when everything counts as written.
    written: Vec<u128>,
    /// Words that bytes of undefined values were stored to, and where those came from.
    pub(crate) undefined: FxHashMap<u64, Origin>,
    /// What the race detector remembers.
    pub(crate) history: History,
    /// What was touched of a fork.
    touched: Footprint,
    /// What was touched by weak and by strong accesses, where the caller wants to know.
    told: Option<Box<[Footprint; 2]>>,
    /// What was moved between DRAM and L2, of global memory.
    pub(crate) traffic: Traffic,
}

impl Region {
    /// Memory of `len` bytes that nobody has written, all zero.
    pub(crate) fn unwritten(len: usize) -> Region {
        Region::over(Arc::new(vec![0; len]), false)
    }

    /// Memory that starts with these bytes; `written` says whether they count as written.
    pub(crate) fn over(bytes: Arc<Vec<u8>>, written: bool) -> Region {
        let lines = bytes.len().div_ceil(LINE);
        let mut region = Region {
            written: if written { Vec::new() } else { vec![0; lines] },
            history: History::new(lines),
            ..Region::default()
        };
        region.base = Some(if bytes.len() == lines * LINE {
            bytes
        } else {
            let mut whole = Arc::unwrap_or_clone(bytes);
            whole.resize(lines * LINE, 0);
            Arc::new(whole)
        });
        region
    }

    /// The same where some bytes count as written: a bit for each, a line of memory each.
    pub(crate) fn partly(bytes: Arc<Vec<u8>>, written: &[u128]) -> Region {
        let mut region = Region::over(bytes, false);
        for (line, &bytes) in region.written.iter_mut().zip(written) {
            *line = bytes;
        }
        region
    }

    /// Which bytes were written, a line each; nothing where everything was.
    pub(crate) fn written(&self) -> &[u128] {
        &self.written
    }

    /// Memory that starts with these bytes, all of them written.
    pub(crate) fn of(bytes: impl Into<Vec<u8>>) -> Region {
        Region::over(Arc::new(bytes.into()), true)
    }

    /// How many lines it has.
    fn lines(&self) -> usize {
        self.base
            .as_ref()
            .map_or(self.data.len(), |base| base.len())
            / LINE
    }

    /// A copy without a past, which notes the bytes that are read and written.
    pub(crate) fn fork(&self) -> Region {
        let lines = self.lines();
        let base = match &self.base {
            Some(base) => Arc::clone(base),
            None => Arc::new(self.data.clone()),
        };
        Region {
            // There is nothing of its own before the first write.
            data: Vec::new(),
            base: Some(base),
            present: vec![false; lines],
            dirty: Vec::new(),
            written: self.written.clone(),
            undefined: self.undefined.clone(),
            history: self.history.fork(lines),
            touched: Footprint::new(lines),
            told: self.told.as_ref().map(|_| Region::untouched(lines)),
            traffic: self.traffic.fork(),
        }
    }

    fn untouched(lines: usize) -> Box<[Footprint; 2]> {
        Box::new([Footprint::new(lines), Footprint::new(lines)])
    }

    /// From now on it is noted what is touched, for [`Region::touched`].
    pub(crate) fn tell_touched(&mut self) {
        self.told = Some(Region::untouched(self.lines()));
    }

    /// The lines that were touched, with the bytes: read and written by weak accesses, read and written
    /// by strong ones.
    pub(crate) fn touched(&self) -> Vec<(u32, [u128; 4])> {
        let Some(told) = &self.told else {
            return Vec::new();
        };
        let of = |line: usize| {
            let ([a, b], [c, d]) = (told[0].of(line), told[1].of(line));
            [a, b, c, d]
        };
        let lines = (0..told[0].len()).map(|line| (line as u32, of(line)));
        lines.filter(|(_, bytes)| *bytes != [0; 4]).collect()
    }

    /// Notes an access that the caller wants to know of.
    #[inline]
    pub(crate) fn tell(&mut self, line: u64, bytes: u128, write: bool, strong: bool) {
        if let Some(told) = &mut self.told {
            told[usize::from(strong)].note(line, bytes, write);
        }
    }

    /// From now on its traffic is counted.
    pub(crate) fn count_traffic(&mut self) {
        self.traffic = Traffic::new(self.lines());
    }

    /// Notes an access to some bytes of a line, in a fork, and counts it. Reads of
    /// [still](History::is_still) memory are not noted.
    #[inline]
    pub(crate) fn note(&mut self, line: u64, bytes: u128, write: bool) {
        self.traffic.touch(line, bytes, write);
        if write || !self.history.is_still() {
            self.touched.note(line, bytes, write);
        }
    }

    /// Forgets what the race detector knows.
    pub(crate) fn forget_races(&mut self) {
        self.history = History::default();
    }

    /// Whether no fork has written a byte that another one has touched.
    pub(crate) fn are_apart(forks: &[&Region]) -> bool {
        let prints: Vec<&Footprint> = forks.iter().map(|fork| &fork.touched).collect();
        let (prints, lines) = (&prints[..], prints.iter().map(|one| one.len()).max());
        let lines = lines.unwrap_or(0);
        if lines <= SHARE {
            return Footprint::are_apart(prints, 0..lines);
        }
        let share = lines.div_ceil(forks.len().max(1));
        std::thread::scope(|scope| {
            let parts: Vec<_> = (0..lines)
                .step_by(share)
                .map(|start| {
                    let lines = start..lines.min(start + share);
                    scope.spawn(move || Footprint::are_apart(prints, lines))
                })
                .collect();
            parts
                .into_iter()
                .all(|part| part.join().is_ok_and(|apart| apart))
        })
    }

    /// Takes over what forks have written, each of them other bytes.
    pub(crate) fn absorb(&mut self, forks: Vec<Region>) {
        if let Some(told) = &mut self.told {
            let theirs = forks.iter().filter_map(|fork| fork.told.as_deref());
            for [weak, strong] in theirs {
                told[0].add(weak);
                told[1].add(strong);
            }
        }
        let mut forks = forks
            .into_iter()
            .filter(|fork| fork.present.contains(&true));
        let Some(first) = forks.next() else { return };
        let others: Vec<Region> = forks.collect();
        // The bytes of the first one become the region's own; its lines that it never
        // wrote come from the base.
        let base = self.base.take();
        let before = std::mem::replace(&mut self.data, first.data);
        let base = base.as_ref().map_or(&before[..], |base| base);
        let (present, others) = (&first.present[..], &others[..]);
        let merge = |start: usize, lines: &mut [u8]| {
            for (at, target) in lines.chunks_exact_mut(LINE).enumerate() {
                let line = start + at;
                let bytes = line * LINE..(line + 1) * LINE;
                let whole = others.iter().find(|fork| fork.touched.is_written(line));
                if let Some(source) = whole.and_then(|fork| fork.data.get(bytes.clone())) {
                    target.copy_from_slice(source);
                    continue;
                }
                if !present.get(line).copied().unwrap_or(false)
                    && let Some(source) = base.get(bytes.clone())
                {
                    target.copy_from_slice(source);
                }
                for fork in others {
                    let written = fork.touched.of(line)[1];
                    if written == 0 {
                        continue;
                    }
                    let source = fork.data.get(bytes.clone()).unwrap_or(&[]);
                    for (at, (target, source)) in target.iter_mut().zip(source).enumerate() {
                        if written >> at & 1 != 0 {
                            *target = *source;
                        }
                    }
                }
            }
        };
        let lines = self.data.len() / LINE;
        if lines <= SHARE {
            merge(0, &mut self.data);
        } else {
            let share = lines.div_ceil(1 + others.len().max(1));
            std::thread::scope(|scope| {
                for (at, part) in self.data.chunks_mut(share * LINE).enumerate() {
                    let merge = &merge;
                    scope.spawn(move || merge(at * share, part));
                }
            });
        }
        let firsts = (&first.touched, &first.written, &first.undefined);
        let others = others
            .iter()
            .map(|one| (&one.touched, &one.written, &one.undefined));
        for (touched, known, undefined) in std::iter::once(firsts).chain(others) {
            if !known.is_empty() && self.written.is_empty() {
                self.written = vec![u128::MAX; lines];
            }
            for (line, written) in self.written.iter_mut().enumerate() {
                // Bytes of undefined values are touched, and not written.
                let known = known.get(line).copied().unwrap_or(u128::MAX);
                let touched = touched.of(line)[1];
                *written = *written & !touched | known & touched;
            }
            self.undefined.extend(undefined);
        }
    }

    /// The first `len` bytes.
    pub(crate) fn into_bytes(mut self, len: usize) -> Arc<Vec<u8>> {
        match self.base {
            Some(base) if base.len() == len => base,
            Some(base) => Arc::new(base[..len.min(base.len())].to_vec()),
            None => {
                self.data.truncate(len);
                Arc::new(self.data)
            }
        }
    }

    /// Back to unwritten, for the next block; keeps its buffers. `defers` is for its
    /// [history](History::restart). Not for a region that has absorbed forks.
    pub(crate) fn reset(&mut self, len: usize, defers: bool) {
        let lines = len.div_ceil(LINE);
        let chunks = lines.div_ceil(CHUNK / LINE);
        let same = self.data.len() == lines * LINE && self.written.len() == lines;
        let known = self.dirty.len() == chunks.div_ceil(64);
        if self.base.take().is_none() && same && known {
            self.clear_dirty();
        } else {
            self.clear_all(lines * LINE);
        }
        self.dirty.clear();
        self.dirty.resize(chunks.div_ceil(64), 0);
        self.undefined.clear();
        self.history.restart(lines, defers);
    }

    fn clear_all(&mut self, len: usize) {
        if self.data.capacity() < len {
            // New memory is zero, and what a block never touches is never there.
            self.data = vec![0; len];
        } else {
            self.data.clear();
            self.data.resize(len, 0);
        }
        self.written.clear();
        self.written.resize(len / LINE, 0);
    }

    fn clear_dirty(&mut self) {
        let chunks = (0..64 * self.dirty.len())
            .filter(|chunk| self.dirty[chunk / 64] >> (chunk % 64) & 1 != 0);
        for chunk in chunks {
            let end = self.data.len().min((chunk + 1) * CHUNK);
            self.data[chunk * CHUNK..end].fill(0);
            self.written[chunk * CHUNK / LINE..end / LINE].fill(0);
        }
    }

    /// Bytes of a range are about to be written, or to count as written.
    #[inline(always)]
    fn soil(&mut self, range: &std::ops::Range<usize>) {
        if self.dirty.is_empty() {
            return;
        }
        for chunk in range.start / CHUNK..range.end.div_ceil(CHUNK) {
            if let Some(word) = self.dirty.get_mut(chunk / 64) {
                *word |= 1 << (chunk % 64);
            }
        }
    }

    /// Bytes one after the other. In a fork only bytes of one line are sure to lie so;
    /// where they do not, there are none.
    #[inline(always)]
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        let Some(range) = range(offset, len) else {
            return &[];
        };
        let data = match &self.base {
            None => &self.data,
            Some(base) => match self.holds(&range) {
                Some(true) => &self.data,
                Some(false) => base,
                None => return &[],
            },
        };
        data.get(range).unwrap_or(&[])
    }

    /// Whether all lines of a range were copied from the base, or none; nothing where
    /// some were.
    #[inline(always)]
    fn holds(&self, range: &std::ops::Range<usize>) -> Option<bool> {
        let first = self.present.get(range.start / LINE).copied();
        let first = first.unwrap_or(false);
        let last = range.end.saturating_sub(1) / LINE;
        for line in range.start / LINE + 1..=last {
            if self.present.get(line).copied().unwrap_or(false) != first {
                return None;
            }
        }
        Some(first)
    }

    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let Some(range) = range(offset, len) else {
            return &mut [];
        };
        if self.base.is_some() {
            self.copy_in(&range);
        }
        self.soil(&range);
        self.data.get_mut(range).unwrap_or(&mut [])
    }

    /// Makes the lines of a range the region's own. No byte is ever written before.
    fn copy_in(&mut self, range: &std::ops::Range<usize>) {
        self.history.stir();
        if self.present.is_empty() {
            if let Some(base) = self.base.take() {
                self.data = Arc::unwrap_or_clone(base);
            }
            return;
        }
        let Some(base) = &self.base else { return };
        if self.data.is_empty() {
            // Pages of zeros cost nothing until they are written.
            self.data = vec![0; self.present.len() * LINE];
        }
        let lines = range.start / LINE..range.end.div_ceil(LINE).min(self.present.len());
        for line in lines {
            let bytes = line * LINE..(line + 1) * LINE;
            let whole = range.start <= bytes.start && bytes.end <= range.end;
            if !self.present[line] {
                self.present[line] = true;
                if !whole {
                    self.data[bytes.clone()].copy_from_slice(&base[bytes]);
                }
            }
        }
    }

    /// Reads up to 16 bytes as a number.
    #[inline]
    pub(crate) fn read(&self, offset: u64, size: usize) -> u128 {
        let bytes = self.bytes(offset, size);
        match bytes.len() {
            4 => u128::from(u32::take(bytes)),
            8 => u128::from(u64::take(bytes)),
            16 => u128::take(bytes),
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
        let size = size.min(16);
        let target = self.bytes_mut(offset, size);
        match target.len() {
            0 => return,
            4 => (value as u32).put(target),
            8 => (value as u64).put(target),
            16 => value.put(target),
            len => target.copy_from_slice(&value.to_le_bytes()[..len]),
        }
        self.mark(offset, size);
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
        self.soil(&(at..end));
        while at < end {
            let stop = end.min((at / LINE + 1) * LINE);
            if let Some(line) = self.written.get_mut(at / LINE) {
                *line |= run(at % LINE, stop - at);
            }
            at = stop;
        }
    }

    /// Marks bytes of one line as never written.
    pub(crate) fn unmark(&mut self, offset: u64, len: usize) {
        if self.written.is_empty() {
            let bytes = self
                .base
                .as_ref()
                .map_or(self.data.len(), |base| base.len());
            self.written = vec![u128::MAX; bytes.div_ceil(LINE)];
        }
        if let Some(line) = self.written.get_mut(offset as usize / LINE) {
            *line &= !run(offset as usize % LINE, len);
        }
    }

    /// Which of up to 16 bytes nobody has written, a bit each.
    pub(crate) fn unwritten_of(&self, offset: u64, len: usize) -> u16 {
        let missing = |at: &u64| {
            self.unwritten_in(
                (offset + at) / LINE as u64,
                1 << ((offset + at) % LINE as u64),
            ) != 0
        };
        (0..len.min(16) as u64)
            .filter(missing)
            .fold(0, |bytes, at| bytes | 1 << at)
    }

    /// The bytes of a stretch that nobody has written, counted from its start.
    pub(crate) fn holes(&self, offset: u64, len: u64) -> Vec<u64> {
        if self.first_unwritten(offset, len as usize).is_none() {
            return Vec::new();
        }
        let missing = |at: &u64| self.unwritten_of(offset + at, 1) != 0;
        (0..len).filter(missing).collect()
    }

    /// The first of 16 bytes of a stretch that nobody has written any of. Fewer in a row are padding.
    pub(crate) fn first_empty(&self, offset: u64, len: u64) -> Option<u64> {
        let first = self.first_unwritten(offset, len as usize)?;
        let mut units = (offset + (first - offset) / 16 * 16..offset + len).step_by(16);
        units.find(|&at| {
            let len = (offset + len - at).min(16) as usize;
            self.unwritten_of(at, len) == u16::MAX >> (16 - len)
        })
    }

    /// Marks some bytes of one line as written.
    #[inline]
    pub(crate) fn mark_line(&mut self, line: u64, bytes: u128) {
        let first = line as usize * LINE;
        self.soil(&(first..first + LINE));
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

    /// Defers a read of which all bytes are written; see [`History::put_off`]. False, without
    /// effect, if that is not possible.
    #[inline]
    pub(crate) fn put_off(&mut self, touch: &Touch<'_>, pc: u32, clock: &WarpClock) -> bool {
        if !self.history.defers() || !self.is_written(touch) {
            return false;
        }
        let Touch {
            offsets,
            mask,
            size,
        } = *touch;
        let lines = each(mask).map(|lane| offsets[lane] / LINE as u64);
        let read = || {
            let offsets = crate::lanes::map1(*offsets, |offset| offset as u32);
            Read::of(offsets, (mask, size), pc, clock)
        };
        self.history.put_off(lines, read)
    }

    /// Whether somebody has written every byte of a touch.
    #[inline]
    fn is_written(&self, touch: &Touch<'_>) -> bool {
        each(touch.mask).all(|lane| {
            let offset = touch.offsets[lane] as usize;
            self.written.get(offset / LINE).is_none_or(|&written| {
                let bytes = run(0, touch.size as usize);
                written == u128::MAX || written >> (offset % LINE) & bytes == bytes
            })
        })
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
    #[inline(always)]
    pub(crate) fn run_of<T: Word>(&self, offset: u64) -> [T; LANES] {
        self.some(offset)
    }

    /// Reads some values one after the other.
    #[inline(always)]
    pub(crate) fn some<T: Word, const N: usize>(&self, offset: u64) -> [T; N] {
        let mut out = [T::default(); N];
        let bytes = self.bytes(offset, N * T::SIZE);
        if bytes.len() == N * T::SIZE {
            for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
                *out = T::take(bytes);
            }
        } else {
            // Over lines of a fork of which it has copied some.
            for (at, out) in out.iter_mut().enumerate() {
                *out = T::take(self.bytes(offset + (at * T::SIZE) as u64, T::SIZE));
            }
        }
        out
    }

    /// Reads words one after the other.
    #[inline(always)]
    pub(crate) fn words(&self, offset: u64, out: &mut [u32]) {
        let bytes = self.bytes(offset, 4 * out.len());
        if bytes.len() == 4 * out.len() {
            bytemuck::cast_slice_mut::<u32, u8>(out).copy_from_slice(bytes);
            for word in out {
                *word = u32::from_le(*word);
            }
        } else {
            // Over lines of a fork of which it has copied some.
            for (at, out) in out.iter_mut().enumerate() {
                *out = self.word(offset + 4 * at as u64);
            }
        }
    }

    /// Reads 32 bits.
    #[inline(always)]
    pub(crate) fn word(&self, offset: u64) -> u32 {
        u32::take(self.bytes(offset, 4))
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
    #[inline(always)]
    pub(crate) fn put_run<T: Word>(&mut self, offset: u64, values: &[T; LANES]) {
        let bytes = self.bytes_mut(offset, LANES * T::SIZE);
        for (value, bytes) in values.iter().zip(bytes.chunks_exact_mut(T::SIZE)) {
            value.put(bytes);
        }
    }
}

#[inline(always)]
fn range(offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(len)?)
}

/// `len` bits from bit `start`.
fn run(start: usize, len: usize) -> u128 {
    if len >= 128 {
        u128::MAX
    } else {
        ((1u128 << len) - 1) << start
    }
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
mod tests;
