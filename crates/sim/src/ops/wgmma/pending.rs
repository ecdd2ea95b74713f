//! The life of a `wgmma` product: started, committed, waited for.

use super::source::{self, Lines};
use crate::access::context::Cx;
use crate::access::products::report_in_flight;
use crate::code::{Flow, Slot, Wait};
use crate::lanes::{ALL, LANES, Row};
use crate::race::clock::{Agent, Clock, Known};
use crate::state::products::Product;
use heist_ptx::rule;

/// Failed attempts after which the rest of a warpgroup counts as missing: at first one every few
/// cycles, then with exponential backoff.
const PATIENCE: u32 = 256 + 24;

/// Checks the registers of a product's first factor.
pub(super) fn check_sources(cx: &mut Cx<'_>, rows: &[u32]) {
    let products = &cx.warp.products;
    if let Some(&row) = rows.iter().find(|&&row| products.flying.has(row)) {
        report_in_flight(
            cx,
            row,
            "multiplies a register that a wgmma in flight is going to write",
        );
    }
    check_fence(cx, rows, false);
}

/// Reports registers written since the last fence, and where they are overwritten those that were read.
fn check_fence(cx: &mut Cx<'_>, rows: &[u32], overwrites: bool) {
    let products = &cx.warp.products;
    let fenced = products.fenced;
    let written = rows.iter().any(|&row| products.written.has(row));
    let read = || overwrites && rows.iter().any(|&row| products.looked_at.has(row));
    if fenced && !written && !read() {
        return;
    }
    cx.report(rule::WGMMA_FENCE, ALL, |_, mut told| {
        told.message = match (fenced, written) {
            (true, true) => "registers of this product were written since the last `wgmma.fence`",
            (true, false) => {
                "this product overwrites registers that were read since the last `wgmma.fence`"
            }
            (false, _) => "the first wgmma of the warp comes without `wgmma.fence` before it",
        }
        .to_owned();
        told.help("put `wgmma.fence.sync.aligned` between what uses the registers and the wgmma")
    });
}

/// The accumulators before a product: what the last product in flight makes of
/// them, or what the registers hold.
pub(super) fn accumulators(cx: &mut Cx<'_>, rows: &[u32], slots: &[Slot]) -> Vec<[u32; LANES]> {
    check_fence(cx, rows, true);
    let products = &cx.warp.products;
    let mut other = None;
    for product in products.pending.iter().rev() {
        if product.makes(rows) {
            return product.values.clone();
        }
        // Only products of the same shape may follow each other without a wait.
        other = rows.iter().copied().find(|&row| product.uses(row));
        if other.is_some() {
            break;
        }
    }
    if let Some(row) = other {
        report_in_flight(
            cx,
            row,
            "accumulates into some of the registers of a wgmma in flight, in another shape",
        );
    }
    slots.iter().map(|&slot| *cx.row(slot)).collect()
}

/// Puts a product into flight.
pub(super) fn start(cx: &mut Cx<'_>, mut product: Product, lines: &Lines, busy: u64) {
    let now = cx.warp.cycle;
    let products = &mut cx.warp.products;
    products.made += 1;
    products.busy_until = products.busy_until.max(now) + busy;
    product.done = products.busy_until + 32;
    product.id = products.made;
    let group = products.groups as u32 + 1;
    let agent = group_agent(cx);
    source::fly(cx, cx.warp.rank, product.pc, lines, (agent, group));
    let (number, made) = (cx.warp.number, product.id);
    cx.block().issued.count(number, made);
    let products = &mut cx.warp.products;
    products.pending.push(product);
    products.refresh();
}

/// The race detector's agent of the warpgroup's products.
fn group_agent(cx: &mut Cx<'_>) -> Agent {
    let warp = cx.warp.number;
    let block = cx.block();
    let (mbarriers, number) = (&mut block.mbarriers, block.number);
    block.issued.agent(warp, || mbarriers.new_agent(number))
}

/// Waits until no more than `most` groups are in flight.
pub(super) fn wait(cx: &mut Cx<'_>, most: u64) -> Flow {
    let (number, now) = (cx.warp.number, cx.warp.cycle);
    let products = &cx.warp.products;
    let last = products.groups.saturating_sub(most);
    let is_done = |product: &Product| product.group.is_some_and(|group| group <= last);
    let done = products.pending.iter().filter(|product| is_done(product));
    let Some(newest) = done.map(|product| product.id).max() else {
        return Flow::Next;
    };
    if let Some(missing) = cx.block().issued.missing(number, newest) {
        let looks = cx.warp.products.looks;
        if looks < PATIENCE {
            cx.warp.products.looks += 1;
            let time = now + (32 << looks.saturating_sub(256));
            return cx.retry(Wait::Until { time });
        }
        cx.report(rule::TENSOR_DIVERGENT, ALL, |_, mut told| {
            told.message = format!(
                "waits for a wgmma that warp {missing} of its warpgroup never ran: it does not complete"
            );
            told.help("all four warps of a warpgroup run the same wgmma instructions")
        });
    }
    let products = &mut cx.warp.products;
    products.looks = 0;
    let all = std::mem::take(&mut products.pending);
    let (done, left): (Vec<_>, Vec<_>) = all.into_iter().partition(is_done);
    products.pending = left;
    products.refresh();
    for product in done {
        cx.warp.advance(product.done);
        let results = &mut cx.warp.products.results;
        product.rows.iter().for_each(|&row| results.insert(row));
        let copies = product.copies.iter().map(|&(row, result)| (row, result));
        let own = product.rows.iter().copied().zip(0..);
        for (row, values) in own
            .chain(copies)
            .filter_map(|(row, result)| Some((row, product.values.get(result)?)))
        {
            if let Some(register) = cx.warp.regs.get_mut(row as usize) {
                *register = Row(*values);
            }
        }
    }
    let mut over = Clock::default();
    over.learn(group_agent(cx), Known::all(last as u32 + 1));
    cx.warp.clock.acquire(&over, cx.mask, cx.warp.live);
    Flow::Next
}
