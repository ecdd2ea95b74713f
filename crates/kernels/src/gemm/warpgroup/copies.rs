//! The copies of a tile's stages, in the warpgroup that copies.

use super::super::gather::Gather;
use super::super::pieces::Pieces;
use super::super::tiling::{SPAN, Tiling};
use super::side::Peers;
use super::{Ends, Factors};
use heist_builder::{Landing, Transaction, Val, f16};

impl<'k> Ends<'_, 'k> {
    /// In the warpgroup that copies: a tile's stages. `next` begins the next tile.
    pub(super) fn copy_tile(&self, factors: Factors<'k>, next: &dyn Fn()) {
        let k = self.k;
        k.comment("the copies");
        match factors.gather {
            None => {
                k.one_thread(|| {
                    match &self.pieces {
                        None => self.fill(factors, self.ahead.get(), factors.steps),
                        Some(pieces) => self.fill_until_asked(pieces, factors),
                    }
                    self.ahead.set(0u32);
                    next();
                });
                k.sync_warp();
            }
            Some(gather) => {
                self.gather(factors, gather);
                k.one_thread(next);
                k.sync_warp();
            }
        }
    }

    /// Fills the stages from `first` to `last` of a tile.
    fn fill(&self, factors: Factors<'k>, first: Val<'k, u32>, last: Val<'k, u32>) {
        let k = self.k;
        k.for_range(first, last, |step| self.fill_stage(factors, step));
    }

    /// Fills the stages of what is left of a tile until the bell is rung, if it is.
    fn fill_until_asked(&self, pieces: &Pieces<'k>, factors: Factors<'k>) {
        let k = self.k;
        let done = pieces.done();
        let factors = factors.after(done);
        let step = k.var(self.ahead.get()).named("step");
        let last = k.var(false).named("last");
        // With a loop for each role nothing is copied ahead: before a look the bell was asked for in the same piece. Asked for before the
        // first copy, it would hold that up for as long as memory takes.
        let heard = match self.moves_once {
            true => k.var(0u32),
            // For a tile whose copies are all in flight.
            false => k.var(pieces.pause.listen()),
        };
        let heard = heard.named("heard");
        let at = match self.moves_once {
            true => pieces.listens_at(factors.steps),
            false => k.c(pieces.late()),
        };
        let before = k.var(0u32).named("heard_before");
        k.while_(
            || step.get().lt(factors.steps) & !last.get(),
            || {
                let next = step.get() + 1;
                k.if_(pieces.ends(next, factors.steps), || {
                    last.set(pieces.pause.look_twice(heard.get(), before, done + next));
                });
                // It arrives while room for this stage and the next is waited for.
                k.if_(pieces.listens(next, at), || {
                    heard.set(pieces.pause.listen())
                });
                self.fill_stage(factors, step.get());
                step.set(next);
            },
        );
        pieces.pause.heard(heard.get());
    }

    /// Issues the bulk copies of a stage.
    fn fill_stage(&self, factors: Factors<'k>, step: Val<'k, u32>) {
        let Tiling {
            rows, cols, depth, ..
        } = self.tiling;
        let at = (factors.from + step) * (depth / SPAN * factors.left.span);
        let [same_rows, same_cols] = Peers::of_tile(&self.k, self.tiling.cluster.sides());
        let sides = [
            (factors.left, rows, same_rows),
            (factors.right, cols, same_cols),
        ];
        let [(left, less_rows), (right, less_cols)] =
            match sides.iter().any(|(side, ..)| side.edge.is_some()) {
                false => sides.map(|(side, ..)| (side, None)),
                true => {
                    let written = self.filled.get().ge(self.tiling.stages);
                    self.filled.update(|filled| filled + 1);
                    sides.map(|(side, outer, peers)| side.ending(written, outer, depth, &peers))
                }
            };
        let copy = |copies: &Transaction<'k>, (to_left, to_right): (Landing<'k, f16>, _)| {
            if factors.gather.is_none() {
                left.copy(copies, to_left, rows, depth, at, same_rows);
            }
            right.copy(copies, to_right, cols, depth, at, same_cols);
            let copied = factors
                .scales
                .and_then(|scales| Some((scales, scales.copied?)));
            if let Some((scales, copied)) = copied {
                let behind = to_left.part(rows * SPAN, self.tiling.scale_rows() * SPAN);
                let place = [factors.left.first, factors.right.first];
                let block = factors.from + step;
                scales.copy(&copied, copies, behind.cast(), place, [rows, cols], block);
            }
        };
        match less_rows
            .into_iter()
            .chain(less_cols)
            .reduce(|one, other| one + other)
        {
            None => self.producer.fill(copy),
            Some(less) => self.producer.fill_less(less, copy),
        }
    }

    /// The producer warpgroup fills the stages of a tile: one thread issues the bulk copies, all of
    /// them copy rows.
    fn gather(&self, factors: Factors<'k>, gather: Gather<'k>) {
        let k = self.k;
        let Some(gatherer) = &self.gatherer else {
            return k.fail("rows are gathered in a ring that was made for it");
        };
        let rows = gather.rows(&k, &self.tiling);
        k.for_range(0, factors.steps, |step| {
            k.one_thread(|| {
                // Some may have been issued while the tile before was worked on.
                k.if_(step.ge(self.ahead.get()), || self.fill_stage(factors, step));
            });
            k.sync_warp();
            gatherer.fill(|(left, _)| rows.copy(left, factors.from + step));
        });
        self.ahead.set(0u32);
    }

    /// Begins a tile while the one before is still worked on: thread 0 issues the copies of as many
    /// stages as there are.
    pub(crate) fn begin(&self, factors: Factors<'k>) {
        let steps = factors.steps.min(self.tiling.stages);
        self.fill(factors, self.k.c(0), steps);
        self.ahead.set(steps);
    }
}
