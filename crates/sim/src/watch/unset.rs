//! Reads of uninitialised registers.
//!
//! A data-flow analysis finds the registers that some path reads without a write before. Most kernels have
//! none. Where there is one, the path may be infeasible, or the value unused: compilers compute on
//! elements that were not loaded, and do not store the results. So the instructions that touch these registers
//! note which lanes have set them, and what is read before is followed until it has an effect, see
//! [`crate::access::doubt`].

use super::body::{Body, around};
use crate::access::context::Cx;
use crate::access::doubt;
use crate::code::Flow;
use crate::decode::trail::Trail;
use crate::engine::executable::Instr;
use heist_ptx::Name;
use heist_ptx::analysis::{Touched, live_at_entry};

/// Watches the registers that may be read uninitialised; returns their rows and names.
pub(super) fn wrap(body: &mut Body<'_>) -> Vec<(u32, Name)> {
    let rows = live_at_entry(body.graph, |at| touched(&body.trails[at]));
    for (op, trail) in body.ops.iter_mut().zip(body.trails) {
        let watched = |touched: &[u32]| -> Vec<(usize, u32)> {
            let number = |row: &u32| Some((rows.binary_search(row).ok()?, *row));
            touched.iter().filter_map(number).collect()
        };
        let (reads, writes) = (watched(&trail.reads), watched(&trail.writes));
        if !reads.is_empty() || !writes.is_empty() {
            around(op, |inner| {
                Box::new(Watch {
                    inner,
                    reads,
                    writes,
                })
            });
        }
    }
    let named = |row: u32| {
        let name = body.names.iter().find(|(named, _)| *named == row);
        (
            row,
            name.map_or_else(Name::default, |(_, name)| name.clone()),
        )
    };
    rows.into_iter().map(named).collect()
}

/// What an operation does with rows.
fn touched(trail: &Trail) -> Touched<'_> {
    Touched {
        reads: &trail.reads,
        sets: if trail.guarded { &[] } else { &trail.writes },
    }
}

/// An operation that touches a watched register.
struct Watch {
    inner: Box<dyn Instr>,
    /// Numbers of watched registers, and their rows.
    reads: Vec<(usize, u32)>,
    writes: Vec<(usize, u32)>,
}

impl Instr for Watch {
    fn inner(&self) -> Option<&dyn Instr> {
        Some(&*self.inner)
    }

    fn step(&self, cx: &mut Cx<'_>) -> Flow {
        let mask = cx.mask;
        let mut missing = 0;
        for &(number, row) in &self.reads {
            let set = &mut cx.warp.set[number];
            let lanes = mask & !*set;
            // Once is enough: from here on it is followed.
            *set |= lanes;
            if lanes != 0 && cx.machine.options.checks.unwritten {
                doubt::begin(cx, row, lanes, None);
                missing |= lanes;
            }
        }
        for &(number, _) in &self.writes {
            cx.warp.set[number] |= mask;
        }
        if missing == 0 {
            return self.inner.step(cx);
        }
        let uses = doubt::uses(cx);
        doubt::before(cx, &*self.inner);
        let flow = self.inner.step(cx);
        if let (Some(uses), Flow::Next) = (uses, flow) {
            doubt::after(cx, uses, mask);
        }
        flow
    }
}
