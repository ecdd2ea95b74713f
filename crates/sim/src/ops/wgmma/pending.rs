//! What a warp's `wgmma` products in flight are going to write, and who touches it.
//!
//! The registers of every instruction are held against the products in flight, in
//! kernels that have any. Registers that ordinary instructions wrote since the last
//! `wgmma.fence` are remembered, for a product may not use those.

use super::source::{self, Lines};
use crate::access::context::Cx;
use crate::code::{Flow, Slot, Wait};
use crate::lanes::{ALL, LANES, Row};
use heist_ptx::rule;

/// A product in flight.
#[derive(Debug)]
pub(crate) struct Product {
    pub(super) pc: u32,
    /// The group that it was committed to.
    pub(super) group: Option<u64>,
    /// The rows of the warp's registers that it writes, and those that it reads.
    pub(super) rows: Vec<u32>,
    pub(super) sources: Vec<u32>,
    pub(super) values: Vec<[u32; LANES]>,
    /// Its number among the warp's, and so among its warpgroup's.
    pub(super) id: u64,
    /// The cycle when it is done.
    pub(super) done: u64,
}

/// A set of rows of registers.
#[derive(Debug, Default)]
struct Rows(Vec<u64>);

impl Rows {
    fn insert(&mut self, row: u32) {
        let word = row as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (row % 64);
    }

    fn has(&self, row: u32) -> bool {
        self.0
            .get(row as usize / 64)
            .is_some_and(|word| word >> (row % 64) & 1 != 0)
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// A warp's products.
#[derive(Debug, Default)]
pub(crate) struct Products {
    pending: Vec<Product>,
    /// Groups committed so far.
    groups: u64,
    /// Whether there has been a `wgmma.fence`.
    fenced: bool,
    /// Rows written by ordinary instructions since the last one.
    written: Rows,
    /// Rows that products in flight write, and those that they read.
    flying: Rows,
    read: Rows,
    /// When the tensor cores are free again.
    busy_until: u64,
    made: u64,
    /// How often the warp has looked whether its warpgroup is there.
    looks: u32,
}

/// How many products each warp of a block has issued. A product is one operation of
/// the whole warpgroup: it is done when all four warps have issued it, and then all
/// of it is done, so that one thread can speak for the group.
#[derive(Debug, Default)]
pub(crate) struct Issued(Vec<u64>);

impl Issued {
    fn count(&mut self, warp: u32, products: u64) {
        let warp = warp as usize;
        if self.0.len() <= warp {
            self.0.resize(warp + 1, 0);
        }
        self.0[warp] = products;
    }

    /// A warp of the group that has issued fewer than `products`.
    fn missing(&self, warp: u32, products: u64) -> Option<u32> {
        let first = warp / 4 * 4;
        (first..first + 4).find(|&one| self.0.get(one as usize).copied().unwrap_or(0) < products)
    }
}

/// Looks in vain before the rest of a warpgroup is taken not to come: at first one
/// every few cycles, then each after twice the time of the last.
const PATIENCE: u32 = 256 + 24;

impl Products {
    pub(super) fn fence(&mut self) {
        self.fenced = true;
        self.written.clear();
    }

    pub(super) fn commit(&mut self) {
        self.groups += 1;
        for product in &mut self.pending {
            product.group.get_or_insert(self.groups);
        }
    }

    /// Notes again which rows are in flight.
    fn refresh(&mut self) {
        self.flying.clear();
        self.read.clear();
        for product in &self.pending {
            product.rows.iter().for_each(|&row| self.flying.insert(row));
            product
                .sources
                .iter()
                .for_each(|&row| self.read.insert(row));
        }
    }

    /// The product in flight that uses a row.
    fn user(&self, row: u32) -> Option<&Product> {
        self.pending
            .iter()
            .rev()
            .find(|product| product.rows.contains(&row) || product.sources.contains(&row))
    }
}

/// The rows that an instruction reads and writes, in the window of its function.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) reads: Box<[u16]>,
    pub(crate) writes: Box<[u16]>,
    /// It only moves values. Compilers put moves behind a `wgmma.fence` that their
    /// source has in front of it, and the assembler puts them back.
    pub(crate) moves: bool,
}

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
    if let Some(row) = read {
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
fn report_in_flight(cx: &mut Cx<'_>, row: u32, what: &str) {
    let Some(pc) = cx.warp.products.user(row).map(|product| product.pc) else {
        return;
    };
    cx.report(rule::WGMMA_IN_FLIGHT, ALL, |cx, mut told| {
        told.message = what.to_owned();
        told.other(cx.code.span(pc), "the wgmma was started here")
            .help("commit the product (`wgmma.commit_group`) and wait for it (`wgmma.wait_group`) before its registers are touched")
    });
}

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
    check_fence(cx, rows);
}

/// Reports registers written since the last fence.
fn check_fence(cx: &mut Cx<'_>, rows: &[u32]) {
    let products = &cx.warp.products;
    let fenced = products.fenced;
    if fenced && !rows.iter().any(|&row| products.written.has(row)) {
        return;
    }
    cx.report(rule::WGMMA_FENCE, ALL, |_, mut told| {
        told.message = if fenced {
            "registers of this product were written since the last `wgmma.fence`".to_owned()
        } else {
            "the first wgmma of the warp comes without `wgmma.fence` before it".to_owned()
        };
        told.help("put `wgmma.fence.sync.aligned` between what writes the registers and the wgmma")
    });
}

/// The accumulators before a product: what the last product in flight makes of
/// them, or what the registers hold.
pub(super) fn accumulators(cx: &mut Cx<'_>, rows: &[u32], slots: &[Slot]) -> Vec<[u32; LANES]> {
    check_fence(cx, rows);
    let products = &cx.warp.products;
    let mut other = None;
    for product in products.pending.iter().rev() {
        if product.rows == rows {
            return product.values.clone();
        }
        // Only products of the same shape follow each other unasked.
        other = rows.iter().copied().find(|row| product.rows.contains(row));
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
    source::fly(cx, &product, lines);
    let (number, made) = (cx.warp.number, product.id);
    cx.block().issued.count(number, made);
    let products = &mut cx.warp.products;
    products.pending.push(product);
    products.refresh();
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
        for (&row, values) in product.rows.iter().zip(&product.values) {
            if let Some(register) = cx.warp.regs.get_mut(row as usize) {
                *register = Row(*values);
            }
        }
    }
    source::land(cx, newest);
    Flow::Next
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
        source::land(cx, product.id);
    }
}
