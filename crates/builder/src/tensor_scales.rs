//! Products of blocks with scales (`block_scale`): every 32 elements of the depth of a row of the left
//! operand, and of a column of the right one, share a power of two (`ue8m0`, an exponent of 8 bits).
//!
//! Scales come to shared memory with the stage that they belong to. The multiplying thread has them
//! copied to tensor memory (`tcgen05.cp`), where the tensor cores read them. Their room there belongs
//! to the stage: it is written again when the commit that gave the stage back has arrived, so nothing
//! else orders products and copies.
//!
//! In memory 128 rows by 4 blocks of the depth are 512 bytes, the four scales of a row one word. Word
//! `row % 32 * 4 + row / 32` is that of a row: so a copy of 32 times 16 bytes puts the scales of a row
//! in lane `row % 32`, column `row / 32`, of every quarter of tensor memory.

use crate::bulk_pipeline::BulkConsumer;
use crate::cp_async::StageSpec;
use crate::emit::{Base, Opnd};
use crate::error::Problem;
use crate::group::BlockGroup;
use crate::kernel::Kernel;
use crate::scalar::{E4m3, E5m2};
use crate::shared::SharedArray;
use crate::tcgen05::{Product, TensorInput, TensorOperand, VERSION, address_field};
use crate::tensor_memory::TensorMemory;
use crate::tensor_ring::TensorRing;
use crate::value::{IntoVal, Val};
use heist_ptx::arch::Variant;
use std::marker::PhantomData;

/// Rows or columns whose scales are copied together.
const BLOCK: u32 = 128;
/// Columns of tensor memory that they take.
const BLOCK_COLUMNS: u32 = 4;
/// Scales of a row in a word: as many as a stage has steps.
const STEPS: u32 = 4;

/// What `tcgen05.mma` multiplies by blocks with scales.
#[diagnostic::on_unimplemented(
    message = "products of `{Self}` have no scales of blocks",
    label = "not an input of `kind::mxf8f6f4`",
    note = "blocks of E4m3 and E5m2 have scales; halves are scaled in the epilogue"
)]
pub trait ScaledInput: TensorInput {}
impl ScaledInput for E4m3 {}
impl ScaledInput for E5m2 {}

/// The multiplying end of a ring whose stages have scales.
#[derive(Debug)]
pub struct ScaledConsumer<'p, 't, 'k, S: StageSpec, G: BlockGroup> {
    stages: BulkConsumer<'p, 'k, S>,
    /// The room of the first stage.
    first: Val<'k, u32>,
    /// Blocks of 128 columns that the right operand touches.
    blocks: u32,
    groups: u32,
    brand: PhantomData<fn(&'t G) -> &'t G>,
}

/// Room in tensor memory for the scales of one stage.
#[derive(Debug)]
pub struct ScaleMemory<'s, 'k, G: BlockGroup> {
    k: Kernel<'k>,
    at: Val<'k, u32>,
    blocks: u32,
    brand: PhantomData<fn(&'s G) -> &'s G>,
}

/// The scales of a stage in tensor memory.
#[derive(Debug)]
pub struct TensorScales<'s, 'k, G: BlockGroup> {
    rows: Val<'k, u32>,
    columns: Val<'k, u32>,
    brand: PhantomData<fn(&'s G) -> &'s G>,
}

impl<'k, S: StageSpec, G: BlockGroup> TensorRing<'k, S, G> {
    /// The multiplying end, with room in tensor memory for the scales of every stage: those of the
    /// 128 rows that a block has, and of `columns` columns (a multiple of 128) of the right operand.
    /// In a pair each block has the scales of its own rows and of all columns.
    #[track_caller]
    pub fn scaled_consumer<'t>(
        &self,
        memory: &TensorMemory<'t, 'k, G>,
        columns: u32,
    ) -> ScaledConsumer<'_, 't, 'k, S, G> {
        let k = memory.kernel();
        k.must_divide("the columns with scales", columns.into(), BLOCK.into());
        k.must_be_up_to("the columns with scales", columns, 256);
        let blocks = columns / BLOCK;
        let (stages, groups) = self.stages();
        ScaledConsumer {
            stages: stages.consumer(),
            first: memory.take(stages.stages * room(blocks)),
            blocks,
            groups,
            brand: PhantomData,
        }
    }
}

/// Columns of tensor memory for the scales of a stage.
const fn room(blocks: u32) -> u32 {
    (1 + blocks) * BLOCK_COLUMNS
}

impl<'k, S: StageSpec, G: BlockGroup> ScaledConsumer<'_, '_, 'k, S, G> {
    /// Waits for the next stage and multiplies it; every block of the group gets it back when the
    /// tensor cores have read it and its scales.
    #[track_caller]
    pub fn multiply(
        &self,
        product: &Product<'_, 'k, G>,
        work: impl for<'s> FnOnce(S::Ready<'k>, &ScaleMemory<'s, 'k, G>),
    ) {
        let k = product.kernel();
        let empty = self.stages.next_numbered(|stage, ready| {
            let memory = ScaleMemory {
                k,
                at: stage.mul_add(room(self.blocks), self.first),
                blocks: self.blocks,
                brand: PhantomData,
            };
            work(ready, &memory);
        });
        k.give_back::<G>(empty, self.groups);
    }
}

impl<'s, 'k, G: BlockGroup> ScaleMemory<'s, 'k, G> {
    /// Has the scales of a stage copied: of 128 rows of the left operand, and of the columns of the
    /// right one. The product's columns begin `within` columns (a multiple of 32) behind the first
    /// that has scales here.
    #[track_caller]
    pub fn load(
        &self,
        rows: SharedArray<'k, u32>,
        columns: SharedArray<'k, u32>,
        within: impl IntoVal<'k, u32>,
    ) -> TensorScales<'s, 'k, G> {
        let [rows, all] = [
            self.copy(rows, 0, 1),
            self.copy(columns, BLOCK_COLUMNS, self.blocks),
        ];
        TensorScales {
            rows,
            columns: all + (within.into_val(&self.k) >> 5),
            brand: PhantomData,
        }
    }

    /// Copies so many blocks to columns from `to` on.
    #[track_caller]
    fn copy(&self, from: SharedArray<'k, u32>, to: u32, blocks: u32) -> Val<'k, u32> {
        // Groups of 8 rows, each 16 bytes, follow each other.
        const GROUP_OF_ROWS: u64 = (8 * 16) >> 4;
        let (k, at) = (self.k, self.at + to);
        if from.len() != blocks * BLOCK {
            k.fail(format!(
                "scales of a stage in {} words: there are {} rows or columns, each has one",
                from.len(),
                blocks * BLOCK
            ));
        }
        for block in 0..blocks {
            let source = from.ptr().at(block * BLOCK);
            let descriptor = address_field(source) | (GROUP_OF_ROWS << 32 | VERSION << 46);
            k.effect(
                format!("tcgen05.cp.{}.32x128b.warpx4", G::MODIFIER),
                vec![
                    Opnd::Address(Base::Reg(at.register()), (block * BLOCK_COLUMNS).into()),
                    descriptor.register().into(),
                ],
            );
        }
        at
    }
}

/// The instruction descriptor of a product of blocks with scales into f32, in a step of a stage: both
/// operands' type, rows and columns of the result.
fn scaled_descriptor<H: ScaledInput>(step: u32, rows: u32, columns: u32) -> u32 {
    const UE8M0: u32 = 1;
    step << 4
        | H::CODE << 7
        | H::CODE << 10
        | (columns / 8) << 17
        | UE8M0 << 23
        | (rows / 16) << 24
        | step << 29
}

impl<'k, G: BlockGroup> Product<'_, 'k, G> {
    /// Adds the product of 128 rows of `a` and as many columns of `b` as the accumulator has, in step
    /// `step` (0 to 3) of a stage whose scales are `scales`. The first of a product replaces what was
    /// there.
    #[track_caller]
    pub fn mma_scaled<H: ScaledInput>(
        &self,
        a: TensorOperand<'k, H>,
        b: TensorOperand<'k, H>,
        scales: &TensorScales<'_, 'k, G>,
        step: u32,
    ) {
        if step >= STEPS {
            self.kernel().fail_with(Problem::OutOfRange {
                what: "the step of a stage with scales".into(),
                value: step.into(),
                low: 0,
                high: i64::from(STEPS) - 1,
            });
        }
        let [rows, columns] = self.shape();
        let address = |at: Val<'k, u32>| Opnd::Address(Base::Reg(at.register()), 0);
        // The size of a block could be left out, but ptxas 13.0 then asks for PTX 8.8.
        let kind = match self.kernel().arch().variant() {
            Variant::Specific => "mxf8f6f4.block_scale.scale_vec::1X",
            _ => "mxf8f6f4.block_scale.block32",
        };
        self.issue(
            kind,
            [a.step(step).operand(), b.step(step).operand()],
            scaled_descriptor::<H>(step % STEPS, rows, columns),
            vec![address(scales.rows), address(scales.columns)],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field by field, as PTX has them.
    #[test]
    fn a_descriptor_names_the_scale_of_its_step() {
        let plain = scaled_descriptor::<E4m3>(0, 128, 256);
        assert_eq!(plain, 0x08c0_0000);
        assert_eq!(
            scaled_descriptor::<E5m2>(0, 128, 256),
            plain | 1 << 7 | 1 << 10
        );
        assert_eq!(
            scaled_descriptor::<E4m3>(3, 128, 256),
            plain | 3 << 4 | 3 << 29
        );
        assert_eq!(
            scaled_descriptor::<E4m3>(0, 256, 64),
            2 << 27 | 1 << 23 | 8 << 17
        );
    }
}
