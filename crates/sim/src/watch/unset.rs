//! Reads of uninitialised registers, of what a shuffle takes from a lane that takes no part, and of tensor
//! memory that nothing has written.
//!
//! A data-flow analysis finds the reads that some path reaches without a write. Most kernels have
//! none. Where there is one, the path may be infeasible, or the value unused: compilers compute on
//! elements that were not loaded, and do not store the results. So these registers, and values
//! computed from them, are followed lane by lane at run time, and one is reported when it has an
//! effect: in a store, an address or a branch. A shuffle gives an undefined value as well where its mask leaves
//! the source out; reductions over a part of a warp make many, and use none. So does a load of tensor memory
//! that nothing has written: a pipelined loop that makes no turn may load its first tile and drop it.

use super::body::{Body, around};
use crate::access::context::Cx;
use crate::access::doubt;
use crate::code::{Flow, PredSrc, Selects};
use crate::decode::trail::{Role, Shuffles, Trail};
use crate::engine::executable::Instr;
use crate::lanes::{LANES, Mask, each};
use crate::state::follow::{Followed, Lacks, Origin};
use heist_ptx::Name;
use heist_ptx::analysis::{Touched, live_at_entry};
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
    let undefined =
        |trail: &&Trail| trail.loads_tensor || trail.shuffles == Some(Shuffles::Partial);
    for trail in body.trails.iter().filter(undefined) {
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
        let own = trail.reads.iter().copied();
        let rows: Vec<u32> = own.filter(|row| numbers.contains_key(row)).collect();
        if reads.is_empty() && writes.is_empty() {
            continue;
        }
        let number = |row: &u32| numbers.get(row).copied();
        let packs = match trail.role {
            Role::Packs => true,
            Role::Moves => trail.reads.len() > 1,
            _ => false,
        };
        if trail.loads_tensor {
            around(op, |inner| Box::new(TensorLoad { inner, writes }));
        } else if let Some(Selects { from, by }) = trail.selects {
            let from = from.map(|row| row.as_ref().and_then(number));
            let select = |inner| Select {
                inner,
                from,
                by,
                writes,
            };
            around(op, |inner| Box::new(select(inner)));
        } else if trail.shuffles.is_some() {
            let value = trail.reads.first().and_then(number);
            around(op, |inner| {
                Box::new(Shuffle {
                    inner,
                    value,
                    writes,
                })
            });
        } else {
            around(op, |inner| {
                Box::new(Follow {
                    inner,
                    pure: trail.pure,
                    packs: packs.then_some(trail.reads.len() == reads.len()),
                    reads,
                    rows,
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
    /// The rows of what it reads.
    rows: Vec<u32>,
    writes: Vec<u32>,
}

impl Instr for Follow {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let mask = cx.mask;
        let (mut missing, mut origin) = (0, None);
        for &number in &self.reads {
            let (lanes, whence) = undefined(cx, number, mask);
            missing |= lanes;
            origin = origin.or(whence);
        }
        if self.packs == Some(false) {
            missing = 0;
        } else if self.packs.is_some() {
            for &number in &self.reads {
                missing &= !cx.warp.unset[number as usize].set;
            }
        }
        if self.pure || origin.is_none() {
            write(cx, &self.writes, (mask, missing), origin);
            return self.inner.step(cx);
        }
        write(cx, &self.writes, (mask, 0), None);
        self.hand_on(cx)
    }
}

impl Follow {
    /// Runs an operation that does more than compute registers with values that are not defined: whether they have an
    /// effect is asked where predicates and memory are followed, too.
    fn hand_on(&self, cx: &mut Cx<'_>) -> Flow {
        let (mask, before) = (cx.mask, cx.warp.doubts.is_some());
        for (&number, &row) in self.reads.iter().zip(&self.rows) {
            let (missing, origin) = undefined(cx, number, mask);
            // Once is enough for what comes of it.
            cx.warp.unset[number as usize].set |= missing;
            if cx.machine.options.checks.unwritten
                || origin.is_some_and(|origin| origin.lacks == Lacks::Lane)
            {
                let doubts = cx.warp.doubts.get_or_insert_default();
                doubts.row(row).add(missing, origin);
            }
        }
        let uses = doubt::uses(cx);
        doubt::before(cx);
        let flow = self.inner.step(cx);
        if let (false, Some(uses), Flow::Next) = (before, uses, flow) {
            doubt::after(cx, uses, mask);
        }
        flow
    }
}

/// The lanes that lack a value of a followed register, and why.
fn undefined(cx: &Cx<'_>, number: u32, mask: Mask) -> (Mask, Option<Origin>) {
    let read = cx.warp.unset[number as usize];
    let missing = mask & !read.set;
    let own = Origin {
        pc: cx.pc(),
        lacks: Lacks::Register(number),
    };
    (missing, (missing != 0).then(|| read.origin.unwrap_or(own)))
}

/// A choice of one of two values: what is not chosen has no effect.
struct Select {
    inner: Box<dyn Instr>,
    from: [Option<u32>; 2],
    by: Result<PredSrc, Mask>,
    writes: Vec<u32>,
}

impl Instr for Select {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let mask = cx.mask;
        let chosen = match self.by {
            Ok(source) => cx.pred(source),
            Err(constant) => constant,
        };
        let (mut missing, mut origin) = (0, None);
        for (number, lanes) in self.from.into_iter().zip([chosen, !chosen]) {
            let Some(number) = number else { continue };
            let (lanes, whence) = undefined(cx, number, mask & lanes);
            missing |= lanes;
            origin = origin.or(whence);
        }
        write(cx, &self.writes, (mask, missing), origin);
        self.inner.step(cx)
    }
}

/// A load of tensor memory, some of which may be unwritten.
struct TensorLoad {
    inner: Box<dyn Instr>,
    /// In the order of its registers.
    writes: Vec<u32>,
}

impl Instr for TensorLoad {
    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let pc = cx.pc();
        cx.warp.unwritten = Some((Vec::new(), u32::MAX));
        let flow = self.inner.step(cx);
        let Some((lanes, column)) = cx.warp.unwritten.take() else {
            return flow;
        };
        if matches!(flow, Flow::Next) {
            let origin = Origin {
                pc,
                lacks: Lacks::Column(column),
            };
            for (at, &number) in self.writes.iter().enumerate() {
                let missing = lanes.get(at).copied().unwrap_or(0);
                write(cx, &[number], (cx.mask, missing), Some(origin));
            }
        }
        flow
    }
}

/// A shuffle whose mask may leave lanes out, or that passes on a value that is followed.
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
                origin = Some(Origin {
                    pc,
                    lacks: Lacks::Lane,
                });
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
