//! Reads of uninitialised registers, and of what a shuffle takes from a lane that takes no part.
//!
//! A data-flow analysis finds the reads that some path reaches without a write. Most kernels have
//! none. Where there is one, the path may be infeasible, or the value unused: compilers compute on
//! elements that were not loaded, and do not store the results. So these registers, and values
//! computed from them, are followed lane by lane at run time, and one is reported when it has an
//! effect: in a store, an address or a branch. A shuffle gives an undefined value as well where its mask leaves
//! the source out; reductions over a part of a warp make many, and use none.

use super::body::{Body, around};
use crate::access::context::Cx;
use crate::code::Flow;
use crate::decode::trail::{Role, Trail};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, Mask, each};
use crate::state::follow::{Followed, Origin};
use heist_ptx::analysis::{Touched, live_at_entry};
use heist_ptx::{Name, rule};
use rustc_hash::FxHashMap;

/// Follows the registers that may be read uninitialised, and the values computed from them; returns
/// their names.
pub(super) fn wrap(body: &mut Body<'_>) -> Vec<Name> {
    let mut numbers: FxHashMap<u32, u32> = FxHashMap::default();
    let mut rows = Vec::new();
    let mut follow = |row: u32, numbers: &mut FxHashMap<u32, u32>| {
        let next = numbers.len() as u32;
        numbers.entry(row).or_insert_with(|| {
            rows.push(row);
            next
        });
    };
    for row in live_at_entry(body.graph, |at| touched(&body.trails[at])) {
        follow(row, &mut numbers);
    }
    for trail in body.trails.iter().filter(|trail| trail.shuffles) {
        let made = trail.writes.iter();
        made.for_each(|&row| follow(row, &mut numbers));
    }
    if numbers.is_empty() {
        return Vec::new();
    }
    loop {
        let known = numbers.len();
        for trail in body.trails.iter().filter(|trail| trail.pure) {
            if trail.reads.iter().any(|row| numbers.contains_key(row)) {
                trail
                    .writes
                    .iter()
                    .for_each(|&row| follow(row, &mut numbers));
            }
        }
        if numbers.len() == known {
            break;
        }
    }
    for (op, trail) in body.ops.iter_mut().zip(body.trails) {
        let followed = |rows: &[u32]| -> Vec<u32> {
            rows.iter()
                .filter_map(|row| numbers.get(row).copied())
                .collect()
        };
        let (reads, writes) = (followed(&trail.reads), followed(&trail.writes));
        let packs = match trail.role {
            Role::Packs => true,
            Role::Moves => trail.reads.len() > 1,
            _ => false,
        };
        if trail.shuffles {
            let value = trail.reads.first();
            let value = value.and_then(|row| numbers.get(row).copied());
            around(op, |inner| {
                Box::new(Shuffle {
                    inner,
                    value,
                    writes,
                })
            });
        } else if !reads.is_empty() || !writes.is_empty() {
            around(op, |inner| {
                Box::new(Follow {
                    inner,
                    pure: trail.pure,
                    packs: packs.then_some(trail.reads.len() == reads.len()),
                    reads,
                    writes,
                })
            });
        }
    }
    let names: FxHashMap<u32, &Name> = body.names.iter().map(|(row, name)| (*row, name)).collect();
    rows.iter()
        .map(|row| {
            names
                .get(row)
                .map_or_else(Name::default, |&name| name.clone())
        })
        .collect()
}

/// What an operation does with rows.
fn touched(trail: &Trail) -> Touched<'_> {
    Touched {
        reads: &trail.reads,
        sets: if trail.guarded { &[] } else { &trail.writes },
    }
}

/// An operation that touches a followed register.
struct Follow {
    inner: Box<dyn Instr>,
    pure: bool,
    /// Set for an operation that packs several registers into one, of which only a part may be
    /// used: whether all parts are followed, so that all may be uninitialised.
    packs: Option<bool>,
    reads: Vec<u32>,
    writes: Vec<u32>,
}

impl Instr for Follow {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let mask = cx.mask;
        let (mut missing, mut origin) = (0, None);
        for &number in &self.reads {
            let read = cx.warp.unset[number as usize];
            if mask & !read.set != 0 {
                missing |= mask & !read.set;
                origin = origin.or(read.origin).or(Some(Origin {
                    pc: cx.pc(),
                    register: Some(number),
                }));
            }
        }
        if self.packs == Some(false) {
            missing = 0;
        } else if self.packs.is_some() {
            for &number in &self.reads {
                missing &= !cx.warp.unset[number as usize].set;
            }
        }
        if let (false, Some(origin)) = (self.pure, origin) {
            if cx.machine.options.checks.unwritten || origin.register.is_none() {
                report(cx, missing, origin);
            }
            // Once is enough for what comes of it.
            for &number in &self.reads {
                cx.warp.unset[number as usize].set |= missing;
            }
            missing = 0;
        }
        write(cx, &self.writes, (mask, missing), origin);
        self.inner.step(cx)
    }
}

/// A shuffle whose mask may leave lanes out.
struct Shuffle {
    inner: Box<dyn Instr>,
    /// The followed register whose values it passes on.
    value: Option<u32>,
    writes: Vec<u32>,
}

impl Instr for Shuffle {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let pc = cx.pc();
        let passed = self.value.map(|number| cx.warp.unset[number as usize]);
        cx.warp.shuffled = Some([None; LANES]);
        let flow = self.inner.step(cx);
        let Some(sources) = cx.warp.shuffled.take() else {
            return flow;
        };
        if !matches!(flow, Flow::Next) {
            return flow;
        }
        let (mut missing, mut origin) = (0, None);
        for lane in each(cx.mask) {
            let unset = |one: &Followed| sources[lane].is_some_and(|from| one.set >> from & 1 == 0);
            if sources[lane].is_none() {
                missing |= 1 << lane;
                origin = Some(Origin { pc, register: None });
            } else if let Some(passed) = passed.filter(unset) {
                missing |= 1 << lane;
                origin = origin.or(passed.origin);
            }
        }
        write(cx, &self.writes, (cx.mask, missing), origin);
        flow
    }
}

/// Notes which of the lanes that write followed registers have no value for them.
fn write(cx: &mut Cx<'_>, rows: &[u32], (mask, missing): (Mask, Mask), origin: Option<Origin>) {
    for &number in rows {
        let written = &mut cx.warp.unset[number as usize];
        written.set = written.set & !mask | mask & !missing;
        written.origin = origin;
    }
}

/// Reports the effect of a value that is not defined, where it was read first.
#[cold]
fn report(cx: &mut Cx<'_>, lanes: Mask, Origin { pc, register }: Origin) {
    let here = std::mem::replace(&mut cx.fragment.pc, pc);
    let Some(number) = register else {
        cx.report(rule::INACTIVE_LANE, lanes, |cx, mut told| {
            told.message =
                "takes a value from a lane that takes no part: the value is not defined".to_owned();
            told.other(cx.code.span(here), "what comes of it has an effect here")
                .help("shuffle from lanes that are in the mask and run the instruction")
        });
        cx.fragment.pc = here;
        return;
    };
    cx.report(rule::REGISTER_UNWRITTEN, lanes, |cx, mut told| {
        told.message = match cx.code.watched.unset.get(number as usize) {
            Some(name) if !name.is_empty() => {
                format!("uses register `{name}`, which nothing has set")
            }
            _ => "uses a register that nothing has set".to_owned(),
        };
        if here != pc {
            told = told.other(cx.code.span(here), "what comes of it has an effect here");
        }
        told.help("set it on every path that leads here; a register has no first value")
    });
    cx.fragment.pc = here;
}
