//! The sums of a tile, in a warpgroup that multiplies: added by the tensor cores, or in two levels.

use super::super::scales::{BlockScales, Fetched, Kept};
use super::super::tiling::{SPAN, Tiling};
use super::{Ends, Factors, Staged};
use heist_builder::{
    Kernel, Ptr, Shared, SharedTile, Tf32, Val, Var, WgmmaInput, WgmmaLeft, WgmmaResult, WgmmaSums,
    WordsAcross, f16,
};

/// How many times 128 bytes of the depth are added by the tensor cores before f32, where sums in two
/// levels have no scales: the error stays that of rounding results to halves (1.7e-3 of the norm), as
/// with 128 bytes.
const PART: u32 = 4;

/// Steps of the depth whose words a thread loads at once: as many registers as another set has, which is multiplied meanwhile.
const AT_ONCE: usize = 2;

/// The registers that a left operand goes through, which is stored across the depth.
struct Turned<'k> {
    across: WordsAcross<'k>,
    registers: [[WgmmaLeft<'k, Tf32>; AT_ONCE]; 2],
}

impl<'k> Turned<'k> {
    fn new(k: &Kernel<'k>, tiling: &Tiling) -> Turned<'k> {
        Turned {
            // In words.
            across: WordsAcross::new(k, tiling.depth / 2),
            registers: [(); 2].map(|()| [(); AT_ONCE].map(|()| WgmmaLeft::new(k))),
        }
    }
}

impl<'k> Ends<'_, 'k> {
    /// The accumulators of 64 rows from each of `rows` on, added by the tensor cores.
    pub(super) fn in_one_level<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        rows: &[Val<'k, u32>],
    ) -> Vec<WgmmaResult<'k>> {
        let k = self.k;
        let sums: Vec<_> = rows
            .iter()
            .map(|_| WgmmaSums::zero(&k, self.tiling.cols))
            .collect();
        let turned = (factors.left.through_registers()).then(|| Turned::new(&k, &self.tiling));
        let multiply = || {
            self.each_step(factors, |_| {
                self.consumer.consume_lagging(|stage| {
                    if let Some(turned) = &turned {
                        return self.multiply_turned(turned, factors, stage, &sums, rows);
                    }
                    if factors.gather.is_some() {
                        // What threads copied becomes visible to the tensor cores.
                        k.fence_async_shared();
                    }
                    for (sums, row) in sums.iter().zip(rows) {
                        self.multiply::<H>(factors, stage, sums, *row, false);
                    }
                    // The products before have ended: their stage can be released.
                    sums[0].wait_for_older(rows.len() as u32);
                });
            });
            if let Some(pingpong) = &self.pingpong {
                // All stages have come, and the last products are on their way.
                pingpong.turns.give();
            }
        };
        match &self.pieces {
            None => multiply(),
            // Twice: the assembler waits for each product of a loop whose sums may have been
            // loaded.
            Some(pieces) => k.if_else(
                pieces.agreed().ne(0),
                || {
                    pieces.restore(sums.iter().flat_map(WgmmaSums::vars));
                    multiply();
                    sums[0].wait_for_older(0);
                },
                || {
                    multiply();
                    sums[0].wait_for_older(0);
                },
            ),
        }
        let sums = sums.into_iter().map(WgmmaSums::finish).collect();
        self.consumer.release_last();
        sums
    }

    /// The same in two levels without scales: [`PART`] times 128 bytes of the depth by the tensor
    /// cores, whose sums have 13 bits of fraction, then f32. Inside of a part products follow each
    /// other without a wait.
    pub(super) fn in_parts<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        row: Val<'k, u32>,
    ) -> WgmmaResult<'k> {
        let k = self.k;
        let Tiling { cols, depth, .. } = self.tiling;
        let part = WgmmaSums::zero(&k, cols);
        let total = WgmmaResult::zero(&k, cols);
        let stage = |fresh| {
            self.consumer.consume_lagging(|stage| {
                self.multiply::<H>(factors, stage, &part, row, fresh);
                part.wait_for_older(1);
            });
        };
        let add = || part.add_to(&total, 0, |_| None);
        let stages = PART / (depth / SPAN);
        self.restore(total.vars());
        self.each_piece(factors, |from, to| {
            let whole = (to - from) / stages;
            k.for_range(0, whole, |_| {
                (0..stages).for_each(|at| stage(at == 0));
                add();
            });
            k.for_range(from + whole * stages, to, |_| {
                stage(true);
                add();
            });
        });
        self.consumer.release_last();
        total
    }

    /// The same in two levels with scales of blocks, and two sets of partial sums: while a warpgroup adds up one of
    /// them, the tensor cores work on the other. The scales come with their stages.
    pub(super) fn in_two_parts<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        row: Val<'k, u32>,
        scales: BlockScales<'k>,
    ) -> WgmmaResult<'k> {
        let k = self.k;
        let cols = self.tiling.cols;
        let parts = [0, 1].map(|_| WgmmaSums::zero(&k, cols));
        let kept = [0, 1].map(|_| Kept::new(&k, cols));
        let total = WgmmaResult::zero(&k, cols);
        // Asks for the products of a stage; those before have ended then.
        let ask = |block: Val<'k, u32>, part: usize, before: bool| {
            self.consumer.consume_lagging(|stage| {
                self.products::<H>(factors, stage, &parts[part], row, 0);
                if let Some(copied) = &scales.copied {
                    let place = [factors.left.first, factors.right.first];
                    let sides = [self.tiling.rows, cols];
                    let from = self.scales_of(stage);
                    let by = scales.copied_factors(copied, from, place, row, sides, block);
                    by.keep(&kept[part]);
                    k.fence_async_shared();
                }
                if before {
                    parts[part].wait_for_older(1);
                }
            });
        };
        // Adds up what was asked for, but for so many later products.
        let add = |part: usize, newer: u32| {
            let by = kept[part].factors();
            parts[part].add_to(&total, newer, |at| Some(by.block(at)));
        };
        let all = || {
            ask(factors.from, 0, false);
            let pairs = (factors.steps - 1) / 2;
            k.for_range(0, pairs, |pair| {
                let block = factors.from + pair * 2;
                ask(block + 1, 1, true);
                add(0, 1);
                ask(block + 2, 0, true);
                add(1, 1);
            });
            k.if_else(
                (factors.steps & 1).eq(0),
                || {
                    ask(factors.from + (pairs * 2 + 1), 1, true);
                    add(0, 1);
                    add(1, 0);
                },
                || add(0, 0),
            );
            self.consumer.release_last();
        };
        match self.tiling.split {
            1 => all(),
            // Of more shares than steps some are empty.
            _ => k.if_(factors.steps.ne(0), all),
        }
        total
    }

    /// The same in two levels. While a warpgroup adds up its sums, the other one's products
    /// keep the tensor cores busy.
    pub(super) fn in_two_levels<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        rows: &[Val<'k, u32>],
    ) -> Vec<WgmmaResult<'k>> {
        let k = self.k;
        let Tiling { cols, depth, .. } = self.tiling;
        let part = WgmmaSums::zero(&k, cols);
        let totals: Vec<_> = rows.iter().map(|_| WgmmaResult::zero(&k, cols)).collect();
        let pieces = depth / SPAN;
        let first = factors.from * pieces;
        let copied = factors
            .scales
            .and_then(|scales| Some((scales, scales.copied?)));
        let loaded = factors.scales.filter(|scales| scales.copied.is_none());
        let scaled: Option<Vec<(BlockScales<'k>, Fetched<'k>)>> = loaded.map(|scales| {
            let place = |row: &Val<'k, u32>| [factors.left.first + *row, factors.right.first];
            rows.iter()
                .map(|row| (scales, scales.room(&k, place(row), cols)))
                .collect()
        });
        let fetch = |number: usize, block: Val<'k, u32>| {
            if let Some((scales, fetched)) = scaled.as_ref().map(|scaled| &scaled[number]) {
                scales.fetch(fetched, block);
            }
        };
        (0..rows.len()).for_each(|number| fetch(number, first));
        let last = (pieces - 1, rows.len() - 1);
        self.restore(totals.iter().flat_map(WgmmaResult::vars));
        self.each_step(factors, |step| {
            let block = first + step * pieces;
            // Products of 64 rows and 128 bytes of the depth; the last ones are added after the
            // stage has been released.
            let products = |stage: Staged<'k>, piece: u32, number: usize| {
                self.products::<H>(factors, stage, &part, rows[number], piece);
                let scaled = scaled.as_ref().map(|scaled| &scaled[number]);
                let by = match &copied {
                    Some((scales, copied)) => {
                        let from = self.scales_of(stage);
                        let place = [factors.left.first, factors.right.first];
                        let sides = [self.tiling.rows, cols];
                        let by =
                            scales.copied_factors(copied, from, place, rows[number], sides, block);
                        // The copy engine overwrites what was read.
                        k.fence_async_shared();
                        Some(by)
                    }
                    None => scaled.map(|(scales, fetched)| scales.factors(fetched)),
                };
                fetch(number, block + (piece + 1));
                part.wait_for_older(0);
                by
            };
            let left = self.consumer.consume(|stage| {
                let mut left = None;
                for piece in 0..pieces {
                    for (number, total) in totals.iter().enumerate() {
                        let by = products(stage, piece, number);
                        if (piece, number) == last {
                            left = by;
                        } else {
                            part.add_to(total, 0, |at| by.as_ref().map(|by| by.block(at)));
                        }
                    }
                }
                left
            });
            let by = |at| left.as_ref().map(|by| by.block(at));
            part.add_to(&totals[last.1], 0, by);
        });
        totals
    }

    /// The scales that came with a stage.
    fn scales_of(&self, (left, _): Staged<'k>) -> Ptr<'k, Shared, f32> {
        let behind = left.rows_from(self.tiling.rows, self.tiling.scale_rows());
        behind.ptr().cast()
    }

    /// Sets the sums of a tile that was left half done to what they were.
    fn restore(&self, sums: impl Iterator<Item = Var<'k, f32>>) {
        if let Some(pieces) = &self.pieces {
            let sums: Vec<_> = sums.collect();
            self.k.if_(pieces.agreed().ne(0), || {
                pieces.restore(sums.iter().copied());
            });
        }
    }

    /// Calls `body` with every step of the depth, in a warpgroup that multiplies.
    fn each_step(&self, factors: Factors<'k>, body: impl Fn(Val<'k, u32>)) {
        match &self.pieces {
            None => self.k.for_range(0, factors.steps, body),
            Some(pieces) => pieces.each_step(factors.steps, body),
        }
    }

    /// The same with the first step of each piece, and the one behind its last: all of them at
    /// once, where a tile can't be left half done.
    fn each_piece(&self, factors: Factors<'k>, body: impl Fn(Val<'k, u32>, Val<'k, u32>)) {
        match &self.pieces {
            None => body(self.k.c(0), factors.steps),
            Some(pieces) => pieces.each_piece(factors.steps, body),
        }
    }

    /// Sets sums to the products of a piece of a stage that is 128 bytes deep.
    fn products<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        (left, right): (SharedTile<'k, f16>, SharedTile<'k, f16>),
        sums: &WgmmaSums<'k>,
        row: Val<'k, u32>,
        piece: u32,
    ) {
        let Tiling {
            rows, cols, depth, ..
        } = self.tiling;
        let (per, from) = (SPAN as usize / 16, (piece * SPAN / 16) as usize);
        let left = factors.left.operands::<H>(left, row, rows, depth);
        let right = factors.right.operands::<H>(right, self.k.c(0), cols, depth);
        sums.accumulate(|batch| {
            let pairs = left.into_iter().zip(right).skip(from).take(per);
            for (step, (left, right)) in pairs.enumerate() {
                match step {
                    0 => batch.mma_fresh(left, right),
                    _ => batch.mma(left, right),
                }
            }
        });
    }

    /// Adds the products of a stage whose left operand goes through registers. While a warpgroup loads one half of these, the tensor cores multiply
    /// the other.
    fn multiply_turned(
        &self,
        turned: &Turned<'k>,
        factors: Factors<'k>,
        (left, right): Staged<'k>,
        sums: &[WgmmaSums<'k>],
        rows: &[Val<'k, u32>],
    ) {
        let Tiling { cols, depth, .. } = self.tiling;
        let left = left.retyped::<Tf32>();
        let right = factors
            .right
            .operands::<Tf32>(right, self.k.c(0), cols, depth);
        let halves = right.chunks(AT_ONCE).enumerate();
        let all: Vec<_> = halves
            .flat_map(|half| sums.iter().zip(rows).map(move |own| (half, own)))
            .collect();
        for (turn, ((half, right), (sums, row))) in all.into_iter().enumerate() {
            let registers = &turned.registers[turn % 2];
            // What these were loaded with before has been multiplied, and nothing of the stage before is read any more.
            sums.wait_for_older(1);
            for (next, words) in registers.iter().enumerate() {
                words.load(left, &turned.across, *row, (half * AT_ONCE + next) as u32);
            }
            sums.accumulate(|batch| {
                for (words, right) in registers.iter().zip(right) {
                    batch.mma_left(words, *right);
                }
            });
        }
        // The copy engine overwrites what was read.
        self.k.fence_async_shared();
    }

    /// Adds the products of a stage, or sets the sums to them.
    fn multiply<H: WgmmaInput>(
        &self,
        factors: Factors<'k>,
        (left, right): (SharedTile<'k, f16>, SharedTile<'k, f16>),
        sums: &WgmmaSums<'k>,
        row: Val<'k, u32>,
        fresh: bool,
    ) {
        let Tiling {
            rows, cols, depth, ..
        } = self.tiling;
        let left = factors.left.operands::<H>(left, row, rows, depth);
        let right = factors.right.operands::<H>(right, self.k.c(0), cols, depth);
        sums.accumulate(|batch| {
            for (step, (left, right)) in left.into_iter().zip(right).enumerate() {
                match step {
                    0 if fresh => batch.mma_fresh(left, right),
                    _ => batch.mma(left, right),
                }
            }
        });
    }
}
