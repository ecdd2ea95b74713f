//! Updates that may lose another thread's.
//!
//! A thread that loads a word, computes, and stores the result to the same word overwrites what others
//! have stored meanwhile. Where both accesses are strong (`.volatile`, `.relaxed`) that is no data race.
//! But a load that does not come behind another thread's write may miss it, whatever it has read in this
//! run, and then the store loses it.
//!
//! The values of strong loads are followed through registers, lane by lane, but not through memory. One
//! that decides something is left out: a thread that waits for its turn at the word itself has
//! read what it needs.

use super::body::{Body, around, base_row};
use crate::access::context::Cx;
use crate::code::Flow;
use crate::decode::trail::{Strong, Trail};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, each};
use crate::state::follow::Read;
use heist_ptx::rule;

/// Follows the registers that can hold what is stored back, and returns how many there are.
pub(super) fn wrap(body: &mut Body<'_>) -> usize {
    let trails = body.trails;
    let strong = |stores: bool| {
        let does = move |trail: &&Trail| trail.strong.is_some_and(|one| one.stores == stores);
        trails.iter().filter(does)
    };
    let loaded = strong(false).flat_map(|trail| trail.writes.iter().copied());
    let numbers = body.computed_from(loaded);
    let mut stored = strong(true).flat_map(|trail| &trail.reads);
    if !stored.any(|row| numbers.contains_key(row)) {
        return 0;
    }
    for (op, trail) in body.ops.iter_mut().zip(body.trails) {
        let followed = |rows: &[u32]| -> Vec<u32> {
            let rows = rows.iter();
            rows.filter_map(|row| numbers.get(row).copied()).collect()
        };
        let part = match trail.strong {
            Some(strong) if strong.stores => Part::Stores(strong),
            Some(strong) => Part::Loads(strong),
            None if trail.loads => Part::Brings,
            None if trail.only_computes() => Part::Computes,
            None => Part::Decides,
        };
        // The register of the address comes first.
        let reads = match part {
            Part::Stores(strong) => &trail.reads[base_row(strong.addr).iter().len()..],
            _ => &trail.reads,
        };
        let (reads, writes) = (followed(reads), followed(&trail.writes));
        if !reads.is_empty() || !writes.is_empty() {
            around(op, |inner| {
                Box::new(Update {
                    inner,
                    part,
                    reads,
                    writes,
                })
            });
        }
    }
    numbers.len()
}

/// What an operation does with followed registers.
#[derive(Clone, Copy)]
enum Part {
    /// A strong load.
    Loads(Strong),
    /// A strong store.
    Stores(Strong),
    /// Any other operation whose results come from memory.
    Brings,
    Computes,
    /// It has an effect of its own: a comparison, another store, an atomic.
    Decides,
}

/// An operation that touches a followed register.
struct Update {
    inner: Box<dyn Instr>,
    part: Part,
    /// The followed registers that it reads, without that of an address that it stores to.
    reads: Vec<u32>,
    writes: Vec<u32>,
}

impl Instr for Update {
    fn inner(&self) -> Option<&dyn Instr> {
        Some(&*self.inner)
    }

    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        match self.part {
            Part::Loads(strong) => return self.load(cx, strong),
            Part::Stores(strong) => self.check(cx, strong),
            Part::Computes => {
                let made = self.made(cx);
                self.put(cx, &made);
            }
            Part::Brings | Part::Decides => {
                self.settle(cx);
                self.put(cx, &[None; LANES]);
            }
        }
        self.inner.step(cx)
    }
}

impl Update {
    /// What the results come from.
    fn made(&self, cx: &Cx<'_>) -> [Option<Read>; LANES] {
        std::array::from_fn(|lane| {
            let mut reads = self.reads.iter();
            reads.find_map(|&number| cx.warp.updates[number as usize][lane])
        })
    }

    fn put(&self, cx: &mut Cx<'_>, made: &[Option<Read>; LANES]) {
        let mask = cx.mask;
        for &number in &self.writes {
            let row = &mut cx.warp.updates[number as usize];
            for lane in each(mask) {
                row[lane] = made[lane];
            }
        }
    }

    /// Runs a load, and notes which lanes' values may lack another thread's write.
    fn load(&self, cx: &mut Cx<'_>, strong: Strong) -> Flow {
        let (addresses, pc) = (strong.addr.eval(cx), cx.pc());
        if cx.machine.options.checks.races {
            cx.warp.missed = Some(Box::new([None; LANES]));
        }
        let flow = self.inner.step(cx);
        let missed = cx.warp.missed.take();
        let made = std::array::from_fn(|lane| {
            missed.as_ref()?[lane].map(|lacks| Read {
                place: (strong.window, addresses[lane]),
                pc,
                lacks,
            })
        });
        self.put(cx, &made);
        flow
    }

    /// What decides something has been read as it is needed.
    fn settle(&self, cx: &mut Cx<'_>) {
        let made = self.made(cx);
        for lane in each(cx.mask) {
            let Some(read) = made[lane] else {
                continue;
            };
            for row in &mut cx.warp.updates {
                row[lane] = row[lane].filter(|one| (one.place, one.pc) != (read.place, read.pc));
            }
        }
    }

    /// Reports a store of what was computed from a load of the same place.
    fn check(&self, cx: &mut Cx<'_>, strong: Strong) {
        let made = self.made(cx);
        if each(cx.mask).all(|lane| made[lane].is_none()) {
            return;
        }
        let addresses = strong.addr.eval(cx);
        let lost = each(cx.mask).find_map(|lane| {
            let place = (strong.window, addresses[lane]);
            let read = made[lane].filter(|read| read.place == place)?;
            Some((lane, read))
        });
        if let Some((lane, read)) = lost {
            report(cx, lane, read);
        }
    }
}

#[cold]
fn report(cx: &mut Cx<'_>, lane: usize, read: Read) {
    let them = cx.whom(read.lacks.agent, read.lacks.lane);
    cx.report(rule::LOST_UPDATE, 1 << lane, |cx, mut told| {
        told.message = format!(
            "stores what it has computed from the value there, and nothing orders the write of {them} before the load of that value: one of the two updates may be lost"
        );
        told.other(cx.code.span(read.pc), "the load")
            .other(cx.code.span(read.lacks.pc), format!("{them} wrote it here"))
            .help("fence behind taking a lock and before giving it back (`fence.acq_rel`, `__threadfence()`), or update with one atomic operation (`atom.add`)")
    });
}
