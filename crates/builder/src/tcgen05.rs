//! `tcgen05.mma`: one thread multiplies matrices in shared memory into tensor memory.
//!
//! Only the multiplying thread ([`Kernel::multiplying_thread`]) can begin a product
//! ([`AccumulatorWriter::product`]), and only inside of a product are there multiplications. It
//! waits until the accumulator is empty, its first multiplication replaces what the accumulator
//! held, and it ends with a commit, which tells the readers. A ring of shared memory that products
//! read is given back by a commit too ([`BulkConsumer::multiply`]), so no stage is overwritten
//! while the tensor cores read it.
//!
//! The instruction descriptor follows from the types, the shape and how the operands lie; the
//! matrix descriptors follow from the tile.

use crate::bulk_pipeline::BulkConsumer;
use crate::cp_async::StageSpec;
use crate::emit::{Base, Opnd};
use crate::group::{BlockGroup, OneBlock};
use crate::kernel::Kernel;
use crate::mbarrier::{Mbarrier, RingCursor};
use crate::pointer::{Ptr, Shared};
use crate::scalar::{E4m3, E5m2, Storable, Tf32};
use crate::tensor_memory::{ACCUMULATOR_ROWS, Accumulators};
use crate::tile::{SharedTile, TileLayout};
use crate::value::{IntoVal, Val, Var};
use crate::wgmma::WgmmaInput;
use half::{bf16, f16};
use heist_ptx::arch::Feature;
use std::marker::PhantomData;

/// What `tcgen05.mma` multiplies into f32.
#[diagnostic::on_unimplemented(
    message = "tensor cores don't multiply `{Self}` from shared memory",
    label = "not an input of `tcgen05.mma`",
    note = "they multiply f16, bf16, Tf32, E4m3 and E5m2"
)]
pub trait TensorInput: WgmmaInput {
    #[doc(hidden)]
    const KIND: &'static str;
    /// Its number in an instruction descriptor.
    #[doc(hidden)]
    const CODE: u32;
}

macro_rules! inputs {
    ($($ty:ty: $kind:literal $code:literal;)*) => {$(
        impl TensorInput for $ty {
            const KIND: &'static str = $kind;
            const CODE: u32 = $code;
        }
    )*};
}
inputs! {
    f16: "f16" 0;
    bf16: "f16" 1;
    Tf32: "tf32" 2;
    E4m3: "f8f6f4" 0;
    E5m2: "f8f6f4" 1;
}

/// A matrix in shared memory as `tcgen05.mma` sees it: a 64-bit descriptor.
#[derive(Debug)]
pub struct TensorOperand<'k, H> {
    descriptor: Val<'k, u64>,
    /// What one step of depth adds to the descriptor.
    step: u64,
    /// Whether its rows run across the depth.
    across: bool,
    of: PhantomData<fn() -> H>,
}
impl<H> Clone for TensorOperand<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for TensorOperand<'_, H> {}

/// What says in a matrix descriptor that it is one of `tcgen05`.
pub(crate) const VERSION: u64 = 1;

/// The fields of a matrix descriptor beside the address, for the 128-byte swizzle. Strides are in
/// units of 16 bytes; `leading` is not read where rows run along the depth.
fn matrix_fields(leading: u64) -> u64 {
    const GROUP_OF_ROWS: u64 = 1024 >> 4;
    const SWIZZLE_128: u64 = 2;
    leading << 16 | GROUP_OF_ROWS << 32 | VERSION << 46 | SWIZZLE_128 << 61
}

impl<'k, T: Storable> SharedTile<'k, T> {
    /// The rows from `row0` (a multiple of 8) on, as an operand whose depth runs along the rows:
    /// four steps of 32 bytes. Rows are 128 bytes, swizzled.
    #[track_caller]
    pub fn tensor_operand<H: TensorInput<Stored = T>>(
        &self,
        row0: impl IntoVal<'k, u32>,
    ) -> TensorOperand<'k, H> {
        TensorOperand {
            descriptor: self.matrix_descriptor(row0.into_val(&self.kernel()), 1),
            step: 32 >> 4,
            across: false,
            of: PhantomData,
        }
    }

    /// An operand whose rows run across the depth: each has 64 neighbours of the other axis.
    /// `depth` rows make a panel (a multiple of 16), and the tile is panel below panel; the operand
    /// starts at panel `panel0`. Of halves alone.
    #[track_caller]
    pub fn tensor_operand_across<H: TensorInput<Stored = T>>(
        &self,
        panel0: impl IntoVal<'k, u32>,
        depth: u32,
    ) -> TensorOperand<'k, H> {
        let k = self.kernel();
        if T::BYTES != 2 {
            k.fail("only halves are multiplied with rows across the depth");
        }
        k.must_divide("the depth of a panel", depth.into(), 16);
        let panel = u64::from(depth) * 128;
        TensorOperand {
            descriptor: self.matrix_descriptor(panel0.into_val(&k) * depth, panel >> 4),
            step: (16 * 128) >> 4,
            across: true,
            of: PhantomData,
        }
    }

    #[track_caller]
    fn matrix_descriptor(&self, row: Val<'k, u32>, leading: u64) -> Val<'k, u64> {
        let k = self.kernel();
        k.require(Feature::Tcgen05);
        if self.layout() != TileLayout::Swizzled || self.cols() * T::BYTES != 128 {
            k.fail(format!(
                "an operand of tcgen05.mma has swizzled rows of 128 bytes, and this tile has {:?} rows of {}",
                self.layout(),
                self.cols() * T::BYTES
            ));
        }
        address_field(self.ptr().byte_offset(row * 128)) | matrix_fields(leading)
    }
}

/// A place in shared memory, as a matrix descriptor has it.
#[track_caller]
pub(crate) fn address_field<'k, T: Storable>(at: Ptr<'k, Shared, T>) -> Val<'k, u64> {
    ((at.address() & 0x3FFFF) >> 4).cast::<u64>()
}

impl<'k, H> TensorOperand<'k, H> {
    pub(crate) fn operand(&self) -> Opnd {
        self.descriptor.register().into()
    }

    /// The same, `step` steps of 32 bytes further along the depth.
    #[track_caller]
    pub fn step(&self, step: u32) -> TensorOperand<'k, H> {
        TensorOperand {
            descriptor: self.descriptor + u64::from(step) * self.step,
            ..*self
        }
    }
}

/// The instruction descriptor of a product into f32: both operands' type, whether the rows of the
/// left and the right one run across the depth, rows and columns of the result.
fn instruction_descriptor<H: TensorInput>(across: [bool; 2], rows: u32, columns: u32) -> u32 {
    const INTO_F32: u32 = 1;
    let [left, right] = across.map(u32::from);
    INTO_F32 << 4
        | H::CODE << 7
        | H::CODE << 10
        | left << 15
        | right << 16
        | (columns / 8) << 17
        | (rows / 16) << 24
}

/// The thread that multiplies: shows that its code runs in one thread.
#[derive(Debug)]
pub struct MultiplyingThread<'w, 'k, G: BlockGroup = OneBlock> {
    k: Kernel<'k>,
    here: PhantomData<&'w G>,
}

impl<'k, G: BlockGroup> MultiplyingThread<'_, 'k, G> {
    pub(crate) fn kernel(&self) -> Kernel<'k> {
        self.k
    }
}

impl<'k> Kernel<'k> {
    /// Runs `body` in one thread of warp `warp`, always the same one: a commit covers the products
    /// of its own thread alone. The whole warp comes here.
    #[track_caller]
    pub fn multiplying_thread(&self, warp: u32, body: impl Fn(&MultiplyingThread<'_, 'k>)) {
        self.multiplying_thread_of::<OneBlock>(warp, body);
    }

    /// The same for a group: of a pair it is a thread of the leader, which multiplies for both.
    #[track_caller]
    pub fn multiplying_thread_of<G: BlockGroup>(
        &self,
        warp: u32,
        body: impl Fn(&MultiplyingThread<'_, 'k, G>),
    ) {
        self.require(Feature::Tcgen05);
        if warp >= self.warps() {
            self.fail_with(crate::Problem::OutOfRange {
                what: "the number of the multiplying warp".into(),
                value: warp.into(),
                low: 0,
                high: i64::from(self.warps()) - 1,
            });
        }
        self.if_(self.warp_uniform().eq(warp) & self.leads::<G>(), || {
            self.if_(self.elect(), || {
                body(&MultiplyingThread {
                    k: *self,
                    here: PhantomData,
                });
            });
            self.sync_warp();
        });
    }
}

/// The writing end of [`Accumulators`].
#[derive(Debug)]
pub struct AccumulatorWriter<'t, 'k, G: BlockGroup = OneBlock> {
    accumulators: Accumulators<'t, 'k, G>,
    cursor: RingCursor<'k>,
}

/// The multiplications into one accumulator, up to their commit.
#[derive(Debug)]
pub struct Product<'p, 'k, G: BlockGroup = OneBlock> {
    k: Kernel<'k>,
    to: Val<'k, u32>,
    columns: u32,
    /// Whether the accumulator holds a product already.
    begun: Var<'k, bool>,
    thread: PhantomData<&'p G>,
}

impl<'t, 'k, G: BlockGroup> Accumulators<'t, 'k, G> {
    /// The writing end, for the multiplying thread.
    #[track_caller]
    pub fn writer(&self) -> AccumulatorWriter<'t, 'k, G> {
        AccumulatorWriter {
            accumulators: *self,
            cursor: self.cursor(1),
        }
    }
}

impl<'k, G: BlockGroup> AccumulatorWriter<'_, 'k, G> {
    /// One product: waits until the next accumulator has been read, multiplies as `body` says, and
    /// commits, which tells the readers when all of it is done. The thread goes on before that.
    #[track_caller]
    pub fn product(
        &self,
        thread: &MultiplyingThread<'_, 'k, G>,
        body: impl FnOnce(&Product<'_, 'k, G>),
    ) {
        let k = thread.k;
        let stage = self.cursor.stage();
        let [full, empty] = self.accumulators.barriers(stage);
        empty.wait_for_copies(self.cursor.parity());
        // The readers' loads come before, the products after.
        k.effect("tcgen05.fence::after_thread_sync", vec![]);
        body(&Product {
            k,
            to: self.accumulators.place(stage),
            columns: self.accumulators.columns(),
            begun: k.var(false).named("begun"),
            thread: PhantomData,
        });
        commit::<G>(k, full);
        self.cursor.advance();
    }
}

/// One arrival at `barrier`, in every block of the group, when everything that this thread has
/// started is done.
#[track_caller]
pub(crate) fn commit<'k, G: BlockGroup>(k: Kernel<'k>, barrier: Mbarrier<'k>) {
    let group = (1u32 << G::BLOCKS) - 1;
    commit_to::<G>(
        k,
        barrier,
        (G::BLOCKS > 1).then(|| k.c(group) << k.leader::<G>()),
    );
}

/// The same in the blocks whose bits are set, or in this one.
#[track_caller]
pub(crate) fn commit_to<'k, G: BlockGroup>(
    k: Kernel<'k>,
    barrier: Mbarrier<'k>,
    blocks: Option<Val<'k, u32>>,
) {
    let mut operands = vec![barrier.operand()];
    let mut multicast = "";
    if let Some(blocks) = blocks {
        multicast = ".multicast::cluster";
        operands.push(blocks.cast::<u16>().register().into());
    }
    k.effect(
        format!(
            "tcgen05.commit.{}.mbarrier::arrive::one.shared::cluster{multicast}.b64",
            G::MODIFIER
        ),
        operands,
    );
}

impl<'k, G: BlockGroup> Product<'_, 'k, G> {
    pub(crate) fn kernel(&self) -> Kernel<'k> {
        self.k
    }

    /// Adds the product of 128 rows of `a` and as many columns of `b` as the accumulator has, one
    /// step deep. The first of a product replaces what was there.
    ///
    /// In a pair `a` is the 128 rows and `b` half of the columns that each block has in its own
    /// shared memory, in the same place.
    #[track_caller]
    pub fn mma<H: TensorInput>(&self, a: TensorOperand<'k, H>, b: TensorOperand<'k, H>) {
        self.multiply(a.operand(), a.across, b);
    }

    /// The same with any left operand, whose rows may run across the depth.
    #[track_caller]
    pub(crate) fn multiply<H: TensorInput>(
        &self,
        left: Opnd,
        across: bool,
        b: TensorOperand<'k, H>,
    ) {
        let [rows, columns] = self.shape();
        let shape = instruction_descriptor::<H>([across, b.across], rows, columns);
        self.issue(H::KIND, [left, b.operand()], shape, vec![]);
    }

    /// Rows and columns of the result, of all blocks of the group.
    pub(crate) fn shape(&self) -> [u32; 2] {
        [ACCUMULATOR_ROWS * G::BLOCKS, self.columns]
    }

    /// One instruction: of a kind, with both factors, their types and shape, and where their scales
    /// are.
    #[track_caller]
    pub(crate) fn issue(
        &self,
        kind: &str,
        [left, right]: [Opnd; 2],
        descriptor: u32,
        scales: Vec<Opnd>,
    ) {
        let k = self.k;
        let to = Opnd::Address(Base::Reg(self.to.register()), 0);
        let mut operands = vec![to, left, right, k.c(descriptor).register().into()];
        operands.extend(scales);
        operands.push(self.begun.reg.into());
        k.effect(
            format!("tcgen05.mma.{}.kind::{kind}", G::MODIFIER),
            operands,
        );
        self.begun.set(true);
    }
}

impl<'k, S: StageSpec> BulkConsumer<'_, 'k, S> {
    /// Waits for the next stage and multiplies it; it is given back when the tensor cores have read
    /// it. The ring has one consumer, the multiplying thread.
    #[track_caller]
    pub fn multiply(&self, product: &Product<'_, 'k>, work: impl FnOnce(S::Ready<'k>)) {
        let k = product.k;
        let empty = self.next_by_one_thread(work);
        if empty.arrivals() != 1 {
            k.fail(format!(
                "a ring that {} consumers give back is multiplied: a commit is one arrival, so make it for 1",
                empty.arrivals()
            ));
        }
        commit::<OneBlock>(k, empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Constants that Triton and CUTLASS have written for the same shapes.
    #[test]
    fn descriptors_are_those_of_other_compilers() {
        // M = 128, N = 256, bf16 into f32, both along the depth.
        assert_eq!(
            instruction_descriptor::<bf16>([false; 2], 128, 256),
            0x0840_0490
        );
        // M = 64, N = 64, f16 into f32, the right one across the depth.
        assert_eq!(
            instruction_descriptor::<f16>([false, true], 64, 64),
            0x0411_0010
        );
        // A pair's product has 256 rows.
        assert_eq!(
            instruction_descriptor::<bf16>([false; 2], 256, 256),
            0x1040_0490
        );
        assert_eq!(matrix_fields(1), 0x4000_4040_0001_0000);
    }
}
