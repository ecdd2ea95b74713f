//! Instructions that touch the registers of `wgmma` products in flight.
//!
//! The registers of every instruction are held against the products in flight, in
//! kernels that have any. Registers that ordinary instructions wrote since the last
//! `wgmma.fence` are remembered, for a product may not use those.

use super::context::Cx;
use crate::lanes::ALL;
use heist_ptx::rule;

/// Holds the registers of the instruction about to run against the products in
/// flight. Rows are counted from one in [`Touched`].
pub(crate) fn note(cx: &mut Cx<'_>) {
    let code = cx.code;
    let Some(touched) = code.touched.get(cx.fragment.pc as usize) else {
        return;
    };
    let base = cx.fragment.base;
    let row = |&number: &u16| u32::from(number) - 1 + base;
    let products = &mut cx.warp.products;
    if !touched.moves {
        touched
            .writes
            .iter()
            .for_each(|number| products.written.insert(row(number)));
    }
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
