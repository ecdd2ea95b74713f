//! What comes before what: the operations of streams, and the host.
//!
//! Here operations run in the order of the calls, which is one of the orders that streams allow. Two operations
//! that no stream, event or wait of the host orders may run in the other order on a GPU, or at a time. So each
//! operation has a vector clock (how far every stream is known to be), and memory has a list of the operations that
//! the host does not know to be over, with the bytes that they touch. Only where both sides are known is something
//! said: of an operation that is forgotten nothing is.

use crate::dependence::Dependence;
use heist_sim::Touched;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// The last operation of each stream that came before.
type Clock = BTreeMap<usize, u64>;

/// The legacy default stream; the one of each thread is taken for it, which orders more.
pub(crate) const DEFAULT: usize = 0;

/// Operations that are remembered for an allocation.
const MOST: usize = 64;

/// An operation of a stream, and what comes before it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) stream: usize,
    number: u64,
    before: Clock,
    /// Whether it may run beside the operation in front of it in its stream.
    early: bool,
}

/// What an operation touches of an allocation.
#[derive(Clone, Debug)]
pub(crate) enum Extent {
    /// A range of bytes of a copy or a fill.
    Range { bytes: Range<u64>, write: bool },
    /// What a kernel has touched.
    Lines(Arc<Vec<(u32, [u128; 4])>>),
}

/// Bytes of a line.
const LINE: u64 = 128;

impl Extent {
    /// Of a kernel.
    pub(crate) fn of(touched: &Touched) -> Extent {
        Extent::Lines(Arc::new(touched.lines.clone()))
    }

    /// Of rows of bytes, by where they begin.
    pub(crate) fn rows(starts: impl Iterator<Item = u64>, width: u64, write: bool) -> Extent {
        let mut starts = starts.peekable();
        let first = starts.next().unwrap_or(0);
        let of = |start: u64| Extent::Range {
            bytes: start..start + width,
            write,
        };
        if starts.peek().is_none() {
            return of(first);
        }
        let mut lines: BTreeMap<u32, [u128; 4]> = BTreeMap::new();
        for start in std::iter::once(first).chain(starts) {
            for (line, bytes) in of(start).in_lines(&(0..u64::MAX)) {
                let all = lines.entry(line).or_default();
                all.iter_mut().zip(bytes).for_each(|(all, one)| *all |= one);
            }
        }
        Extent::Lines(Arc::new(lines.into_iter().collect()))
    }

    /// The lines that have some of it, with the bytes that are read and written, weakly and strongly.
    fn in_lines(&self, within: &Range<u64>) -> Vec<(u32, [u128; 4])> {
        match self {
            Extent::Lines(lines) => {
                let inside = |line: u32| {
                    let start = u64::from(line) * LINE;
                    start < within.end && start + LINE > within.start
                };
                let lines = lines.iter().filter(|(line, _)| inside(*line));
                lines.copied().collect()
            }
            Extent::Range { bytes, write } => {
                let (start, end) = (bytes.start.max(within.start), bytes.end.min(within.end));
                if start >= end {
                    return Vec::new();
                }
                let one = |line: u64| {
                    let first = start.max(line * LINE) - line * LINE;
                    let last = end.min((line + 1) * LINE) - line * LINE;
                    let ones = u128::MAX >> (128 - (last - first)) << first;
                    let (read, written) = if *write { (0, ones) } else { (ones, 0) };
                    (line as u32, [read, written, 0, 0])
                };
                (start / LINE..end.div_ceil(LINE)).map(one).collect()
            }
        }
    }

    /// From the first byte to behind the last.
    fn span(&self) -> Range<u64> {
        match self {
            Extent::Range { bytes, .. } => bytes.clone(),
            Extent::Lines(lines) => {
                let start = lines.first().map_or(0, |(line, _)| u64::from(*line) * LINE);
                let end = lines
                    .last()
                    .map_or(0, |(line, _)| (u64::from(*line) + 1) * LINE);
                start..end
            }
        }
    }

    /// Whether it writes.
    fn writes(&self) -> bool {
        match self {
            Extent::Range { write, .. } => *write,
            Extent::Lines(lines) => lines.iter().any(|(_, bytes)| bytes[1] | bytes[3] != 0),
        }
    }

    /// The first byte that both touch, at least one of them writing and at least one weakly.
    fn clash(&self, other: &Extent) -> Option<u64> {
        let (a, b) = (self.span(), other.span());
        let within = a.start.max(b.start)..a.end.min(b.end);
        if within.is_empty() || !self.writes() && !other.writes() {
            return None;
        }
        if let (Extent::Range { .. }, Extent::Range { .. }) = (self, other) {
            return Some(within.start);
        }
        let (ours, theirs) = (self.in_lines(&within), other.in_lines(&within));
        let mut theirs = theirs.into_iter().peekable();
        for (line, [read, written, read_strongly, written_strongly]) in ours {
            while theirs.next_if(|(at, _)| *at < line).is_some() {}
            let Some((_, other)) = theirs.next_if(|(at, _)| *at == line) else {
                continue;
            };
            let (weak, strong) = (other[0] | other[1], other[2] | other[3]);
            let clash = written & (weak | strong)
                | (read | read_strongly) & other[1]
                | written_strongly & weak
                | read & other[3];
            if clash != 0 {
                return Some(u64::from(line) * LINE + u64::from(clash.trailing_zeros()));
            }
        }
        None
    }
}

/// An operation that the host does not know to be over.
#[derive(Clone, Debug)]
struct Access {
    stream: usize,
    number: u64,
    extent: Extent,
    what: Arc<str>,
    /// Whether it tells the host itself how far it is, with strong writes that the host can see.
    signals: bool,
}

/// Another operation that touches the same memory, unordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clash {
    pub(crate) what: String,
    /// The other stream.
    pub(crate) stream: usize,
    /// Whether it is the launch in front, which has let this one begin early.
    pub(crate) early: bool,
    /// The first byte.
    pub(crate) byte: u64,
}

/// All of it.
#[derive(Default)]
pub(crate) struct Order {
    host: Clock,
    streams: HashMap<usize, Clock>,
    counts: HashMap<usize, u64>,
    events: HashMap<usize, Clock>,
    /// The last launch of each stream that lets the next one begin early.
    letting_go: HashMap<usize, u64>,
    /// By the address of the allocation.
    accesses: HashMap<u64, Vec<Access>>,
    /// Goes up with every change of these.
    version: u64,
}

fn join(clock: &mut Clock, other: &Clock) {
    for (&stream, &number) in other {
        let known = clock.entry(stream).or_default();
        *known = number.max(*known);
    }
}

/// The legacy stream under each of its handles.
fn named(stream: usize) -> usize {
    if stream <= 2 { DEFAULT } else { stream }
}

impl Order {
    /// An operation of a stream begins. `blocking` says which streams the default one waits for.
    pub(crate) fn begin(&mut self, stream: usize, blocking: impl Fn(usize) -> bool) -> Step {
        let stream = named(stream);
        let mut before = self.streams.get(&stream).cloned().unwrap_or_default();
        join(&mut before, &self.host);
        if stream == DEFAULT {
            let others = self.streams.iter().filter(|(other, _)| blocking(**other));
            others.for_each(|(_, clock)| join(&mut before, clock));
        } else if blocking(stream)
            && let Some(clock) = self.streams.get(&DEFAULT)
        {
            join(&mut before, clock);
        }
        let count = self.counts.entry(stream).or_default();
        *count += 1;
        let mut after = before.clone();
        after.insert(stream, *count);
        self.streams.insert(stream, after);
        Step {
            stream,
            number: *count,
            before,
            early: false,
        }
    }

    /// A launch begins, as [`Order::begin`].
    pub(crate) fn begin_launch(
        &mut self,
        stream: usize,
        depends: Dependence,
        blocking: impl Fn(usize) -> bool,
    ) -> Step {
        let mut step = self.begin(stream, blocking);
        let front = self.letting_go.get(&step.stream);
        step.early = depends.early && front == Some(&(step.number - 1));
        if depends.lets_go {
            self.letting_go.insert(step.stream, step.number);
        }
        step
    }

    /// An event is recorded: it has what came before in its stream.
    pub(crate) fn record(&mut self, event: usize, stream: usize, blocking: impl Fn(usize) -> bool) {
        self.begin(stream, blocking);
        let clock = self.streams.get(&named(stream)).cloned();
        self.events.insert(event, clock.unwrap_or_default());
    }

    /// A stream waits for an event; for one that was never recorded there is nothing to wait for.
    pub(crate) fn wait(&mut self, stream: usize, event: usize) {
        if let Some(clock) = self.events.get(&event) {
            join(self.streams.entry(named(stream)).or_default(), clock);
        }
    }

    /// The host waits for a stream; for the default one, and so for all that it waits for.
    pub(crate) fn host_waits(&mut self, stream: usize, blocking: impl Fn(usize) -> bool) {
        let stream = named(stream);
        let waited = |other: usize| other == stream || stream == DEFAULT && blocking(other);
        for (_, clock) in self.streams.iter().filter(|(other, _)| waited(**other)) {
            join(&mut self.host, clock);
        }
        self.forget();
    }

    /// The host waits for everything.
    pub(crate) fn host_waits_for_all(&mut self) {
        for clock in self.streams.values() {
            join(&mut self.host, clock);
        }
        self.forget();
    }

    pub(crate) fn host_waits_for_event(&mut self, event: usize) {
        if let Some(clock) = self.events.get(&event) {
            join(&mut self.host, clock);
            self.forget();
        }
    }

    /// Forgets what the host knows to be over: whatever it submits from now on comes after that.
    fn forget(&mut self) {
        self.version += 1;
        let host = &self.host;
        self.accesses.retain(|_, list| {
            list.retain(|one| {
                host.get(&one.stream)
                    .is_none_or(|known| *known < one.number)
            });
            !list.is_empty()
        });
    }

    /// An allocation is no longer there, or its address is somebody else's.
    pub(crate) fn release(&mut self, allocation: u64) {
        self.version += 1;
        self.accesses.remove(&allocation);
    }

    /// An operation touches an allocation: another one that does so, unordered.
    pub(crate) fn access(
        &mut self,
        step: &Step,
        allocation: u64,
        extent: Extent,
        what: &Arc<str>,
        signals: bool,
    ) -> Option<Clash> {
        self.version += 1;
        let list = self.accesses.entry(allocation).or_default();
        let ordered = |one: &Access| {
            let known = step.before.get(&one.stream);
            match one.stream == step.stream {
                true => !(step.early && one.number == step.number - 1),
                false => known.is_some_and(|known| *known >= one.number),
            }
        };
        let clash = list.iter().filter(|one| !ordered(one)).find_map(|one| {
            Some(Clash {
                byte: extent.clash(&one.extent)?,
                what: one.what.to_string(),
                stream: one.stream,
                early: one.stream == step.stream,
            })
        });
        if list.len() == MOST {
            list.remove(0);
        }
        list.push(Access {
            stream: step.stream,
            number: step.number,
            extent,
            what: Arc::clone(what),
            signals,
        });
        clash
    }

    /// The allocations that operations touch that may not be over.
    pub(crate) fn touched(&self) -> Vec<u64> {
        self.accesses.keys().copied().collect()
    }

    /// What changes when an operation is added or forgotten.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// What operations that may not be over do to each part of an allocation of so many bytes, which all have `part`
    /// bytes but for the last. A part in which the touched bytes begin or end is left out, unless it is the only one:
    /// the rest of it may be somebody else's.
    pub(crate) fn pending(&self, allocation: u64, len: u64, part: u64) -> Vec<Pending> {
        let list = self.accesses.get(&allocation).map_or(&[][..], |list| list);
        let mut lines: BTreeMap<u32, [u128; 4]> = BTreeMap::new();
        for one in list.iter().filter(|one| !one.signals) {
            for (line, bytes) in one.extent.in_lines(&(0..len)) {
                let all = lines.entry(line).or_default();
                all.iter_mut().zip(bytes).for_each(|(all, one)| *all |= one);
            }
        }
        let parts = len.div_ceil(part);
        let of = |at: u64| {
            let (first, end) = (at * part / LINE, ((at + 1) * part).min(len).div_ceil(LINE));
            let touched = lines.range(first as u32..end as u32);
            let whole = parts == 1
                || [first, end - 1]
                    .iter()
                    .all(|line| lines.contains_key(&(*line as u32)));
            let mut all = touched.map(|(_, bytes)| bytes).peekable();
            match all.peek().is_some() && whole {
                false => Pending::Nothing,
                true if all.any(|bytes| bytes[1] | bytes[3] != 0) => Pending::Writes,
                true => Pending::Reads,
            }
        };
        (0..parts).map(of).collect()
    }

    /// The operation that the host disturbs when it touches a byte, if it may not be over.
    pub(crate) fn disturbed(&self, allocation: u64, byte: u64, write: bool) -> Option<Clash> {
        let touch = Extent::Range {
            bytes: byte..byte + 1,
            write,
        };
        let list = self.accesses.get(&allocation)?;
        let mut silent = list.iter().filter(|one| !one.signals);
        silent.find_map(|one| {
            Some(Clash {
                byte: touch.clash(&one.extent)?,
                what: one.what.to_string(),
                stream: one.stream,
                early: false,
            })
        })
    }
}

/// What the device may still do to memory that the host can touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pending {
    Nothing,
    Reads,
    Writes,
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = 0x101;
    const B: usize = 0x102;
    const FREE: usize = 0x103;

    fn blocking(stream: usize) -> bool {
        stream != FREE
    }

    fn bytes(bytes: Range<u64>, write: bool) -> Extent {
        Extent::Range { bytes, write }
    }

    /// An operation of a stream; whether it clashes.
    fn touches(order: &mut Order, stream: usize, extent: Extent) -> bool {
        let step = order.begin(stream, blocking);
        let clash = order.access(&step, 64, extent, &Arc::from("it"), false);
        clash.is_some()
    }

    #[test]
    fn streams_are_ordered_by_events_waits_and_the_default_stream_only() {
        let fresh = || {
            let mut order = Order::default();
            assert!(!touches(&mut order, A, bytes(0..100, true)));
            order
        };
        let read = || bytes(99..200, false);
        assert!(touches(&mut fresh(), B, read()));
        assert!(!touches(&mut fresh(), A, read()));
        assert!(!touches(&mut fresh(), B, bytes(100..200, true)));
        let mut order = fresh();
        order.record(7, A, blocking);
        order.wait(B, 7);
        assert!(!touches(&mut order, B, read()));
        // What comes behind the event is not waited for, and the other stream is not either.
        let mut order = fresh();
        order.record(7, A, blocking);
        touches(&mut order, A, bytes(150..160, true));
        order.wait(B, 7);
        assert!(touches(&mut order, B, read()));
        assert!(touches(&mut order, FREE, read()));
        let mut order = fresh();
        order.host_waits(A, blocking);
        assert!(!touches(&mut order, B, read()));
        // The default stream is between the two, but for one that does not block.
        let mut order = fresh();
        touches(&mut order, DEFAULT, bytes(900..901, false));
        assert!(!touches(&mut order, B, read()) && touches(&mut order, FREE, read()));
        let mut order = fresh();
        assert!(!touches(&mut order, 1, read()));
        order.host_waits(DEFAULT, blocking);
        assert_eq!(order.pending(64, 256, 4096), [Pending::Nothing]);
        assert!(touches(&mut fresh(), FREE, bytes(0..1, true)));
    }

    #[test]
    fn a_launch_that_begins_early_and_does_not_wait_is_beside_the_one_in_front() {
        let clashes = |first: Dependence, between: bool, then: Dependence| {
            let mut order = Order::default();
            let mut touch = |depends| {
                let step = order.begin_launch(A, depends, blocking);
                let what = Arc::from("it");
                let extent = bytes(0..100, true);
                let clash = order.access(&step, 64, extent, &what, false);
                if between {
                    order.record(7, A, blocking);
                }
                clash.is_some_and(|clash| clash.early)
            };
            assert!(!touch(first));
            touch(then)
        };
        let depends = |early, lets_go| Dependence { early, lets_go };
        let (early, lets_go) = (depends(true, false), depends(false, true));
        assert!(clashes(lets_go, false, early) && clashes(depends(true, true), false, early));
        assert!(!clashes(lets_go, true, early));
        assert!(!clashes(Dependence::default(), false, early));
        assert!(!clashes(lets_go, false, lets_go));
    }

    #[test]
    fn strong_accesses_may_meet() {
        let lines = |bytes: [u128; 4]| Extent::Lines(Arc::new(vec![(3, bytes)]));
        let (read, written) = (lines([0xf0, 0, 0, 0]), lines([0, 0xf0, 0, 0]));
        let (read_strongly, added) = (lines([0, 0, 0xf0, 0]), lines([0, 0, 0xf0, 0xf0]));
        let all = [&read, &written, &read_strongly, &added];
        let clashes = |a: &Extent| all.map(|b| a.clash(b).is_some());
        assert_eq!(clashes(&read), [false, true, false, true]);
        assert_eq!(clashes(&written), [true; 4]);
        assert_eq!(clashes(&read_strongly), [false, true, false, false]);
        assert_eq!(clashes(&added), [true, true, false, false]);
        assert_eq!(written.clash(&bytes(390..400, false)), Some(390));
        assert_eq!(written.clash(&bytes(380..388, true)), None);
        assert_eq!(written.clash(&bytes(0..388, true)), None);
    }

    #[test]
    fn the_host_disturbs_what_is_not_over() {
        let mut order = Order::default();
        touches(&mut order, A, bytes(8..16, false));
        assert_eq!(order.pending(64, 256, 4096), [Pending::Reads]);
        assert!(order.disturbed(64, 8, false).is_none() && order.disturbed(64, 8, true).is_some());
        touches(&mut order, A, bytes(16..24, true));
        assert_eq!(order.pending(64, 256, 4096), [Pending::Writes]);
        assert!(
            order.disturbed(64, 16, false).is_some() && order.disturbed(64, 24, true).is_none()
        );
        // Of several parts those are left out in which it begins or ends.
        touches(&mut order, A, bytes(5000..13000, true));
        use Pending::{Nothing, Writes};
        let parts = order.pending(64, 5 * 4096, 4096);
        assert_eq!(parts, [Nothing, Nothing, Writes, Nothing, Nothing]);
        order.host_waits_for_all();
        assert_eq!(order.pending(64, 256, 4096), [Pending::Nothing]);
        assert!(order.disturbed(64, 16, false).is_none());
    }
}
