//! 8-bit floats by blocks with scales (`scales=mx`): the tensor cores multiply every 32 elements of the
//! depth by the two powers of two that their row and their column have there.
//!
//! Scales lie in memory as cuBLAS and `torch._scaled_mm` take them: 512 bytes for 128 rows, or columns,
//! by 128 elements of the depth. These are what a stage has, so the copy engine brings them with it.

use super::mainloop::{Factors, Multiplication, Stage, operand};
use super::tiling::TensorTiling;
use crate::gemm::{Gemm, MX_ROWS, Scales};
use heist_builder::{
    ArraySpec, BlockGroup, Landing, Product, ScaledConsumer, ScaledInput, TensorMapRef,
    TensorMemory, TensorRing, Transaction, Val,
};
use heist_launch::{Arg, BufferRef, TensorElement, TensorMap};
use std::marker::PhantomData;

/// Steps of the depth in a stage, each 32 elements.
const STEPS: u32 = 4;

/// Whether blocks of a problem's factors have scales.
pub(super) fn has_scales(problem: &Gemm) -> bool {
    problem.scales == Scales::Mx
}

/// Where the scales of a tile's factors are.
#[derive(Clone, Copy)]
pub(crate) struct BlockFactors<'k> {
    /// Of A and B.
    maps: [TensorMapRef<'k, u32, 3>; 2],
    /// The first 128 rows, and columns.
    first: [Val<'k, u32>; 2],
    /// Where the tile begins in its first 128 columns.
    within: Val<'k, u32>,
    /// Steps of the whole depth, where they are no whole stages: scales behind them are not looked at.
    steps: Option<Val<'k, u32>>,
}

impl<'k> BlockFactors<'k> {
    /// Of the tile at this row and column.
    pub(super) fn new(
        tiling: &TensorTiling,
        maps: [TensorMapRef<'k, u32, 3>; 2],
        [row, col]: [Val<'k, u32>; 2],
        steps: Option<Val<'k, u32>>,
    ) -> BlockFactors<'k> {
        BlockFactors {
            maps,
            first: [row / MX_ROWS, col / MX_ROWS],
            within: match tiling.cols % MX_ROWS {
                0 => col.kernel().c(0),
                _ => col % MX_ROWS,
            },
            steps,
        }
    }
}

/// Products of blocks of `H` with scales.
pub(super) struct BlockScaled<H>(PhantomData<H>);

impl<H: ScaledInput> Multiplication for BlockScaled<H> {
    type Scales = (ArraySpec<'static, u32>, ArraySpec<'static, u32>);
    type From<'k> = BlockFactors<'k>;
    type Consumer<'p, 't, 'k: 'p, G: BlockGroup>
        = ScaledConsumer<'p, 't, 'k, Stage<Self>, G>
    where
        H: 'p;

    fn scales(tiling: &TensorTiling) -> Self::Scales {
        (
            ArraySpec::new("left_scales", MX_ROWS),
            ArraySpec::new("right_scales", tiling.scaled_cols()),
        )
    }

    fn copy<'k>(
        from: BlockFactors<'k>,
        copies: &Transaction<'k>,
        (rows, columns): (Landing<'k, u32>, Landing<'k, u32>),
        step: Val<'k, u32>,
    ) {
        let zero = step.kernel().c(0i32);
        for (at, to) in [rows, columns].into_iter().enumerate() {
            let place = [zero, step.cast(), from.first[at].cast()];
            copies.copy_tensor(to, from.maps[at], place);
        }
    }

    fn accumulators(tiling: &TensorTiling) -> u32 {
        tiling.scaled_accumulators()
    }

    fn consumer<'p, 't, 'k, G: BlockGroup>(
        tiling: &TensorTiling,
        ring: &'p TensorRing<'k, Stage<Self>, G>,
        memory: &TensorMemory<'t, 'k, G>,
    ) -> ScaledConsumer<'p, 't, 'k, Stage<Self>, G> {
        ring.scaled_consumer(memory, tiling.scaled_cols())
    }

    fn multiply<'k, G: BlockGroup>(
        consumer: &ScaledConsumer<'_, '_, 'k, Stage<Self>, G>,
        product: &Product<'_, 'k, G>,
        factors: &Factors<'k, BlockFactors<'k>>,
        stage: Val<'k, u32>,
    ) {
        let k = stage.kernel();
        let BlockFactors { within, steps, .. } = factors.scales;
        consumer.multiply(product, |(left, right, (rows, columns)), memory| {
            let left = operand::<H>(left, factors.left.major);
            let right = operand::<H>(right, factors.right.major);
            let scales = memory.load(rows, columns, within);
            for step in 0..STEPS {
                let multiply = || product.mma_scaled(left, right, &scales, step);
                match steps {
                    Some(steps) if step > 0 => {
                        k.if_((stage * STEPS + step).lt(steps), multiply);
                    }
                    _ => multiply(),
                }
            }
        });
    }
}

/// The maps of the scales of both factors.
pub(super) fn maps(problem: &Gemm, tiling: &TensorTiling) -> [Arg; 2] {
    let deep = u64::from(problem.k.div_ceil(MX_ROWS));
    let map = |name: &str, outer: u32, rows: u32| {
        let blocks = u64::from(outer.div_ceil(MX_ROWS));
        let buffer = BufferRef::Named(name.to_owned());
        let dims = [MX_ROWS.into(), deep, blocks];
        let boxes = [MX_ROWS, 1, rows / MX_ROWS];
        Arg::TensorMap(TensorMap::dense(buffer, TensorElement::U32, &dims, &boxes))
    };
    [
        map("scale_a", problem.m, MX_ROWS),
        map("scale_b", problem.n, tiling.scaled_cols()),
    ]
}
