//! Random small kernels, as lists of acts and as PTX.

use std::fmt::Write;

/// Words of global memory that threads share.
pub(crate) const GLOBAL: usize = 3;
/// Boxes of 16 bytes of each block's shared memory; places from [`GLOBAL`] on.
pub(crate) const SHARED: usize = 2;
/// The place in global memory that reductions add to and that is copied both ways, 16 bytes
/// behind the words.
pub(crate) const SUM: usize = GLOBAL + SHARED;
/// Words of global memory.
pub(crate) const WORDS: usize = 8;
/// Words of the results of a thread.
pub(crate) const RESULTS: usize = 8;
/// Threads: two in each of two blocks, in warps of their own.
pub(crate) const THREADS: usize = 4;
/// Acts of a thread, and more.
pub(crate) const MOST_ACTS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Cta,
    Cluster,
    Gpu,
    Sys,
}

impl Scope {
    fn text(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }
}

/// How an access orders others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Weak,
    Relaxed(Scope),
    Acquire(Scope),
    Release(Scope),
    Both(Scope),
}

impl Order {
    pub(crate) fn scope(self) -> Option<Scope> {
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

    pub(crate) fn acquires(self) -> bool {
        matches!(self, Order::Acquire(_) | Order::Both(_))
    }

    pub(crate) fn releases(self) -> bool {
        matches!(self, Order::Release(_) | Order::Both(_))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Load(usize, Order),
    Store(usize, Order, u32),
    Swap(usize, Order, u32),
    Fence(Scope),
    /// The block's barrier; all threads of a block have as many.
    Barrier,
    /// An arrival at the block's mbarrier; its phase ends with the last of them.
    Arrive(Order),
    /// A look at the block's mbarrier: of the arrivals, or of the copy.
    Look(Of, Order),
    /// Between the generic and the async proxy.
    ProxyFence,
    /// A bulk copy from a box of shared memory, in a group of its own.
    CopyOut(usize),
    /// A bulk reduction from a box of shared memory to [`SUM`], in a group of its own.
    Reduce(usize),
    /// A bulk copy from a box of shared memory to [`SUM`], in a group of its own.
    Put(usize),
    /// Waits until the copies of the thread have read their sources.
    ReadWait,
    /// Waits until they are over.
    Wait,
    /// A bulk copy into a box of shared memory, announced and told to the block's other
    /// mbarrier; one a block.
    CopyIn(usize, From),
    /// Some nanoseconds, so that runs differ.
    Sleep(u32),
}

/// Where a copy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// Memory that nobody writes.
    Still,
    /// [`SUM`].
    Sum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Arrivals,
    Copy,
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }

    fn scope(&mut self) -> Scope {
        match self.below(12) {
            0 => Scope::Cta,
            1 => Scope::Sys,
            2 | 3 => Scope::Cluster,
            _ => Scope::Gpu,
        }
    }
}

/// What the async proxy does with global memory that threads use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    /// It adds to it.
    Reductions,
    /// It copies it both ways.
    Copies,
}

/// What each thread does, and whether the two blocks are a cluster.
pub(crate) struct Kernel {
    pub(crate) threads: Vec<Vec<Act>>,
    pub(crate) clustered: bool,
}

impl Kernel {
    /// One of many.
    pub(crate) fn random(random: &mut Random, kind: Kind) -> Kernel {
        let clustered = random.below(2) == 0;
        let proxies = random.below(2) == 0;
        let barriers = [random.below(2), random.below(2)];
        let copies_in = [random.below(2), random.below(2)];
        let mut value = 0;
        let threads = (0..THREADS).map(|thread| {
            let mut acts = Vec::new();
            if random.below(3) == 0 {
                acts.push(Act::Sleep(1000 * random.below(12)));
            }
            for _ in 0..random.below(5) {
                value += 1;
                acts.push(if kind == Kind::Reductions && random.below(4) > 0 {
                    of_reductions(random, value)
                } else if kind == Kind::Copies && random.below(2) > 0 {
                    of_copies(random, value)
                } else if proxies && random.below(3) > 0 {
                    of_proxies(random, value)
                } else {
                    of_strength(random, value)
                });
                if random.below(3) == 0 {
                    acts.push(Act::Sleep(1000 * random.below(12)));
                }
            }
            let mut insert = |act: Act| {
                let at = random.below(acts.len() as u32 + 1) as usize;
                acts.insert(at, act);
            };
            for _ in 0..barriers[thread / 2] {
                insert(Act::Barrier);
            }
            let (copies, from) = match kind {
                Kind::Copies => (true, From::Sum),
                _ => (proxies, From::Still),
            };
            if copies && thread % 2 == 0 && copies_in[thread / 2] == 1 {
                insert(Act::CopyIn(GLOBAL, from));
            }
            acts
        });
        Kernel {
            threads: threads.collect(),
            clustered,
        }
    }

    fn arrivals(&self, block: usize) -> usize {
        let acts = self.threads[2 * block..2 * block + 2].iter().flatten();
        acts.filter(|act| matches!(act, Act::Arrive(_))).count()
    }

    /// As PTX. Every load and every look puts what it has seen into a word of its thread.
    pub(crate) fn text(&self) -> String {
        let mut ptx = String::from(
            ".version 8.0\n.target sm_90\n.address_size 64\n\
             .visible .entry k(.param .u64 p_m, .param .u64 p_o, .param .u64 p_c)\n{\n\
             .reg .u32 t, b, v, s, bar_, own_;\n.reg .u64 m, o, c;\n.reg .pred p;\n\
             .shared .align 16 .b8 boxes[32];\n.shared .align 8 .b64 bar;\n.shared .align 8 .b64 own;\n\
             ld.param.u64 m, [p_m];\nld.param.u64 o, [p_o];\nld.param.u64 c, [p_c];\n\
             mov.u32 s, boxes;\nmov.u32 bar_, bar;\nmov.u32 own_, own;\n\
             mov.u32 t, %tid.x;\nmov.u32 b, %ctaid.x;\n\
             and.b32 v, t, 31;\nsetp.ne.u32 p, v, 0;\n@p exit;\n\
             setp.ne.u32 p, t, 0;\n@p bra ready;\n\
             st.shared.v4.u32 [s], {0, 0, 0, 0};\nst.shared.v4.u32 [s+16], {0, 0, 0, 0};\n\
             setp.eq.u32 p, b, 0;\n",
        );
        let counts = [0, 1].map(|block| self.arrivals(block).max(1));
        let _ = writeln!(
            ptx,
            "selp.u32 v, {}, {}, p;\nmbarrier.init.shared::cta.b64 [bar_], v;\n\
             mbarrier.init.shared::cta.b64 [own_], 1;\nfence.mbarrier_init.release.cluster;\n\
             fence.proxy.async;\nready:\nbarrier.sync 0;\n\
             shr.u32 t, t, 5;\nmad.lo.u32 t, b, 2, t;",
            counts[0], counts[1]
        );
        for thread in 1..THREADS {
            let _ = writeln!(ptx, "setp.eq.u32 p, t, {thread};\n@p bra T{thread};");
        }
        for (thread, acts) in self.threads.iter().enumerate() {
            let _ = writeln!(ptx, "T{thread}:");
            let mut result = 4 * thread * RESULTS;
            for (at, act) in acts.iter().enumerate() {
                write_act(&mut ptx, *act, thread * MOST_ACTS + at, &mut result);
            }
            if acts
                .iter()
                .any(|act| matches!(act, Act::CopyOut(_) | Act::Reduce(_) | Act::Put(_)))
            {
                ptx.push_str("cp.async.bulk.wait_group 0;\n");
            }
            if acts.iter().any(|act| matches!(act, Act::CopyIn(..))) {
                let _ = writeln!(
                    ptx,
                    "W{thread}:\nmbarrier.try_wait.parity.shared::cta.b64 p, [own_], 0;\n@!p bra W{thread};"
                );
            }
            ptx.push_str("ret;\n");
        }
        ptx.push_str("}\n");
        ptx
    }
}

/// Mostly global memory, with every order and scope.
fn of_strength(random: &mut Random, value: u32) -> Act {
    // The first place is mostly data, the others are mostly flags.
    let place = [0, 1, 1, 2][random.below(4) as usize];
    let weak = random.below(30) < if place == 0 { 20 } else { 1 };
    match random.below(16) {
        0..6 if weak => Act::Load(place, Order::Weak),
        0..3 => Act::Load(place, Order::Relaxed(random.scope())),
        3..6 => Act::Load(place, Order::Acquire(random.scope())),
        6..11 if weak => Act::Store(place, Order::Weak, value),
        6..8 => Act::Store(place, Order::Relaxed(random.scope()), value),
        8..11 => Act::Store(place, Order::Release(random.scope()), value),
        11 => Act::Swap(place, Order::Relaxed(random.scope()), value),
        12 => Act::Swap(place, Order::Both(random.scope()), value),
        _ => Act::Fence(random.scope()),
    }
}

/// Shared memory, mbarriers and copies.
fn of_proxies(random: &mut Random, value: u32) -> Act {
    let place = GLOBAL + random.below(SHARED as u32) as usize;
    let scope = [Scope::Cta, Scope::Cluster][random.below(2) as usize];
    let strong = random.below(8) == 0;
    match random.below(16) {
        0..2 if strong => Act::Load(place, Order::Relaxed(random.scope())),
        2..4 if strong => Act::Store(place, Order::Relaxed(random.scope()), value),
        0..2 => Act::Load(place, Order::Weak),
        2..4 => Act::Store(place, Order::Weak, value),
        4 | 5 => Act::Arrive(Order::Release(scope)),
        6 => Act::Arrive(Order::Relaxed(scope)),
        7 => Act::Look(Of::Arrivals, Order::Acquire(scope)),
        8 => Act::Look(Of::Arrivals, Order::Relaxed(scope)),
        9 => Act::Look(Of::Copy, Order::Acquire(scope)),
        10 => Act::Look(Of::Copy, Order::Relaxed(scope)),
        11 | 12 => Act::ProxyFence,
        13 => Act::CopyOut(place),
        14 => Act::ReadWait,
        _ => Act::Fence(random.scope()),
    }
}

/// Reductions, and what uses their sources and their sum.
fn of_reductions(random: &mut Random, value: u32) -> Act {
    let place = GLOBAL + random.below(SHARED as u32) as usize;
    match random.below(18) {
        0 | 1 => Act::Load(SUM, Order::Weak),
        2 => Act::Store(SUM, Order::Weak, value),
        3..7 => Act::Reduce(place),
        7 => Act::Store(place, Order::Weak, value),
        8 => Act::Load(place, Order::Weak),
        9..12 => Act::ProxyFence,
        12..15 => Act::Wait,
        15 => Act::ReadWait,
        16 => Act::CopyOut(place),
        _ => Act::Fence(random.scope()),
    }
}

/// Copies from and to global memory, and what uses it and their boxes.
fn of_copies(random: &mut Random, value: u32) -> Act {
    let place = GLOBAL + random.below(SHARED as u32) as usize;
    let scope = [Scope::Cta, Scope::Cluster][random.below(2) as usize];
    match random.below(20) {
        0 => Act::Load(SUM, Order::Weak),
        1 | 2 => Act::Store(SUM, Order::Weak, value),
        3 => Act::Load(SUM, Order::Relaxed(random.scope())),
        4 => Act::Load(SUM, Order::Acquire(random.scope())),
        5 => Act::Store(SUM, Order::Release(random.scope()), value),
        6 => Act::Swap(SUM, Order::Both(random.scope()), value),
        7..10 => Act::Put(place),
        10 => Act::Store(place, Order::Weak, value),
        11..14 => Act::ProxyFence,
        14 => Act::Wait,
        15 => Act::ReadWait,
        16..19 => Act::Look(Of::Copy, Order::Acquire(scope)),
        _ => Act::Fence(random.scope()),
    }
}

fn address(place: usize) -> (&'static str, String) {
    if place == SUM {
        return ("global", "[m+16]".to_owned());
    }
    match place.checked_sub(GLOBAL) {
        None => ("global", format!("[m+{}]", 4 * place)),
        Some(shared) => ("shared", format!("[s+{}]", 16 * shared)),
    }
}

fn write_act(ptx: &mut String, act: Act, slot: usize, result: &mut usize) {
    let seen = |ptx: &mut String, result: &mut usize| {
        let _ = writeln!(ptx, "st.global.u32 [o+{}], v;", *result);
        *result += 4;
    };
    let _ = match act {
        Act::Load(place, order) => {
            let (space, at) = address(place);
            let _ = writeln!(ptx, "ld{}.{space}.u32 v, {at};", order.text());
            seen(ptx, result);
            Ok(())
        }
        Act::Store(place, order, value) => {
            let (space, at) = address(place);
            writeln!(ptx, "st{}.{space}.u32 {at}, {value};", order.text())
        }
        Act::Swap(place, order, value) => {
            let (space, at) = address(place);
            let order = order.text();
            let _ = writeln!(ptx, "atom{order}.{space}.exch.b32 v, {at}, {value};");
            seen(ptx, result);
            Ok(())
        }
        Act::Fence(scope) => writeln!(ptx, "fence.acq_rel.{};", scope.text()),
        Act::Barrier => writeln!(ptx, "barrier.sync 0;"),
        Act::Arrive(order) => {
            let order = order.text();
            writeln!(ptx, "mbarrier.arrive{order}.shared::cta.b64 _, [bar_];")
        }
        Act::Look(of, order) => {
            let bar = match of {
                Of::Arrivals => "bar_",
                Of::Copy => "own_",
            };
            let _ = writeln!(
                ptx,
                "mbarrier.test_wait.parity{}.shared::cta.b64 p, [{bar}], 0;\nselp.u32 v, 1, 0, p;",
                order.text()
            );
            seen(ptx, result);
            Ok(())
        }
        Act::ProxyFence => writeln!(ptx, "fence.proxy.async;"),
        Act::CopyOut(place) => {
            let (_, from) = address(place);
            writeln!(
                ptx,
                "cp.async.bulk.global.shared::cta.bulk_group [c+{}], {from}, 16;\n\
                 cp.async.bulk.commit_group;",
                // Behind what the other copies bring in, and of this one alone.
                16 + 16 * slot
            )
        }
        Act::Reduce(place) => {
            let (_, from) = address(place);
            writeln!(
                ptx,
                "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [m+16], {from}, 16;\n\
                 cp.async.bulk.commit_group;"
            )
        }
        Act::Put(place) => {
            let (_, from) = address(place);
            writeln!(
                ptx,
                "cp.async.bulk.global.shared::cta.bulk_group [m+16], {from}, 16;\n\
                 cp.async.bulk.commit_group;"
            )
        }
        Act::ReadWait => writeln!(ptx, "cp.async.bulk.wait_group.read 0;"),
        Act::Wait => writeln!(ptx, "cp.async.bulk.wait_group 0;"),
        Act::CopyIn(place, from) => {
            let (_, to) = address(place);
            let from = match from {
                From::Still => "c",
                From::Sum => "m+16",
            };
            writeln!(
                ptx,
                "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [own_], 16;\n\
                 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes {to}, [{from}], 16, [own_];"
            )
        }
        Act::Sleep(time) => writeln!(ptx, "nanosleep.u32 {time};"),
    };
}
