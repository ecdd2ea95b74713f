//! Random small kernels against PTX's memory model, worked out by brute force.
//!
//! A kernel is up to four threads in two blocks, each with a few accesses to a few words
//! of global memory: weak, relaxed, acquire, release and read-modify-write, of every
//! scope, with fences and barriers between them. Every write has a value of its own, so
//! that a run tells which write each read has seen. From that the definition says what is
//! ordered: program order, barriers, and release and acquire patterns whose every step is
//! morally strong, closed over each other. Two accesses race that conflict, are not
//! both strong towards each other, and are not ordered. The detector must say so of
//! the same run, and must say nothing of any other. (Runs in which two accesses are
//! ordered by nothing but a strong read that has seen one of them are counted apart: the
//! detector has no order for that, and reports them.)
//!
//! `HEIST_PROGRAMS` is how many kernels are tried.

use heist_launch::{Arg, Arguments, Launch};
use heist_sim::{Budget, Device, Options, Program};
use std::fmt::Write;

/// Words that threads share.
const PLACES: usize = 3;
/// Words of the results of a thread.
const RESULTS: usize = 8;
/// Threads: two in each of two blocks, in warps of their own.
const THREADS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Cta,
    Gpu,
    Sys,
}

impl Scope {
    fn text(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }

    /// Whether it holds both threads.
    fn holds(self, a: usize, b: usize) -> bool {
        self > Scope::Cta || a / 2 == b / 2
    }
}

/// How an access orders others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Weak,
    Relaxed(Scope),
    Acquire(Scope),
    Release(Scope),
    Both(Scope),
}

impl Order {
    fn scope(self) -> Option<Scope> {
        match self {
            Order::Weak => None,
            Order::Relaxed(s) | Order::Acquire(s) | Order::Release(s) | Order::Both(s) => Some(s),
        }
    }

    fn text(self) -> String {
        let name = match self {
            Order::Weak => return String::new(),
            Order::Relaxed(_) => "relaxed",
            Order::Acquire(_) => "acquire",
            Order::Release(_) => "release",
            Order::Both(_) => "acq_rel",
        };
        format!(".{name}.{}", self.scope().map_or("", Scope::text))
    }

    fn acquires(self) -> bool {
        matches!(self, Order::Acquire(_) | Order::Both(_))
    }

    fn releases(self) -> bool {
        matches!(self, Order::Release(_) | Order::Both(_))
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Load(usize, Order),
    Store(usize, Order, u32),
    Swap(usize, Order, u32),
    Fence(Scope),
    /// The block's barrier; all threads of a block have as many.
    Barrier,
    /// Some nanoseconds, so that runs differ.
    Sleep(u32),
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }

    fn scope(&mut self) -> Scope {
        match self.below(10) {
            0 => Scope::Cta,
            1 => Scope::Sys,
            _ => Scope::Gpu,
        }
    }
}

/// What each thread does.
type Kernel = Vec<Vec<Act>>;

fn kernel(random: &mut Random) -> Kernel {
    let barriers = [random.below(2), random.below(2)];
    let mut value = 0;
    (0..THREADS)
        .map(|thread| {
            let mut acts = Vec::new();
            if random.below(3) == 0 {
                acts.push(Act::Sleep(1000 * random.below(12)));
            }
            for _ in 0..random.below(5) {
                // The first place is mostly data, the others are mostly flags.
                let place = [0, 1, 1, 2][random.below(4) as usize];
                let weak = random.below(30) < if place == 0 { 20 } else { 1 };
                value += 1;
                acts.push(match random.below(16) {
                    0..6 if weak => Act::Load(place, Order::Weak),
                    0..3 => Act::Load(place, Order::Relaxed(random.scope())),
                    3..6 => Act::Load(place, Order::Acquire(random.scope())),
                    6..11 if weak => Act::Store(place, Order::Weak, value),
                    6..8 => Act::Store(place, Order::Relaxed(random.scope()), value),
                    8..11 => Act::Store(place, Order::Release(random.scope()), value),
                    11 => Act::Swap(place, Order::Relaxed(random.scope()), value),
                    12 => Act::Swap(place, Order::Both(random.scope()), value),
                    _ => Act::Fence(random.scope()),
                });
                if random.below(3) == 0 {
                    acts.push(Act::Sleep(1000 * random.below(12)));
                }
            }
            for _ in 0..barriers[thread / 2] {
                let at = random.below(acts.len() as u32 + 1) as usize;
                acts.insert(at, Act::Barrier);
            }
            acts
        })
        .collect()
}

/// The kernel as PTX. Every load puts what it has read into a word of its thread.
fn text(kernel: &Kernel) -> String {
    let mut ptx = String::from(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .entry k(.param .u64 p_m, .param .u64 p_o)\n{\n\
         .reg .u32 t, b, v;\n.reg .u64 m, o;\n.reg .pred p;\n\
         ld.param.u64 m, [p_m];\nld.param.u64 o, [p_o];\n\
         mov.u32 t, %tid.x;\nmov.u32 b, %ctaid.x;\n\
         and.b32 v, t, 31;\nsetp.ne.u32 p, v, 0;\n@p exit;\n\
         shr.u32 t, t, 5;\nmad.lo.u32 t, b, 2, t;\n",
    );
    for thread in 1..THREADS {
        let _ = writeln!(ptx, "setp.eq.u32 p, t, {thread};\n@p bra T{thread};");
    }
    for (thread, acts) in kernel.iter().enumerate() {
        let _ = writeln!(ptx, "T{thread}:");
        let mut result = thread * RESULTS;
        for act in acts {
            let _ = match *act {
                Act::Load(place, order) => {
                    let done = writeln!(
                        ptx,
                        "ld{}.global.u32 v, [m+{}];\nst.global.u32 [o+{}], v;",
                        order.text(),
                        4 * place,
                        4 * result
                    );
                    result += 1;
                    done
                }
                Act::Store(place, order, value) => {
                    writeln!(
                        ptx,
                        "st{}.global.u32 [m+{}], {value};",
                        order.text(),
                        4 * place
                    )
                }
                Act::Swap(place, order, value) => {
                    let done = writeln!(
                        ptx,
                        "atom{}.global.exch.b32 v, [m+{}], {value};\nst.global.u32 [o+{}], v;",
                        order.text(),
                        4 * place,
                        4 * result
                    );
                    result += 1;
                    done
                }
                Act::Fence(scope) => writeln!(ptx, "fence.acq_rel.{};", scope.text()),
                Act::Barrier => writeln!(ptx, "barrier.sync 0;"),
                Act::Sleep(time) => writeln!(ptx, "nanosleep.u32 {time};"),
            };
        }
        ptx.push_str("ret;\n");
    }
    ptx.push_str("}\n");
    ptx
}

/// Something that a thread did.
#[derive(Clone, Copy, Debug)]
struct Event {
    thread: usize,
    act: Act,
    /// Of a load or a swap: the value that it saw.
    saw: u32,
}

impl Event {
    fn place(self) -> Option<usize> {
        match self.act {
            Act::Load(place, _) | Act::Store(place, ..) | Act::Swap(place, ..) => Some(place),
            _ => None,
        }
    }

    fn order(self) -> Order {
        match self.act {
            Act::Load(_, order) | Act::Store(_, order, _) | Act::Swap(_, order, _) => order,
            _ => Order::Weak,
        }
    }

    fn writes(self) -> Option<u32> {
        match self.act {
            Act::Store(.., value) | Act::Swap(.., value) => Some(value),
            _ => None,
        }
    }

    fn reads(self) -> bool {
        matches!(self.act, Act::Load(..) | Act::Swap(..))
    }

    fn scope(self) -> Option<Scope> {
        match self.act {
            Act::Fence(scope) => Some(scope),
            _ => self.order().scope(),
        }
    }
}

/// Whether both are strong, and each of a scope that holds the other.
fn morally_strong(a: Event, b: Event) -> bool {
    let holds = |scope: Option<Scope>| scope.is_some_and(|scope| scope.holds(a.thread, b.thread));
    a.thread == b.thread && a.scope().is_some() && b.scope().is_some()
        || holds(a.scope()) && holds(b.scope())
}

/// The events of a run, and which come before which by the definition.
struct Execution {
    events: Vec<Event>,
    before: Vec<Vec<bool>>,
}

impl Execution {
    fn of(kernel: &Kernel, results: &[u32]) -> Execution {
        let mut events = Vec::new();
        for (thread, acts) in kernel.iter().enumerate() {
            let mut result = thread * RESULTS;
            for &act in acts {
                let mut saw = 0;
                if matches!(act, Act::Load(..) | Act::Swap(..)) {
                    saw = results[result];
                    result += 1;
                }
                events.push(Event { thread, act, saw });
            }
        }
        let count = events.len();
        let mut execution = Execution {
            before: vec![vec![false; count]; count],
            events,
        };
        execution.order();
        execution
    }

    /// The reads that see a write, directly or by way of swaps, every step morally strong.
    fn observers(&self, write: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut open = vec![write];
        while let Some(from) = open.pop() {
            let by = self.events[from];
            for (at, &event) in self.events.iter().enumerate() {
                let sees =
                    event.reads() && event.place() == by.place() && Some(event.saw) == by.writes();
                if sees && morally_strong(by, event) && !found.contains(&at) {
                    found.push(at);
                    if event.writes().is_some() {
                        open.push(at);
                    }
                }
            }
        }
        found
    }

    /// The operations that a strong write ends a release pattern of.
    fn releases(&self, write: usize) -> Vec<usize> {
        self.patterns(
            write,
            |event| event.order().releases(),
            |first| first <= write,
        )
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
        if of.order() == Order::Weak {
            return Vec::new();
        }
        let events = self.events.iter().enumerate();
        let found = events.filter(|&(at, event)| {
            let same = event.place() == of.place() && orders(*event);
            let fence = matches!(event.act, Act::Fence(_));
            event.thread == of.thread && side(at) && (same || fence)
        });
        found.map(|(at, _)| at).collect()
    }

    /// Base causality.
    fn order(&mut self) {
        let count = self.events.len();
        for a in 0..count {
            for b in a + 1..count {
                self.before[a][b] = self.events[a].thread == self.events[b].thread;
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
        let mut pairs = Vec::new();
        for &a in &barriers {
            for &b in &barriers {
                if a != b && nth(a) == nth(b) {
                    pairs.push((a, b));
                }
            }
        }
        for write in (0..count).filter(|&at| self.events[at].writes().is_some()) {
            if self.events[write].order() == Order::Weak {
                continue;
            }
            for read in self.observers(write) {
                for first in self.releases(write) {
                    for last in self.acquires(read) {
                        if morally_strong(self.events[first], self.events[last]) {
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

    /// Whether one comes before the other; with `observed`, also by way of a read that has
    /// seen it.
    fn causes(&self, a: usize, b: usize, observed: bool) -> bool {
        let seen = || {
            let mut by = self.observers(a).into_iter();
            self.events[a].writes().is_some() && by.any(|by| by == b || self.before[by][b])
        };
        self.before[a][b] || observed && seen()
    }

    /// Two accesses that race.
    fn race(&self, observed: bool) -> Option<(Event, Event)> {
        let count = self.events.len();
        for a in 0..count {
            for b in a + 1..count {
                let (one, other) = (self.events[a], self.events[b]);
                let conflict = one.thread != other.thread
                    && one.place().is_some()
                    && one.place() == other.place()
                    && (one.writes().is_some() || other.writes().is_some());
                if conflict
                    && !morally_strong(one, other)
                    && !self.causes(a, b, observed)
                    && !self.causes(b, a, observed)
                {
                    return Some((one, other));
                }
            }
        }
        None
    }
}

#[test]
fn the_detector_agrees_with_the_definition() {
    let programs = std::env::var("HEIST_PROGRAMS").ok();
    let programs: u64 = programs.map_or(2000, |text| {
        text.parse().expect("HEIST_PROGRAMS is a number")
    });
    let device = Device::named("sim:h200").expect("there is such a device");
    let (mut races, mut observed, mut wrong) = (0, 0, Vec::new());
    for number in 0..programs {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5eed);
        let kernel = kernel(&mut random);
        let text = text(&kernel);
        let source = heist_ptx::Source::new("random.ptx", text.as_str());
        let module = heist_ptx::parse(&source).expect("it is PTX");
        let program = Program::new(module).expect("it can be run");
        let arguments = Arguments::new([
            Arg::in_out(&[0u32; PLACES]),
            Arg::in_out(&[0u32; RESULTS * THREADS]),
        ]);
        let options = Options {
            seed: number,
            threads: 1,
            budget: Budget {
                warp_instructions: 100_000,
                ..Budget::default()
            },
            ..Options::default()
        };
        let launch = Launch::new(2, 64);
        let report = program
            .run(&device, "k", &launch, &arguments, &options)
            .expect("it runs");
        let results = report
            .outcome
            .output(1usize)
            .expect("results")
            .to_vec::<u32>()
            .expect("words");
        let said = report
            .diagnostics
            .iter()
            .find(|one| one.code.0.starts_with('R'));
        let execution = Execution::of(&kernel, &results);
        let race = execution.race(false);
        if race.is_some() != execution.race(true).is_some() {
            // The one thing that the detector does not know: an access that comes after a
            // strong read of a write comes after that write, and after nothing else of its
            // thread. It tells a race there.
            observed += 1;
            continue;
        }
        races += u64::from(race.is_some());
        if said.is_some() != race.is_some() {
            wrong.push(number);
            if wrong.len() <= 3 {
                println!(
                    "kernel {number}: the definition says {race:?}, the detector {said:#?}\nresults {results:?}\n{text}"
                );
            }
        }
    }
    println!(
        "{programs} kernels, {races} with a race, {observed} where only an observation orders, {} judged otherwise",
        wrong.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {programs}: {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(20)]
    );
    assert!(
        races > programs / 10 && races < programs - programs / 10,
        "{races} races"
    );
}
