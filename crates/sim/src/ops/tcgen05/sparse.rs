//! Sparse products (`.sp`): the metadata in tensor memory that say which elements of A are stored.

use super::issue::TensorAddress;
use super::product::Product;
use crate::access::context::Cx;
use crate::access::tensor_memory::check;
use crate::state::tensor_memory::Span;
use heist_arith::tensor::tcgen05::Form;
use heist_arith::tensor::wgmma::Numbers;
use heist_ptx::rule;

/// Rows a block whose metadata have a known place.
const ROWS: usize = 128;

impl Product {
    /// A with its zeros, from what is stored of it; none where the metadata can't be read, or
    /// mean nothing.
    pub(super) fn expand(
        &mut self,
        cx: &mut Cx<'_>,
        at: TensorAddress,
        stored: &Numbers,
    ) -> Option<Numbers> {
        let Form {
            m, kind, selector, ..
        } = self.form;
        if m / self.ranks.len() != ROWS {
            let why = format!(
                "a sparse product with {} rows a block is not simulated",
                m / self.ranks.len()
            );
            refuse(
                cx,
                why,
                "where its metadata lie is known for 128 rows a block alone: M = 128, or M = 256 of a pair",
            );
            return None;
        }
        if selector > 1 {
            let why = format!("a sparsity selector of {selector} is not simulated");
            refuse(
                cx,
                why,
                "which column it means is known of 0 and 1 alone: the first column of the metadata, and the one beside it",
            );
            return None;
        }
        if !self.check_lanes(cx, at, "the metadata") {
            return None;
        }
        let span = Span {
            halves: 0xff,
            start: at.column + selector,
            width: kind.metadata_columns(),
        };
        for &rank in &self.ranks {
            if !check(cx, rank, span, self.doing) {
                return None;
            }
        }
        self.reads.push(span);
        let ranks = &self.ranks;
        let expanded = self.form.expand(stored, |row, group| {
            let (lane, column, bit) = kind.metadata_place(row % ROWS, group);
            let word = cx.tensor(ranks[row / ROWS]).word(lane, span.start + column);
            (word >> bit & 0xf) as u8
        });
        match expanded {
            Ok(all) => Some(all),
            Err(bad) => {
                cx.report(rule::TENSOR_DESCRIPTOR, cx.mask, |_, mut told| {
                    told.message = format!(
                        "the sparsity metadata of row {} from element {} on are {:#06b}, which mean nothing",
                        bad.row, bad.k, bad.bits
                    );
                    told.help("four bits name the two places of a group that are stored: 0100, 1000, 1100, 1001, 1101, 0110 or 1110; of tf32 0100 or 1110")
                });
                None
            }
        }
    }
}

/// Reports a form that the simulator does not run.
fn refuse(cx: &mut Cx<'_>, why: String, help: &'static str) {
    cx.report(rule::UNSUPPORTED, cx.mask, |_, mut told| {
        told.message = why;
        told.help(help)
    });
}
