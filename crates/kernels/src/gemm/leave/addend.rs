//! C on its way to the sums, in the staging buffers that the results leave from.
//!
//! Threads that read C from global memory, each the pairs that it has sums of, wait for every few of them: they have registers
//! for no more beside the sums. Here a warp copies whole panels of C into its buffers before it needs them, those of the first panels before the
//! products; it reads them as it stores results, and each result takes the place of its C.

use super::{MOST_BUFFERS, Staged, WARP_ROWS};
use crate::gemm::epilogue::To;
use crate::gemm::left::left;
use crate::gemm::stored::Stored;
use heist_builder::{Val, WarpCopy, f16};
use std::collections::VecDeque;

/// C of the first panels of 64 rows of sums, as many as there are buffers.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'k>([Option<WarpCopy<'k, f16>>; MOST_BUFFERS as usize]);

/// How C comes to the sums.
#[derive(Clone, Copy)]
pub(crate) enum Addition<'k> {
    /// Threads read it, or there is none.
    Read,
    /// Through the staging buffers: what of it was asked for before the products.
    Copied(Option<Asked<'k>>),
}

impl<'k> Staged<'k> {
    /// Asks for C of the first panels.
    pub(crate) fn ask<O: Stored>(&self, to: &To<'k, O>) -> Asked<'k> {
        let count = self.shape.buffers.min(self.panels());
        self.free_buffer(0);
        let copy = |panel| (panel < count).then(|| self.copy_addend(panel, to));
        let mut panels = 0..MOST_BUFFERS;
        Asked(std::array::from_fn(|_| panels.next().and_then(copy)))
    }

    /// Panels of 64 rows of sums, one that is not whole too.
    fn panels(&self) -> u32 {
        match self.turned {
            false => self.cols.div_ceil(self.shape.width),
            true => self.cols / self.shape.rows,
        }
    }

    /// How many of the panels from one on, up to another and without it, the copy engine stores.
    fn sent(&self, panels: std::ops::Range<u32>) -> u32 {
        let whole = match self.turned {
            false => self.cols / self.shape.width,
            true => self.panels(),
        };
        panels.end.min(whole).saturating_sub(panels.start)
    }

    /// Copies C of a panel into its buffer, 16 bytes a thread: what lies outside of the result is zero.
    fn copy_addend<O: Stored>(&self, panel: u32, to: &To<'k, O>) -> WarpCopy<'k, f16> {
        let k = self.k;
        let own = (k.warp_uniform() & 3) * WARP_ROWS;
        let (row0, rows, col0, wide) = match self.turned {
            false => {
                let first = panel * self.shape.width;
                let wide = self.shape.width.min(self.cols - first);
                (own, WARP_ROWS, k.c(first), wide)
            }
            true => (
                k.c(panel * self.shape.rows),
                self.shape.rows,
                own,
                WARP_ROWS,
            ),
        };
        let across = wide / 8;
        let chunks = rows * across;
        k.copy_in_warp(self.buffer(panel), |tile| {
            for turn in 0..chunks.div_ceil(32) {
                let number = k.lane() + turn * 32;
                let (row, chunk) = (number / across, number % across);
                let (below, col) = (row0 + row, col0 + chunk * 8);
                let copy = || {
                    let from = to.c.first().at(below.mul_add(to.pitch, col)).cast::<f16>();
                    match inside::<O>([below, col], to) {
                        None => tile.copy_chunk(row, chunk, from),
                        Some(bytes) => tile.copy_chunk_part(row, chunk, from, bytes),
                    }
                };
                match chunks >= (turn + 1) * 32 {
                    true => copy(),
                    false => k.if_(row.lt(rows), copy),
                }
            }
        })
    }
}

/// How many of the 16 bytes from there on are inside of the result, where these may not be all.
fn inside<'k, O: Stored>([row, col]: [Val<'k, u32>; 2], to: &To<'k, O>) -> Option<Val<'k, u32>> {
    let k = row.kernel();
    let across = to.cols.map(|cols| (left(cols, col) * O::BYTES).min(16));
    match to.rows {
        None => across,
        Some(rows) => Some(row.lt(rows).select(across.unwrap_or(k.c(16)), 0u32)),
    }
}

/// The panels of C that belong to 64 rows of sums, one after the other.
pub(super) struct Addend<'k, O> {
    staged: Staged<'k>,
    to: To<'k, O>,
    /// Those on their way, the oldest first.
    flying: VecDeque<WarpCopy<'k, f16>>,
    /// How many were asked for.
    count: u32,
}

impl<'k, O: Stored> Addend<'k, O> {
    /// From the first on, if C is copied; what was asked for is on its way.
    pub(super) fn new(staged: Staged<'k>, c: Addition<'k>, to: To<'k, O>) -> Option<Addend<'k, O>> {
        let Addition::Copied(asked) = c else {
            return None;
        };
        let asked = asked.unwrap_or_else(|| staged.ask(&to));
        let flying: VecDeque<_> = asked.0.into_iter().flatten().collect();
        Some(Addend {
            staged,
            to,
            count: flying.len() as u32,
            flying,
        })
    }

    /// Waits until the next panel's buffer holds its C.
    pub(super) fn arrive(&mut self) {
        if let Some(copy) = self.flying.pop_front() {
            copy.wait(self.flying.len() as u32);
        }
    }

    /// Behind the results of `panel`: asks for one more, where its buffer is free soon. That of the panel before is, while the one of `panel` is still read.
    pub(super) fn follow(&mut self, panel: u32) {
        let (next, buffers) = (self.count, self.staged.shape.buffers);
        if next == self.staged.panels() || buffers > 1 && next >= panel + buffers {
            return;
        }
        let before = next - buffers;
        self.staged
            .free_buffer(self.staged.sent(before + 1..panel + 1));
        self.flying
            .push_back(self.staged.copy_addend(next, &self.to));
        self.count += 1;
    }
}
