//! Instructions that touch the registers of `wgmma` products in flight.
//!
//! In kernels with `wgmma` the registers of every instruction are compared with those of the
//! products in flight. Registers that ordinary instructions wrote since the last `wgmma.fence` are
//! remembered: a product must not use them. So are results of products that
//! they read: another product must not overwrite them.

use super::context::Cx;
use crate::code::Touched;
use crate::lanes::ALL;
use heist_ptx::rule;

/// Compares the registers of the instruction about to run with the products in flight. Rows are
/// counted from one in [`Touched`].
pub(crate) fn note(cx: &mut Cx<'_>) {
    let code = cx.code;
    let Some(touched) = code.touched.get(cx.fragment.pc as usize) else {
        return;
    };
    let base = cx.fragment.base;
    let row = |&number: &u16| u32::from(number) - 1 + base;
    let products = &mut cx.warp.products;
    // An assembler merges a copy with what it is of: it is as old as that.
    let is_old = |number: &u16| !products.written.has(row(number));
    if !(touched.moves && touched.reads.iter().all(is_old)) {
        touched
            .writes
            .iter()
            .for_each(|number| products.written.insert(row(number)));
    }
    for row in touched.reads.iter().map(row) {
        // A copy of what is in flight is the same register to an assembler.
        if products.results.has(row) && !(touched.moves && products.flying.has(row)) {
            products.looked_at.insert(row);
        }
    }
    for row in touched.writes.iter().map(row) {
        products.results.remove(row);
    }
    if !products.loading.is_empty() {
        note_loading(cx, touched);
    }
    let products = &cx.warp.products;
    if products.pending.is_empty() {
        return;
    }
    let read = touched
        .reads
        .iter()
        .map(row)
        .find(|&row| products.flying.has(row));
    let written = touched
        .writes
        .iter()
        .map(row)
        .find(|&row| products.flying.has(row) || products.read.has(row));
    if let (true, Some(from), [to]) = (touched.moves, read, &*touched.writes)
        && touched.reads.len() == 1
        && written.is_none()
        && cx.mask == cx.warp.live
    {
        cx.warp.products.copy(from, row(to));
    } else if let Some(row) = read {
        report_in_flight(
            cx,
            row,
            "reads a register that a wgmma in flight is going to write",
        );
    } else if let Some(row) = written {
        report_in_flight(cx, row, "writes a register that a wgmma in flight uses");
    }
}

/// Compares the registers of an instruction with loads of tensor memory in flight. A read waits for
/// the load implicitly, and the explicit wait may come later; a write does not wait.
fn note_loading(cx: &mut Cx<'_>, touched: &Touched) {
    let base = cx.fragment.base;
    let row = |&number: &u16| u32::from(number) - 1 + base;
    let products = &mut cx.warp.products;
    let flies = |number: &u16| products.loading.has(row(number));
    if touched.reads.iter().any(flies) {
        products.used.get_or_insert(cx.fragment.pc);
    }
    if !touched.writes.iter().any(flies) {
        return;
    }
    let pc = products.loader;
    cx.report(rule::TENSOR_LOAD_EARLY, cx.mask, |cx, mut told| {
        told.message =
            "writes a register that a tcgen05.ld may still be going to write".to_owned();
        told.other(cx.code.span(pc), "the load was started here")
            .help("`tcgen05.wait::ld.sync.aligned` before the registers of a load are used for something else")
    });
}

/// A warp's last lanes have exited: its loads of tensor memory were waited for.
fn loads_left(cx: &mut Cx<'_>) {
    let products = &mut cx.warp.products;
    let (used, pc) = (products.used.take(), products.loader);
    products.loaded();
    let Some(used) = used else {
        return;
    };
    let here = std::mem::replace(&mut cx.fragment.pc, used);
    cx.report(rule::TENSOR_LOAD_EARLY, ALL, |cx, mut told| {
        told.message =
            "reads a register of a tcgen05.ld that the warp never waits for".to_owned();
        told.other(cx.code.span(pc), "the load was started here")
            .help("`tcgen05.wait::ld.sync.aligned` between the load and the first use of its registers")
    });
    cx.fragment.pc = here;
}

#[cold]
pub(crate) fn report_in_flight(cx: &mut Cx<'_>, row: u32, what: &str) {
    let Some(pc) = cx.warp.products.user(row).map(|product| product.pc) else {
        return;
    };
    cx.report(rule::WGMMA_IN_FLIGHT, ALL, |cx, mut told| {
        told.message = what.to_owned();
        told.other(cx.code.span(pc), "the wgmma was started here")
            .help("commit the product (`wgmma.commit_group`) and wait for it (`wgmma.wait_group`) before its registers are touched")
    });
}

/// A warp's last lanes have exited: nothing of it may be in flight.
pub(crate) fn exited(cx: &mut Cx<'_>) {
    loads_left(cx);
    let all = std::mem::take(&mut cx.warp.products.pending);
    for product in all {
        let pc = product.pc;
        let (code, message, help) = if product.group.is_none() {
            (
                rule::WGMMA_UNCOMMITTED,
                "a warp ends with a wgmma that it never committed to a group",
                "end the products of a step with `wgmma.commit_group.sync.aligned`, and wait for the group",
            )
        } else {
            (
                rule::WGMMA_UNWAITED,
                "a warp ends with a wgmma in flight that it never waited for",
                "wait with `wgmma.wait_group.sync.aligned 0` before the warp ends",
            )
        };
        let here = cx.fragment.pc;
        cx.fragment.pc = pc;
        cx.report(code, ALL, |_, mut told| {
            told.message = message.to_owned();
            told.help(help)
        });
        cx.fragment.pc = here;
    }
}
