//! What PTX's memory model says of a run, by brute force.

use crate::kernel::{Act, From, GLOBAL, Kernel, Of, Order, RESULTS, SUM, Scope};

/// Something that a thread did, or that the async proxy did for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    thread: usize,
    act: Act,
    /// Of a load, a swap or a look: what it saw.
    saw: u32,
    /// What the async proxy does of a copy; the thread has only started it.
    part: Option<Part>,
}

/// A part of what the async proxy does, and the event that has started it.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// It reads a box, or writes what it brings in.
    Box(usize),
    /// It adds to the sum, writes it, or reads it.
    Sum(usize),
}

/// What two events must have in common to be about the same thing.
type Place = (usize, usize);

/// Places of the mbarriers, behind those of the memory.
const ARRIVALS: usize = 100;
const COPY: usize = 101;

impl Event {
    fn block(self) -> usize {
        self.thread / 2
    }

    fn by_proxy(self) -> bool {
        self.part.is_some()
    }

    /// Whether it adds to the sum: as an atomic does, of the scope of the GPU.
    fn reduces(self) -> bool {
        matches!((self.act, self.part), (Act::Reduce(_), Some(Part::Sum(_))))
    }

    fn place(self) -> Option<Place> {
        let at = match self.act {
            _ if matches!(self.part, Some(Part::Sum(_))) => SUM,
            Act::Load(place, _) | Act::Store(place, ..) | Act::Swap(place, ..) => place,
            Act::CopyIn(place, _) | Act::CopyOut(place) | Act::Reduce(place) | Act::Put(place)
                if self.by_proxy() =>
            {
                place
            }
            Act::Arrive(_) | Act::Look(Of::Arrivals, _) => ARRIVALS,
            Act::CopyIn(..) | Act::Look(Of::Copy, _) => COPY,
            _ => return None,
        };
        let global = at < GLOBAL || at == SUM;
        Some((if global { 0 } else { self.block() }, at))
    }

    fn order(self) -> Order {
        match self.act {
            Act::Load(_, order) | Act::Store(_, order, _) | Act::Swap(_, order, _) => order,
            Act::Arrive(order) | Act::Look(_, order) => order,
            // It arrives when it announces its bytes, and when it has brought them.
            Act::CopyIn(..) if self.by_proxy() => Order::Release(Scope::Cluster),
            Act::CopyIn(..) => Order::Release(Scope::Cta),
            _ => Order::Weak,
        }
    }

    /// Whether it is an access to memory that may race.
    fn accesses(self) -> bool {
        let generic = matches!(self.act, Act::Load(..) | Act::Store(..) | Act::Swap(..));
        generic || self.by_proxy()
    }

    fn writes(self) -> bool {
        match (self.act, self.part) {
            (Act::Store(..) | Act::Swap(..), _) => true,
            (Act::CopyIn(..), part) => matches!(part, Some(Part::Box(_))),
            (_, part) => matches!(part, Some(Part::Sum(_))),
        }
    }

    /// Whether it is a strong write, of memory or of an mbarrier.
    fn signals(self) -> bool {
        self.order() != Order::Weak && self.writes()
            || matches!(self.act, Act::Arrive(_) | Act::CopyIn(..))
    }

    /// Whether it sees what the other has written.
    fn sees(self, other: Event) -> bool {
        let done = self.saw == 1;
        match (other.act, self.act) {
            (Act::Arrive(_), Act::Look(Of::Arrivals, _)) => done && self.block() == other.block(),
            (Act::CopyIn(..), Act::Look(Of::Copy, _)) => done && self.block() == other.block(),
            (Act::Store(.., value) | Act::Swap(.., value), Act::Load(..) | Act::Swap(..)) => {
                self.place() == other.place() && self.saw == value
            }
            _ => false,
        }
    }

    fn scope(self) -> Option<Scope> {
        match self.act {
            Act::Fence(scope) => Some(scope),
            _ => self.order().scope(),
        }
    }
}

/// The events of a run, and which come before which by the definition.
pub(crate) struct Execution {
    events: Vec<Event>,
    clustered: bool,
    before: Vec<Vec<bool>>,
}

impl Execution {
    pub(crate) fn of(kernel: &Kernel, results: &[u32]) -> Execution {
        let mut events = Vec::new();
        for (thread, acts) in kernel.threads.iter().enumerate() {
            let mut result = thread * RESULTS;
            for &act in acts {
                let mut saw = 0;
                if matches!(act, Act::Load(..) | Act::Swap(..) | Act::Look(..)) {
                    saw = results[result];
                    result += 1;
                }
                events.push(Event {
                    thread,
                    act,
                    saw,
                    part: None,
                });
            }
        }
        let started = events.clone();
        for (at, event) in started.into_iter().enumerate() {
            let parts: &[Part] = match event.act {
                Act::CopyIn(_, From::Still) | Act::CopyOut(_) => &[Part::Box(at)],
                Act::CopyIn(_, From::Sum) | Act::Reduce(_) | Act::Put(_) => {
                    &[Part::Box(at), Part::Sum(at)]
                }
                _ => &[],
            };
            events.extend(parts.iter().map(|&part| Event {
                part: Some(part),
                ..event
            }));
        }
        let count = events.len();
        let mut execution = Execution {
            before: vec![vec![false; count]; count],
            clustered: kernel.clustered,
            events,
        };
        execution.order();
        execution
    }

    /// Whether both are strong, and each of a scope that holds the other.
    fn morally_strong(&self, a: Event, b: Event) -> bool {
        let holds = |scope: Option<Scope>| match scope {
            None => false,
            Some(Scope::Cta) => a.block() == b.block(),
            Some(Scope::Cluster) => self.clustered || a.block() == b.block(),
            Some(Scope::Gpu | Scope::Sys) => true,
        };
        holds(a.scope()) && holds(b.scope())
    }

    /// The reads that see a write, directly or by way of swaps, every step morally strong.
    fn observers(&self, write: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![write];
        while let Some(from) = open.pop() {
            let by = self.events[from];
            for (at, &event) in self.events.iter().enumerate() {
                if event.sees(by) && self.morally_strong(by, event) && !found.contains(&at) {
                    found.push(at);
                    if event.writes() {
                        open.push(at);
                    }
                }
            }
        }
        found
    }

    /// The operations that a strong write ends a release pattern of.
    fn releases(&self, write: usize) -> Vec<usize> {
        if self.events[write].by_proxy() {
            return vec![write];
        }
        let orders = |event: Event| event.order().releases();
        self.patterns(write, orders, |first| first <= write)
    }

    /// The operations that a strong read begins an acquire pattern of.
    fn acquires(&self, read: usize) -> Vec<usize> {
        self.patterns(read, |event| event.order().acquires(), |last| last >= read)
    }

    fn patterns(
        &self,
        access: usize,
        orders: impl Fn(Event) -> bool,
        side: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let of = self.events[access];
        let events = self.events.iter().enumerate();
        let found = events.filter(|&(at, event)| {
            let same = event.place() == of.place() && orders(*event);
            let fence = matches!(event.act, Act::Fence(_));
            event.thread == of.thread && !event.by_proxy() && side(at) && (same || fence)
        });
        found.map(|(at, _)| at).collect()
    }

    /// The event of a thread that started a copy.
    fn start(&self, copy: usize) -> usize {
        match self.events[copy].part {
            Some(Part::Box(start) | Part::Sum(start)) => start,
            None => copy,
        }
    }

    /// Base causality.
    fn order(&mut self) {
        let count = self.events.len();
        let mut pairs = Vec::new();
        for a in 0..count {
            let (one, started) = (self.events[a], self.start(a));
            if one.by_proxy() {
                pairs.push((started, a));
            }
            for b in a + 1..count {
                let other = self.events[b];
                let same = one.thread == other.thread && !other.by_proxy();
                if same && !one.by_proxy() {
                    pairs.push((a, b));
                }
            }
            for b in started + 1..count {
                let other = self.events[b];
                let grouped = matches!(one.act, Act::CopyOut(_) | Act::Reduce(_) | Act::Put(_));
                let waits = match other.act {
                    Act::Wait => grouped,
                    Act::ReadWait => grouped && !one.writes(),
                    _ => false,
                };
                if one.by_proxy() && waits && other.thread == one.thread {
                    pairs.push((a, b));
                }
            }
        }
        // The n-th barriers of the threads of a block are one.
        let nth = |at: usize| {
            let thread = self.events[at].thread;
            let barriers = self.events[..at]
                .iter()
                .filter(|event| event.thread == thread && matches!(event.act, Act::Barrier));
            (thread / 2, barriers.count())
        };
        let barriers: Vec<usize> = (0..count)
            .filter(|&at| matches!(self.events[at].act, Act::Barrier))
            .collect();
        for &a in &barriers {
            for &b in &barriers {
                if a != b && nth(a) == nth(b) {
                    pairs.push((a, b));
                }
            }
        }
        for write in (0..count).filter(|&at| self.events[at].signals()) {
            for read in self.observers(write) {
                for first in self.releases(write) {
                    for last in self.acquires(read) {
                        if self.morally_strong(self.events[first], self.events[last]) {
                            pairs.push((first, last));
                        }
                    }
                }
            }
        }
        for (a, b) in pairs {
            self.before[a][b] = true;
        }
        for via in 0..count {
            for a in 0..count {
                for b in 0..count {
                    self.before[a][b] |= self.before[a][via] && self.before[via][b];
                }
            }
        }
    }

    /// Whether one access comes before the other: by base causality, from itself or from a
    /// read that has seen it, and past a fence of the proxies where the first is of the
    /// generic and the second of the async one.
    fn causes(&self, a: usize, b: usize) -> bool {
        let (one, other) = (self.events[a], self.events[b]);
        let mut from = vec![a];
        if one.writes() && one.order() != Order::Weak && !one.by_proxy() {
            from.extend(self.observers(a));
        }
        let to = self.start(b);
        if !other.by_proxy() || one.by_proxy() {
            let past = |from: usize| from != a && from == to || self.before[from][to];
            return from.into_iter().any(past);
        }
        let fences =
            (0..self.events.len()).filter(|&at| matches!(self.events[at].act, Act::ProxyFence));
        let mut fences = fences.filter(|&fence| self.before[fence][to]);
        fences.any(|fence| from.iter().any(|&from| self.before[from][fence]))
    }

    /// Two accesses that race.
    pub(crate) fn race(&self) -> Option<(Event, Event)> {
        let count = self.events.len();
        for a in 0..count {
            for b in a + 1..count {
                let (one, other) = (self.events[a], self.events[b]);
                let conflict = (one.thread != other.thread || one.by_proxy() || other.by_proxy())
                    && one.accesses()
                    && other.accesses()
                    && one.place() == other.place()
                    && (one.writes() || other.writes());
                let generic = !one.by_proxy() && !other.by_proxy();
                let both_strong =
                    generic && self.morally_strong(one, other) || one.reduces() && other.reduces();
                if conflict && !both_strong && !self.causes(a, b) && !self.causes(b, a) {
                    return Some((one, other));
                }
            }
        }
        None
    }
}
