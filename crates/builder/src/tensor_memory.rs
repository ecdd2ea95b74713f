//! Tensor memory: 128 lanes by up to 512 columns of 32 bits, which `tcgen05` works in.
//!
//! It belongs to a closure ([`Kernel::tensor_memory`]): one warp allocates it before, gives up the
//! right to allocate more, and frees it after, whatever the closure does. How much is allocated
//! follows from the accumulators that the closure makes. Nothing in it can be kept for longer.
//!
//! ```text
//!   writer (one thread)              readers (whole warps)
//!   product(|p| p.mma(..)) --commit--> read(|sums| sums.load(..).wait())
//!        ^                                  |
//!        +------------- empty --------------+
//! ```
//!
//! [`Accumulators`] are a ring: while one is read, the next one is multiplied. A result can be
//! loaded only after its commit was waited for, and the registers of a load can be used only after
//! its own wait. The fences that order threads (`before_thread_sync`, `after_thread_sync`) are
//! part of these steps.

use crate::emit::{Base, Line, Opnd, TensorMemoryUse};
use crate::error::Problem;
use crate::group::{BlockGroup, OneBlock};
use crate::kernel::{Kernel, number};
use crate::mbarrier::{BarrierSpec, Mbarrier, Mbarriers, RingCursor};
use crate::scalar::Class;
use crate::value::{IntoVal, Val};
use heist_ptx::arch::Feature;
use std::cell::Cell;
use std::marker::PhantomData;

/// Rows of an accumulator: one for each lane.
pub(crate) const ACCUMULATOR_ROWS: u32 = 128;
/// Columns that a block can have.
const MOST_COLUMNS: u32 = 512;
/// Columns that are allocated at least.
const LEAST_COLUMNS: u32 = 32;

/// Tensor memory of this block, for as long as the closure that received it runs.
pub struct TensorMemory<'t, 'k, G: BlockGroup = OneBlock> {
    k: Kernel<'k>,
    /// The address that the allocation returned.
    base: Val<'k, u32>,
    /// Columns that accumulators have taken.
    taken: Cell<u32>,
    /// Invariant, so that nothing of it passes for something that lives longer.
    brand: PhantomData<fn(&'t G) -> &'t G>,
}

impl<G: BlockGroup> std::fmt::Debug for TensorMemory<'_, '_, G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorMemory({} columns)", self.taken.get())
    }
}

impl<'k> Kernel<'k> {
    /// Tensor memory for the time of `body`, as much as it asks for. The whole block comes here,
    /// outside of any branch or loop, and once in a kernel: warp 0 allocates it and gives up the
    /// right to allocate more, so that other blocks can, and frees it at the end.
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct Args { a: TensorMap<f16, 2>, out: Global<f32>, steps: u32 } }
    /// # let built = KernelSpec::<Args>::new("k").block(192).build(Arch::SM_100A, |k, args| {
    /// let tile = |name| TileSpec::<f16>::new(name, 128, 64, TileLayout::Swizzled);
    /// let ring = k.bulk_pipeline::<2, _>((tile("a"), tile("b")), 1);
    /// k.tensor_memory(|memory| {
    ///     let sums = memory.accumulators(1, 128, 4);
    ///     // ... warp 0 fills the ring ...
    ///     let (consumer, writer, reader) = (ring.consumer(), sums.writer(), sums.reader());
    ///     k.multiplying_thread(1, |thread| {
    ///         writer.product(thread, |product| {
    ///             k.for_range(0, args.steps, |_| {
    ///                 consumer.multiply(product, |(a, b)| {
    ///                     let (a, b) = (a.tensor_operand::<f16>(0), b.tensor_operand(0));
    ///                     (0..4).for_each(|step| product.mma(a.step(step), b.step(step)));
    ///                 });
    ///             });
    ///         });
    ///     });
    ///     k.if_(k.warp_uniform().ge(2), || {
    ///         reader.read(|sums| {
    ///             let row = sums.load::<32>(0).wait();
    ///             args.out.at(sums.row()).store(row[0]);
    ///         });
    ///     });
    /// });
    /// # });
    /// # assert!(heist_ptx::print(&built.unwrap().module).contains("tcgen05.alloc"));
    /// ```
    #[track_caller]
    pub fn tensor_memory<R>(&self, body: impl for<'t> FnOnce(&TensorMemory<'t, 'k>) -> R) -> R {
        self.tensor_memory_of::<OneBlock, R>(body)
    }

    /// The same for a group of blocks. Both blocks of a pair come here; each has tensor memory of
    /// its own, allocated and freed by both together.
    ///
    /// ```
    /// # use heist_builder::*;
    /// # kernel_params! { pub struct Args { a: TensorMap<f16, 2>, out: Global<f32>, steps: u32 } }
    /// # let spec = KernelSpec::<Args>::new("k").block(192).cluster([2, 1, 1]);
    /// # let built = spec.build(Arch::SM_100A, |k, args| {
    /// let tile = |name, rows| TileSpec::<f16>::new(name, rows, 64, TileLayout::Swizzled);
    /// // Of a product of 256 rows and 256 columns each block holds 128 and 128.
    /// let ring = k.tensor_ring::<PairOfBlocks, _>(2, (tile("a", 128), tile("b", 128)));
    /// k.tensor_memory_of::<PairOfBlocks, _>(|memory| {
    ///     let sums = memory.accumulators(1, 256, 4);
    ///     // ... warp 0 of both blocks fills the ring ...
    ///     let (consumer, writer) = (ring.consumer(), sums.writer());
    ///     k.multiplying_thread_of(1, |thread| {
    ///         writer.product(thread, |product| {
    ///             k.for_range(0, args.steps, |_| {
    ///                 consumer.multiply(product, |(a, b)| {
    ///                     let (a, b) = (a.tensor_operand::<f16>(0), b.tensor_operand(0));
    ///                     (0..4).for_each(|step| product.mma(a.step(step), b.step(step)));
    ///                 });
    ///             });
    ///         });
    ///     });
    ///     // ... warps 2 to 5 of both blocks read their 128 rows: sums.reader() ...
    /// });
    /// # });
    /// # assert!(heist_ptx::print(&built.unwrap().module).contains("tcgen05.mma.cta_group::2"));
    /// ```
    #[track_caller]
    pub fn tensor_memory_of<G: BlockGroup, R>(
        &self,
        body: impl for<'t> FnOnce(&TensorMemory<'t, 'k, G>) -> R,
    ) -> R {
        self.require(Feature::Tcgen05);
        let group = G::MODIFIER;
        self.has_group::<G>();
        let before = self.rec.tensor_memory.replace(TensorMemoryUse::Now);
        if before != TensorMemoryUse::Never {
            self.fail("tensor memory is taken twice: once in a kernel, since the right to allocate is given up");
        }
        if self.rec.depth.get() != 0 {
            self.fail("tensor memory inside of a branch or loop: the whole block takes it, once");
        }
        self.comment("allocate tensor memory");
        let slot = self.shared::<u32>("tensor_memory", 1).ptr();
        let allocation = self.by_the_allocating_warp(|| {
            let line = self.rec.body.borrow().len();
            self.effect(
                format!("tcgen05.alloc.{group}.sync.aligned.shared::cta.b32"),
                vec![slot.operand(), number(0)],
            );
            self.effect(
                format!("tcgen05.relinquish_alloc_permit.{group}.sync.aligned"),
                vec![],
            );
            line
        });
        self.sync();
        let memory = TensorMemory {
            k: *self,
            base: slot.load().named("tensor_base"),
            taken: Cell::new(0),
            brand: PhantomData,
        };
        let result = body(&memory);
        let columns = memory.columns();
        if let Some(Line::Op(op)) = self.rec.body.borrow_mut().get_mut(allocation)
            && let Some(size) = op.operands.last_mut()
        {
            *size = number(columns.into());
        }
        self.comment("free tensor memory");
        self.effect("tcgen05.fence::before_thread_sync", vec![]);
        if G::BLOCKS > 1 {
            // Neither block's is freed while the other one's warps still use theirs.
            self.cluster_sync();
        } else {
            self.sync();
        }
        self.effect("tcgen05.fence::after_thread_sync", vec![]);
        self.by_the_allocating_warp(|| {
            self.effect(
                format!("tcgen05.dealloc.{group}.sync.aligned.b32"),
                vec![memory.base.register().into(), number(columns.into())],
            );
        });
        self.rec.tensor_memory.set(TensorMemoryUse::Before);
        result
    }

    /// Warp 0 allocates and frees.
    #[track_caller]
    fn by_the_allocating_warp<R>(&self, body: impl FnOnce() -> R) -> R {
        let end = self.rec.label("endif");
        self.branch_unless(self.warp_uniform().eq(0), end);
        let result = self.rec.deeper(body);
        self.rec.line(Line::Label(end));
        result
    }
}

impl<'t, 'k, G: BlockGroup> TensorMemory<'t, 'k, G> {
    /// Columns to allocate: what was asked for, rounded up to a power of two.
    #[track_caller]
    fn columns(&self) -> u32 {
        let taken = self.taken.get();
        self.k
            .must_be_up_to("the columns of tensor memory", taken, MOST_COLUMNS);
        taken.clamp(LEAST_COLUMNS, MOST_COLUMNS).next_power_of_two()
    }

    /// Where so many columns begin that nothing else has.
    #[track_caller]
    pub(crate) fn take(&self, columns: u32) -> Val<'k, u32> {
        let first = self.taken.get();
        self.taken.set(first + columns);
        self.base + first
    }

    pub(crate) fn kernel(&self) -> Kernel<'k> {
        self.k
    }

    /// A ring of `count` accumulators of 128 rows and `columns` columns (a multiple of 16, up to
    /// 256) of f32, each read by `readers` warps: four neighbours, or several times four. The whole
    /// block takes part in making it. In a pair each block has 128 rows of a product of 256.
    #[track_caller]
    pub fn accumulators(&self, count: u32, columns: u32, readers: u32) -> Accumulators<'t, 'k, G> {
        let k = self.k;
        k.must_divide("the columns of an accumulator", columns.into(), 16);
        k.must_divide("the warps that read an accumulator", readers.into(), 4);
        for (what, value, high) in [
            ("the columns of an accumulator", columns, 256),
            ("the accumulators of a ring", count, 16),
            ("the warps that read an accumulator", readers, k.warps()),
        ] {
            k.must_be_up_to(what, value, high);
        }
        let first = self.take(count * columns);
        let [full, empty] = k.mbarriers([
            BarrierSpec {
                name: "sums_full",
                count,
                arrivals: 1,
            },
            BarrierSpec {
                name: "sums_empty",
                count,
                arrivals: readers.max(1) * G::BLOCKS,
            },
        ]);
        Accumulators {
            k,
            first,
            columns,
            count,
            full,
            empty,
            brand: PhantomData,
        }
    }
}

/// A ring of accumulators in tensor memory.
#[derive(Debug)]
pub struct Accumulators<'t, 'k, G: BlockGroup = OneBlock> {
    k: Kernel<'k>,
    first: Val<'k, u32>,
    columns: u32,
    count: u32,
    full: Mbarriers<'k>,
    empty: Mbarriers<'k>,
    brand: PhantomData<fn(&'t G) -> &'t G>,
}
impl<G: BlockGroup> Clone for Accumulators<'_, '_, G> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<G: BlockGroup> Copy for Accumulators<'_, '_, G> {}

impl<'t, 'k, G: BlockGroup> Accumulators<'t, 'k, G> {
    /// Columns of each.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The reading end, for whole warps.
    #[track_caller]
    pub fn reader(&self) -> AccumulatorReader<'t, 'k, G> {
        AccumulatorReader {
            accumulators: *self,
            cursor: self.cursor(0),
            lanes: (self.k.warp_uniform() & 3) << 21,
        }
    }

    #[track_caller]
    pub(crate) fn cursor(&self, parity: u32) -> RingCursor<'k> {
        self.k.ring_cursor(self.count, parity)
    }

    /// The barriers that say that it is full, and empty.
    #[track_caller]
    pub(crate) fn barriers(&self, stage: Val<'k, u32>) -> [Mbarrier<'k>; 2] {
        [self.full.at(stage), self.empty.at(stage)]
    }

    /// Where it begins.
    #[track_caller]
    pub(crate) fn place(&self, stage: Val<'k, u32>) -> Val<'k, u32> {
        stage.mul_add(self.columns, self.first)
    }
}

/// The reading end of [`Accumulators`].
#[derive(Debug)]
pub struct AccumulatorReader<'t, 'k, G: BlockGroup = OneBlock> {
    accumulators: Accumulators<'t, 'k, G>,
    cursor: RingCursor<'k>,
    /// The first lane that this warp may read, where addresses have it.
    lanes: Val<'k, u32>,
}

/// An accumulator whose product is done.
#[derive(Debug)]
pub struct TensorSums<'k> {
    k: Kernel<'k>,
    /// The first column, in the lanes of this warp.
    at: Val<'k, u32>,
    columns: u32,
    /// Loads that were not waited for.
    pending: Cell<u32>,
}

impl<'k, G: BlockGroup> AccumulatorReader<'_, 'k, G> {
    /// Waits for the next product and reads it; afterwards the accumulator can be multiplied
    /// again. Whole warps call it, as many as the ring was made for.
    #[track_caller]
    pub fn read<R>(&self, work: impl FnOnce(&TensorSums<'k>) -> R) -> R {
        let k = self.accumulators.k;
        let stage = self.cursor.stage();
        let [full, empty] = self.accumulators.barriers(stage);
        full.wait_for_copies(self.cursor.parity());
        k.effect("tcgen05.fence::after_thread_sync", vec![]);
        let sums = self.current();
        let result = work(&sums);
        sums.all_waited_for();
        k.effect("tcgen05.fence::before_thread_sync", vec![]);
        k.sync_warp();
        k.if_(k.elect(), || match G::BLOCKS {
            1 => empty.arrive(),
            // The writer is in the leader.
            _ => empty.on(k.leader::<G>()).arrive_after_reading(),
        });
        self.cursor.advance();
        result
    }
}

impl<'k, G: BlockGroup> AccumulatorReader<'_, 'k, G> {
    /// The accumulator that it is at, whatever its product is at.
    #[track_caller]
    pub(crate) fn current(&self) -> TensorSums<'k> {
        TensorSums {
            k: self.accumulators.k,
            at: self.accumulators.place(self.cursor.stage()) + self.lanes,
            columns: self.accumulators.columns,
            pending: Cell::new(0),
        }
    }
}

impl<'k> TensorSums<'k> {
    /// Fails where a load was not waited for.
    #[track_caller]
    pub(crate) fn all_waited_for(&self) {
        if self.pending.get() != 0 {
            self.k
                .fail("sums are given back while a load of them is in flight: `.wait()` for it");
        }
    }

    /// The first column, in the lanes of this warp.
    pub(crate) fn place(&self) -> (Kernel<'k>, Val<'k, u32>) {
        (self.k, self.at)
    }

    /// Columns that there are.
    pub fn columns(&self) -> u32 {
        self.columns
    }

    /// The row that this thread reads: of 128, as its warp and lane say.
    #[track_caller]
    pub fn row(&self) -> Val<'k, u32> {
        ((self.k.warp() & 3) << 5) + self.k.lane()
    }

    /// Starts loading `N` neighbours of this thread's row, from column `first` on. `N` is a power
    /// of two up to 128.
    #[track_caller]
    pub fn load<'s, const N: usize>(
        &'s self,
        first: impl IntoVal<'k, u32>,
    ) -> LoadingSums<'s, 'k, N> {
        const {
            assert!(
                N.is_power_of_two() && N <= 128,
                "a load takes a power of two of columns, up to 128"
            );
        }
        let k = self.k;
        let first = first.into_val(&k);
        let (base, further) = match first.known() {
            Some(known) => {
                if known + N as u32 > self.columns {
                    k.fail_with(Problem::OutOfRange {
                        what: "the end of a load from an accumulator".into(),
                        value: i64::from(known) + N as i64,
                        low: 0,
                        high: self.columns.into(),
                    });
                }
                (self.at, i64::from(known))
            }
            None => (self.at + first, 0),
        };
        let values = [(); N].map(|()| Val::from_reg(k, k.rec.reg(Class::F32)));
        let registers = values.iter().map(|value| value.register().into()).collect();
        k.effect(
            format!("tcgen05.ld.sync.aligned.32x32b.x{N}.b32"),
            vec![
                Opnd::Vector(registers),
                Opnd::Address(Base::Reg(base.register()), further),
            ],
        );
        self.pending.set(self.pending.get() + 1);
        LoadingSums { of: self, values }
    }
}

/// Sums on their way to registers.
#[must_use = "a load from tensor memory must be waited for: call `.wait()`"]
#[derive(Debug)]
pub struct LoadingSums<'s, 'k, const N: usize> {
    of: &'s TensorSums<'k>,
    values: [Val<'k, f32>; N],
}

impl<'k, const N: usize> LoadingSums<'_, 'k, N> {
    /// Waits for this and every earlier load, and gives the sums.
    #[track_caller]
    pub fn wait(self) -> [Val<'k, f32>; N] {
        let pending = &self.of.pending;
        pending.set(pending.get() - 1);
        self.of.k.effect("tcgen05.wait::ld.sync.aligned", vec![]);
        self.values
    }
}
