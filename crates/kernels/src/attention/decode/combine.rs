//! Combines the parts of tiles that several blocks had.

use super::DecodeArgs;
use super::shape::DecodeShape;
use super::work::Work;
use crate::attention::params::Element;
use crate::attention::problem::Output;
use crate::attention::softmax::NO_LEVEL;
use heist_builder::{Group, Kernel, On, Val};

/// Warps of a block, which is one row of a tile's.
pub(super) const WARPS: u32 = 4;

/// The whole kernel: row `x` of the tile that goes on from share `y` to the next, if
/// that tile begins in share `y`.
pub(super) fn emit<'k, T: Element>(k: &Kernel<'k>, shape: &DecodeShape, args: &DecodeArgs<On<'k>>) {
    let work = Work::new(k, shape, args);
    let (row, block) = (k.block().x, k.block().y);
    let (begin, end) = (block * work.share, (block + 1) * work.share);
    k.if_(end.lt(work.total), || {
        let part = work.tile(work.locate(end), end);
        let goes_on = part.tile_unit.lt(end) & part.tile_unit.ge(begin);
        k.if_(goes_on & row.lt(part.rows(args.group)), || {
            let last = (part.tile_unit + part.sequence.blocks - 1) / work.share;
            let parts = Parts {
                // Every part but the first is the one that its share begins with.
                first: block * 2 + part.tile_unit.ne(begin).to_u32(),
                second: block * 2 + 2,
                count: last - block + 1,
                row,
            };
            let token = (part.first_row + row) / args.group;
            let head = part.kv_head * args.group + (part.first_row + row - token * args.group);
            let at = part.sequence.q_start + token;
            let to = part.sequence.number.mul_wide(args.q_batch)
                + at.mul_wide(args.q_row)
                + head.mul_wide(args.q_head);
            let lse = part.sequence.number * args.lse_batch + head * args.lse_head + at;
            parts.combine::<T>(k, shape, args, to, lse);
        });
    });
}

/// The parts of one row.
struct Parts<'k> {
    /// The slot of the first part, and of the second; from there on every other.
    first: Val<'k, u32>,
    second: Val<'k, u32>,
    count: Val<'k, u32>,
    row: Val<'k, u32>,
}

impl<'k> Parts<'k> {
    /// The number of a part's row among all partial rows.
    fn number(&self, shape: &DecodeShape, part: Val<'k, u32>) -> Val<'k, u32> {
        let later = self.second + (part - 1) * 2;
        part.eq(0).select(self.first, later) * shape.rows() + self.row
    }

    fn combine<T: Element>(
        &self,
        k: &Kernel<'k>,
        shape: &DecodeShape,
        args: &DecodeArgs<On<'k>>,
        to: Val<'k, u64>,
        lse: Val<'k, u32>,
    ) {
        let (lane, warp) = (k.lane(), k.warp());
        let part_lse = |part| {
            args.partial_lse
                .at(self.number(shape, part))
                .load_readonly()
        };
        // Every warp finds the largest log-sum-exp by itself.
        let highest = k.var(NO_LEVEL);
        k.for_step(lane, self.count, 32u32, |part| {
            highest.update(|highest| highest.max(part_lse(part)));
        });
        let highest = highest.get().group_max(Group::Warp);
        let weight = |part| ((part_lse(part) - highest) * std::f32::consts::LOG2_E).exp2_approx();
        // Each warp adds up every fourth part, in order.
        let trips = (shape.head_dim / 2).div_ceil(32);
        let sums: Vec<_> = (0..2 * trips).map(|_| k.var(0.0f32)).collect();
        let total = k.var(0.0f32);
        let col = lane * 2;
        let inside = |trip: u32| {
            k.c(64 * (trip + 1) <= shape.head_dim) | (col + 64 * trip).lt(shape.head_dim)
        };
        let own = (self.count + (WARPS - 1) - warp) / WARPS;
        k.for_unrolled::<4>(0u32, own, |index| {
            let part = index * WARPS + warp;
            let weight = weight(part);
            total.update(|total| total + weight);
            let from = args
                .partial
                .at(self.number(shape, part).mul_wide(shape.head_dim));
            for trip in 0..trips {
                k.if_(inside(trip), || {
                    let values = from.at(col).at(64 * trip).load_vec_readonly::<2>();
                    for (sum, value) in sums[2 * trip as usize..].iter().zip(values) {
                        sum.update(|sum| value.mul_add(weight, sum));
                    }
                });
            }
        });
        // Then the first warp adds up the four sums, in order.
        let words = 2 * trips + 1;
        let memory = k.shared::<f32>("sums", WARPS * words * 32);
        let mine = |warp: Val<'k, u32>| memory.at(warp * (words * 32) + lane);
        for (index, sum) in sums.iter().chain([&total]).enumerate() {
            mine(warp).at(32 * index).store(sum.get());
        }
        k.sync();
        k.if_(warp.eq(0), || {
            let all = |index: u32| {
                let each = (0..WARPS).map(|warp| mine(k.c(warp)).at(32 * index).load());
                each.reduce(|a, b| a + b).unwrap_or(k.c(0.0))
            };
            let total = all(2 * trips);
            let factor = total.gt(0.0).select(total.recip_approx(), 0.0);
            k.if_(lane.eq(0), || {
                let log_sum = highest + total.log2_approx() * std::f32::consts::LN_2;
                args.lse.at(lse).store(log_sum);
            });
            for trip in 0..trips {
                k.if_(inside(trip), || {
                    let pair = [0, 1].map(|at| all(2 * trip + at) * factor);
                    match shape.output {
                        Output::Same => {
                            let to = args.out.cast::<T>().at(to).at(col).at(64 * trip);
                            let packed = Val::pack_as::<T>(pair[0], pair[1]);
                            to.cast::<T::Pair>().store(packed);
                        }
                        Output::F32 => {
                            let to = args.out.cast::<f32>().at(to).at(col).at(64 * trip);
                            to.store_vec(pair);
                        }
                    }
                });
            }
        });
    }
}
