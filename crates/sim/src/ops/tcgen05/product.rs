//! One product while it is worked out: its factors from shared and tensor memory, their
//! scales, and where its result lies.

use super::flight::{chunk, lines_of};
use super::issue::TensorAddress;
use crate::access::context::Cx;
use crate::access::tensor_memory::{Doing, POISON, check};
use crate::ops::wgmma::source::Lines;
use crate::state::tensor_memory::Span;
use heist_arith::tensor::tcgen05::operand::Fill;
use heist_arith::tensor::tcgen05::place::Layout;
use heist_arith::tensor::tcgen05::{Form, Operand as Matrix, scale_columns, scale_rows};
use heist_arith::tensor::wgmma::Numbers;
use heist_ptx::rule;

/// A product while it is worked out.
pub(super) struct Product {
    pub(super) form: Form,
    pub(super) layout: Layout,
    /// The blocks that take part, the even one first.
    pub(super) ranks: Vec<u32>,
    pub(super) base: TensorAddress,
    /// What it reads of each block's shared memory, and of its tensor memory.
    pub(super) lines: Vec<Lines>,
    pub(super) reads: Vec<Span>,
    pub(super) doing: Doing,
}

impl Product {
    /// Some columns from a place on, in the lanes of the result.
    pub(super) fn span(&self, base: TensorAddress, width: usize) -> Span {
        let halves = match (self.layout.has_halves(), base.lane) {
            (false, _) => 0xff,
            (true, 0) => 0x55,
            (true, _) => 0xaa,
        };
        Span {
            halves,
            start: base.column,
            width,
        }
    }

    /// Reports a place that a result, or A, can't begin at.
    pub(super) fn check_lanes(&self, cx: &mut Cx<'_>, at: TensorAddress, which: &str) -> bool {
        let fits = at.lane == 0 || at.lane == 16 && self.layout.has_halves();
        if fits && at.lane == self.base.lane {
            return true;
        }
        let with = self.base.lane;
        cx.report(rule::TENSOR_LANES, cx.mask, |_, mut told| {
            told.message = if fits {
                format!("{which} begins at lane {} of tensor memory, and D at lane {with}", at.lane)
            } else {
                format!("{which} begins at lane {} of tensor memory", at.lane)
            };
            told.help("matrices of a product begin at lane 0, or all at lane 16 where M is 64; a warp's quarter is not added")
        });
        false
    }

    /// Calls `f` for the stretches of D: its first element, the block, lane and column,
    /// and how many elements.
    pub(super) fn rows(&self, mut f: impl FnMut(usize, usize, usize, usize, usize)) {
        let n = self.form.n;
        let len = self.layout.width(n).max(1);
        for m in 0..self.form.m {
            for first in (0..n).step_by(len) {
                let (block, lane, column) = self.layout.place(m, first, n);
                f(
                    m * n + first,
                    block,
                    self.base.lane + lane,
                    self.base.column + column,
                    len,
                );
            }
        }
    }

    /// One block's part of a matrix in shared memory, of which it has `mn` rows or columns.
    fn part(
        &mut self,
        cx: &mut Cx<'_>,
        at: usize,
        matrix: &Matrix,
        which: &str,
        columns: bool,
    ) -> Numbers {
        let lines = lines_of(cx, matrix, which);
        self.lines[at].join(lines);
        let rank = self.ranks[at];
        matrix.read(columns, |address| chunk(cx, rank, address))
    }

    /// A, whose rows the blocks of a pair share out.
    pub(super) fn read_rows(&mut self, cx: &mut Cx<'_>, matrix: Matrix) -> Numbers {
        let blocks = self.ranks.len();
        let matrix = Matrix {
            mn: matrix.mn / blocks,
            ..matrix
        };
        let parts = (0..blocks).map(|at| self.part(cx, at, &matrix, "A", false));
        let parts: Vec<Numbers> = parts.collect();
        parts
            .into_iter()
            .reduce(Numbers::chain)
            .unwrap_or(Numbers::Floats(Vec::new()))
    }

    /// B, whose columns the blocks of a pair share out.
    pub(super) fn read_columns(&mut self, cx: &mut Cx<'_>, matrix: Matrix) -> Numbers {
        let blocks = self.ranks.len();
        let matrix = Matrix {
            mn: matrix.mn / blocks,
            ..matrix
        };
        let parts = (0..blocks).map(|at| self.part(cx, at, &matrix, "B", true));
        let parts: Vec<Numbers> = parts.collect();
        let width = matrix.mn;
        parts
            .into_iter()
            .reduce(|left, right| left.beside(&right, width))
            .unwrap_or(Numbers::Floats(Vec::new()))
    }

    /// A from tensor memory: a row a lane, as D has them.
    pub(super) fn read_tensor(&mut self, cx: &mut Cx<'_>, base: TensorAddress) -> Option<Numbers> {
        if !self.check_lanes(cx, base, "A") {
            return None;
        }
        let Form { m, n, a, .. } = self.form;
        let k = self.form.stored();
        let bits = a.bits_in_tensor_memory();
        let span = self.span(base, k * bits / 32);
        let mut good = true;
        for &rank in &self.ranks {
            good &= check(cx, rank, span, self.doing);
        }
        self.reads.push(span);
        let mut fill = Fill::new(a, m * k);
        for row in 0..m {
            let (block, lane, _) = self.layout.place(row, 0, n);
            let tensor = cx.tensor(self.ranks[block]);
            for at in 0..k {
                let column = base.column + at * bits / 32;
                let word = if good {
                    tensor.word(base.lane + lane, column)
                } else {
                    POISON
                };
                let value = word >> (at * bits % 32) & (u32::MAX >> (32 - bits));
                fill.put(row * k + at, a.of_tensor_memory(value));
            }
        }
        Some(fill.numbers())
    }

    /// Multiplies the factors by what scales them. Each block of a pair has the scales of all columns in
    /// its own tensor memory: where those of the second one differ, B as it has it is returned, too.
    pub(super) fn scale(
        &mut self,
        cx: &mut Cx<'_>,
        sa: TensorAddress,
        sb: TensorAddress,
        a: &mut Numbers,
        b: &mut Numbers,
    ) -> Option<Option<Numbers>> {
        let Form {
            m,
            n,
            k,
            scale,
            scale_ids,
            ..
        } = self.form;
        let blocks = self.ranks.len();
        let block = self.form.block();
        let count = k / block;
        let of_pair = self.layout == Layout::B;
        let (rows, columns) = (m / blocks, if of_pair { n / 2 } else { n });
        let mut factors = [Vec::new(), Vec::new()];
        let mut of_second = Vec::new();
        for (which, (at, number)) in [(sa, rows), (sb, columns)].into_iter().enumerate() {
            let span = Span {
                halves: 0xff,
                start: at.column,
                width: number.div_ceil(32),
            };
            for &rank in &self.ranks {
                if !check(cx, rank, span, self.doing) {
                    return None;
                }
            }
            self.reads.push(span);
            let id = scale_ids[which] as usize;
            let whole = if which == 0 { m } else { n };
            for one in 0..whole {
                let (rank, within, upper) = match which {
                    0 => (self.ranks[one / rows], one % rows, 0),
                    _ => (self.ranks[0], one % columns, 64 * (one / columns)),
                };
                let mut read = |rank, into: &mut Vec<f64>| {
                    let column = at.column + within / 32;
                    let word = cx.tensor(rank).word(within % 32 + upper, column);
                    let bytes = word.to_le_bytes();
                    into.extend((0..count).map(|at| scale.value(bytes[(id + at) % 4])));
                };
                read(rank, &mut factors[which]);
                if let (1, [_, second]) = (which, &self.ranks[..]) {
                    read(*second, &mut of_second);
                }
            }
        }
        let [fa, fb] = factors;
        scale_rows(a, k, block, |row, at| fa[row * count + at]);
        // Not a number is equal to itself here.
        let bits = |all: &[f64]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let differs = !of_second.is_empty() && bits(&of_second) != bits(&fb);
        let second = differs.then(|| {
            let mut other = b.clone();
            scale_columns(&mut other, n, block, |column, at| {
                of_second[column * count + at]
            });
            other
        });
        scale_columns(b, n, block, |column, at| fb[column * count + at]);
        Some(second)
    }
}
