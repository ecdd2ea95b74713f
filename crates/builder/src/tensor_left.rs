//! Left operands in tensor memory: warps store them row by row, `tcgen05.mma` multiplies them
//! with matrices in shared memory.
//!
//! ```text
//!   writers (whole warps)               reader (the multiplying thread)
//!   write(|rows| rows.store(..)) --full--> multiply(product, |left| product.mma_left(..))
//!        ^                                     |
//!        +----------- empty, by commit --------+
//! ```
//!
//! [`LeftOperands`] are a ring: while one is multiplied, the next one is stored. When the writers
//! know that everything they have handed over is multiplied ([`LeftWriter::when_multiplied`]), the
//! sums so far hold still, and can be changed ([`AccumulatorReader::change`]): that is how
//! attention brings its results to another scale between two products.

use crate::emit::{Base, Opnd};
use crate::error::Problem;
use crate::group::OneBlock;
use crate::kernel::Kernel;
use crate::mbarrier::{BarrierSpec, Mbarriers, RingCursor};
use crate::scalar::Half;
use crate::tcgen05::{Product, TensorInput, TensorOperand, commit};
use crate::tensor_memory::{AccumulatorReader, TensorMemory, TensorSums};
use crate::value::Val;
use std::marker::PhantomData;

/// Words of one step of the depth: 16 halves.
const STEP_WORDS: u32 = 8;

/// A ring of left operands in tensor memory: 128 rows of halves.
#[derive(Debug)]
pub struct LeftOperands<'t, 'k, H> {
    k: Kernel<'k>,
    first: Val<'k, u32>,
    /// Words of a row, each two halves.
    words: u32,
    count: u32,
    full: Mbarriers<'k>,
    empty: Mbarriers<'k>,
    brand: PhantomData<fn(&'t H) -> &'t H>,
}
impl<H> Clone for LeftOperands<'_, '_, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for LeftOperands<'_, '_, H> {}

impl<'t, 'k> TensorMemory<'t, 'k> {
    /// A ring of `count` left operands of 128 rows and `depth` halves (a multiple of 16), each
    /// stored by `writers` warps: four neighbours, or several times four. The whole block takes part
    /// in making it.
    #[track_caller]
    pub fn left_operands<H: TensorInput + Half>(
        &self,
        count: u32,
        depth: u32,
        writers: u32,
    ) -> LeftOperands<'t, 'k, H> {
        let k = self.kernel();
        k.must_divide("the depth of a left operand", depth.into(), 16);
        k.must_divide("the warps that store a left operand", writers.into(), 4);
        for (what, value, high) in [
            ("the depth of a left operand", depth, 1024),
            ("the left operands of a ring", count, 16),
            ("the warps that store a left operand", writers, k.warps()),
        ] {
            k.must_be_up_to(what, value, high);
        }
        let words = depth / 2;
        let first = self.take(count * words);
        let [full, empty] = k.mbarriers([
            BarrierSpec {
                name: "left_full",
                count,
                arrivals: writers.max(1),
            },
            BarrierSpec {
                name: "left_empty",
                count,
                arrivals: 1,
            },
        ]);
        LeftOperands {
            k,
            first,
            words,
            count,
            full,
            empty,
            brand: PhantomData,
        }
    }
}

impl<'t, 'k, H> LeftOperands<'t, 'k, H> {
    /// The storing end, for whole warps.
    #[track_caller]
    pub fn writer(&self) -> LeftWriter<'t, 'k, H> {
        let k = self.k;
        LeftWriter {
            operands: *self,
            cursor: k.ring_cursor(self.count, 1),
            lanes: (k.warp_uniform() & 3) << 21,
        }
    }

    /// The end that multiplies, for the multiplying thread.
    #[track_caller]
    pub fn reader(&self) -> LeftReader<'t, 'k, H> {
        LeftReader {
            operands: *self,
            cursor: self.k.ring_cursor(self.count, 0),
        }
    }

    #[track_caller]
    fn place(&self, stage: Val<'k, u32>) -> Val<'k, u32> {
        stage.mul_add(self.words, self.first)
    }
}

/// The storing end of [`LeftOperands`].
#[derive(Debug)]
pub struct LeftWriter<'t, 'k, H> {
    operands: LeftOperands<'t, 'k, H>,
    cursor: RingCursor<'k>,
    /// The first lane that this warp may store, where addresses have it.
    lanes: Val<'k, u32>,
}

/// The rows of a left operand while they are stored: a thread has one.
#[derive(Debug)]
pub struct LeftRows<'w, 'k> {
    k: Kernel<'k>,
    /// The first column, in the lanes of this warp.
    at: Val<'k, u32>,
    words: u32,
    here: PhantomData<&'w ()>,
}

/// Shows that the products of all left operands so far are done.
#[derive(Debug)]
pub struct Multiplied<'w> {
    here: PhantomData<&'w ()>,
}

impl<'k, H> LeftWriter<'_, 'k, H> {
    /// Waits until the next operand may be stored, stores it as `work` says, and hands it over.
    /// Whole warps call it, as many as the ring was made for.
    #[track_caller]
    pub fn write(&self, work: impl FnOnce(&LeftRows<'_, 'k>)) {
        let LeftOperands { k, full, empty, .. } = self.operands;
        let stage = self.cursor.stage();
        empty.at(stage).wait_for_copies(self.cursor.parity());
        // The product that read it comes before, the stores after.
        k.effect("tcgen05.fence::after_thread_sync", vec![]);
        work(&LeftRows {
            k,
            at: self.operands.place(stage) + self.lanes,
            words: self.operands.words,
            here: PhantomData,
        });
        k.effect("tcgen05.wait::st.sync.aligned", vec![]);
        k.effect("tcgen05.fence::before_thread_sync", vec![]);
        k.sync_warp();
        k.if_(k.elect(), || full.at(stage).arrive());
        self.cursor.advance();
    }

    /// Waits until all operands that were handed over are multiplied: one at least was. `work` comes
    /// before the next one, so the sums hold still meanwhile.
    #[track_caller]
    pub fn when_multiplied<R>(&self, work: impl FnOnce(&Multiplied<'_>) -> R) -> R {
        let LeftOperands {
            k, count, empty, ..
        } = self.operands;
        let next = self.cursor.stage();
        let wrapped = next.eq(0);
        let last = wrapped.select(k.c(count - 1), next - 1);
        let parity = self.cursor.parity() ^ wrapped.select(0u32, 1u32);
        empty.at(last).wait_for_copies(parity);
        k.effect("tcgen05.fence::after_thread_sync", vec![]);
        work(&Multiplied { here: PhantomData })
    }
}

impl<'k> LeftRows<'_, 'k> {
    /// Stores `N` words of this thread's row, from word `first` on: two halves each, the first in
    /// the low bits. `N` is a power of two up to 128.
    #[track_caller]
    pub fn store<const N: usize>(&self, first: u32, words: [Val<'k, u32>; N]) {
        store(
            self.k,
            self.at,
            self.words,
            first,
            words.map(|word| word.register().into()),
        );
    }
}

/// Stores neighbours of a row of `columns` columns that begins at `at`.
#[track_caller]
fn store<'k, const N: usize>(
    k: Kernel<'k>,
    at: Val<'k, u32>,
    columns: u32,
    first: u32,
    values: [Opnd; N],
) {
    const {
        assert!(
            N.is_power_of_two() && N <= 128,
            "a store takes a power of two of columns, up to 128"
        );
    }
    let end = i64::from(first) + N as i64;
    if end > columns.into() {
        k.fail_with(Problem::OutOfRange {
            what: "the end of a store to tensor memory".into(),
            value: end,
            low: 0,
            high: columns.into(),
        });
    }
    k.effect(
        format!("tcgen05.st.sync.aligned.32x32b.x{N}.b32"),
        vec![
            Opnd::Address(Base::Reg(at.register()), first.into()),
            Opnd::Vector(values.into()),
        ],
    );
}

/// The end of [`LeftOperands`] that multiplies.
#[derive(Debug)]
pub struct LeftReader<'t, 'k, H> {
    operands: LeftOperands<'t, 'k, H>,
    cursor: RingCursor<'k>,
}

/// A left operand in tensor memory.
#[derive(Debug)]
pub struct TensorLeft<'p, 'k, H> {
    at: Val<'k, u32>,
    of: PhantomData<fn(&'p H) -> &'p H>,
}
impl<H> Clone for TensorLeft<'_, '_, H> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<H> Copy for TensorLeft<'_, '_, H> {}

impl<'k, H> TensorLeft<'_, 'k, H> {
    /// The same, `step` steps of 16 halves further along the depth.
    #[track_caller]
    pub fn step(&self, step: u32) -> Self {
        TensorLeft {
            at: self.at + step * STEP_WORDS,
            of: PhantomData,
        }
    }
}

impl<'k, H: TensorInput> LeftReader<'_, 'k, H> {
    /// Waits for the next operand and multiplies it; it is given back when the tensor cores have
    /// read it.
    #[track_caller]
    pub fn multiply(&self, product: &Product<'_, 'k>, work: impl FnOnce(TensorLeft<'_, 'k, H>)) {
        let LeftOperands { k, full, empty, .. } = self.operands;
        let stage = self.cursor.stage();
        full.at(stage).wait_for_copies(self.cursor.parity());
        // The writers' stores come before, the products after.
        k.effect("tcgen05.fence::after_thread_sync", vec![]);
        work(TensorLeft {
            at: self.operands.place(stage),
            of: PhantomData,
        });
        commit::<OneBlock>(product.kernel(), empty.at(stage));
        self.cursor.advance();
    }
}

impl<'k> Product<'_, 'k> {
    /// Adds the product of 128 rows of `a`, which are in tensor memory, and as many columns of `b`
    /// as the accumulator has, one step deep. The first of a product replaces what was there.
    #[track_caller]
    pub fn mma_left<H: TensorInput>(&self, a: TensorLeft<'_, 'k, H>, b: TensorOperand<'k, H>) {
        let left = Opnd::Address(Base::Reg(a.at.register()), 0);
        self.multiply(left, false, b);
    }
}

/// Sums that can be loaded and replaced.
#[derive(Debug)]
pub struct ChangingSums<'k> {
    sums: TensorSums<'k>,
}

impl<'k> std::ops::Deref for ChangingSums<'k> {
    type Target = TensorSums<'k>;
    fn deref(&self) -> &TensorSums<'k> {
        &self.sums
    }
}

impl<'k> ChangingSums<'k> {
    /// Replaces `N` neighbours of this thread's row, from column `first` on.
    #[track_caller]
    pub fn store<const N: usize>(&self, first: u32, values: [Val<'k, f32>; N]) {
        let (k, at) = self.sums.place();
        let values = values.map(|value| value.register().into());
        store(k, at, self.sums.columns(), first, values);
    }
}

impl<'k> AccumulatorReader<'_, 'k> {
    /// Changes sums in the middle of a product, each thread its row, while they hold still: all left
    /// operands of the product so far are multiplied, and the next one is not handed over yet.
    #[track_caller]
    pub fn change(&self, _: &Multiplied<'_>, work: impl FnOnce(&ChangingSums<'k>)) {
        let changing = ChangingSums {
            sums: self.current(),
        };
        let k = changing.sums.place().0;
        work(&changing);
        changing.sums.all_waited_for();
        k.effect("tcgen05.wait::st.sync.aligned", vec![]);
        // What this warp hands over next comes after it.
        k.effect("tcgen05.fence::before_thread_sync", vec![]);
    }
}
