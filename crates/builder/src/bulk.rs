//! Bulk copies: one thread issues them, the copy engine (TMA) moves whole rows and tiles, and an
//! mbarrier counts the bytes.
//!
//! [`Mbarrier::fill`] sums the bytes of its copies, so the expected bytes are always right.

use crate::emit::{Line, Opnd};
use crate::group::{BlockGroup, OneBlock};
use crate::kernel::{Kernel, number};
use crate::mbarrier::{Mbarrier, RemoteMbarrier};
use crate::pointer::{Global, Ptr, Shared};
use crate::scalar::Storable;
use crate::tensor_map::TensorMapRef;
use crate::value::{IntoVal, Val};
use heist_ptx::arch::Feature;
use std::cell::Cell;

/// The destination of bulk copies: can be filled, not read.
#[derive(Debug)]
pub struct Landing<'k, T> {
    at: Ptr<'k, Shared, T>,
    bytes: u32,
}
impl<T> Clone for Landing<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Landing<'_, T> {}

impl<'k, T: Storable> Landing<'k, T> {
    pub(crate) fn new(at: Ptr<'k, Shared, T>, bytes: u32) -> Landing<'k, T> {
        Landing { at, bytes }
    }

    /// How many bytes it takes.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The same bytes for elements of another type.
    pub fn cast<U: Storable>(&self) -> Landing<'k, U> {
        Landing::new(self.at.cast(), self.bytes)
    }

    /// The part of `len` elements from element `from` on.
    #[track_caller]
    pub fn part(&self, from: u32, len: u32) -> Landing<'k, T> {
        let end = u64::from(from + len) * u64::from(T::BYTES);
        if end > self.bytes.into() {
            self.at.k.fail_with(crate::Problem::OutOfRange {
                what: "the end of a part of a landing in bytes".into(),
                value: end as i64,
                low: 0,
                high: self.bytes.into(),
            });
        }
        Landing::new(self.at.at(from), len * T::BYTES)
    }

    /// The part of `len` elements from an element on that is known only in the kernel:
    /// it must lie inside.
    #[track_caller]
    pub fn part_at(&self, from: impl IntoVal<'k, u32>, len: u32) -> Landing<'k, T> {
        let from = from.into_val(&self.at.k);
        if let Some(from) = from.known() {
            return self.part(from, len);
        }
        Landing::new(self.at.at(from), len * T::BYTES)
    }
}

/// The copies that one filling of a barrier waits for.
#[derive(Debug)]
pub struct Transaction<'k> {
    k: Kernel<'k>,
    barrier: Mbarrier<'k>,
    /// The leader's barrier, where a pair of blocks fills a stage together.
    pair: Option<RemoteMbarrier<'k>>,
    bytes: Cell<u32>,
    depth: u32,
}

impl<'k> Mbarrier<'k> {
    /// One thread arrives, and starts the copies that `copies` asks for. The
    /// barrier expects exactly their bytes.
    ///
    /// A copy inside an emitted branch or loop would make the sum wrong, and
    /// fails the build.
    #[track_caller]
    pub fn fill(&self, copies: impl FnOnce(&Transaction<'k>)) {
        self.fill_in::<OneBlock>(None, copies);
    }

    /// The same in one thread of each block of a group: the leader's barrier expects the bytes of
    /// all of them, which are as many in each. A block's copies may land before the leader has
    /// arrived: until then the phase can't end. Where boxes are smaller than their landings, by `less` bytes in all, as
    /// many less are expected.
    #[track_caller]
    pub(crate) fn fill_in<G: BlockGroup>(
        &self,
        less: Option<Val<'k, u32>>,
        copies: impl FnOnce(&Transaction<'k>),
    ) {
        let k = self.at.k;
        let line = Cell::new(0);
        let less = less.map(|less| k.c(0) - less);
        k.if_(k.leads::<G>(), || {
            line.set(k.rec.body.borrow().len());
            match less {
                None => self.arrive_expecting(0),
                Some(less) => {
                    let expected = k.emit::<u32>("add.u32", vec![less.operand(), number(0)]);
                    self.arrive_expecting(expected);
                }
            }
        });
        let line = line.get();
        let transaction = Transaction {
            k,
            barrier: *self,
            pair: (G::BLOCKS > 1).then(|| self.on(k.leader::<G>())),
            bytes: Cell::new(0),
            depth: k.rec.depth.get(),
        };
        copies(&transaction);
        let bytes = transaction.bytes.get() * G::BLOCKS;
        if bytes >= 1 << 20 {
            k.fail_with(crate::Problem::OutOfRange {
                what: "the bytes that a barrier expects".into(),
                value: bytes.into(),
                low: 0,
                high: (1 << 20) - 1,
            });
        }
        if let Some(Line::Op(op)) = k.rec.body.borrow_mut().get_mut(line)
            && let Some(expected) = op.operands.last_mut()
        {
            *expected = number(bytes.into());
        }
    }
}

impl<'k> Transaction<'k> {
    #[track_caller]
    fn count(&self, bytes: u32) {
        if self.k.rec.depth.get() != self.depth {
            self.k.fail(
                "a bulk copy inside an emitted branch or loop of `fill`: the barrier would expect \
                 its bytes whether it runs or not; put the branch around `fill`",
            );
        }
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Expects bytes that another block of the cluster copies into this one's memory
    /// ([`copy_tensor_multicast`](Transaction::copy_tensor_multicast)).
    #[track_caller]
    pub fn expect(&self, bytes: u32) {
        self.count(bytes);
    }

    /// Copies as many neighbours from global memory as the landing takes. Both
    /// addresses and the size are multiples of 16 bytes.
    #[track_caller]
    pub fn copy<T: Storable>(&self, to: Landing<'k, T>, from: Ptr<'k, Global, T>) {
        self.k.require(Feature::BulkCopy);
        self.by_one_block("a bulk copy of neighbours");
        self.k
            .must_divide("the bytes of a bulk copy", to.bytes.into(), 16);
        self.count(to.bytes);
        self.k.effect(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
            vec![
                to.at.operand(),
                from.operand(),
                number(to.bytes.into()),
                self.barrier.operand(),
            ],
        );
    }

    /// Copies the box at `coordinates` (innermost first) of a tensor. The map's
    /// box must have as many bytes as the landing.
    #[track_caller]
    pub fn copy_tensor<T: Storable, const D: usize>(
        &self,
        to: Landing<'k, T>,
        from: TensorMapRef<'k, T, D>,
        coordinates: [Val<'k, i32>; D],
    ) {
        self.k.require(Feature::TensorCopy);
        self.count(to.bytes);
        from.box_has(to.bytes);
        let (group, barrier) = self.counted_at();
        self.k.effect_only(
            from.only,
            format!(
                "cp.async.bulk.tensor.{D}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{group}"
            ),
            vec![to.at.operand(), from.operand(coordinates), barrier],
        );
    }

    /// The modifier of a tensor copy for the group, and the barrier that counts it.
    #[track_caller]
    fn counted_at(&self) -> (&'static str, Opnd) {
        match &self.pair {
            None => ("", self.barrier.operand()),
            Some(leader) => {
                self.k.require(Feature::TensorCtaGroup);
                (".cta_group::2", leader.operand())
            }
        }
    }

    #[track_caller]
    fn by_one_block(&self, what: &str) {
        if self.pair.is_some() {
            self.k.fail(format!(
                "{what} into a stage of a pair of blocks: its bytes can't be counted by the leader; use `copy_tensor`"
            ));
        }
    }

    /// The same box to the same place of every block of the cluster in `mask`;
    /// each block's own barrier in the same place counts the bytes there, or that of its pair's leader.
    #[track_caller]
    pub fn copy_tensor_multicast<T: Storable, const D: usize>(
        &self,
        to: Landing<'k, T>,
        from: TensorMapRef<'k, T, D>,
        coordinates: [Val<'k, i32>; D],
        mask: impl IntoVal<'k, u16>,
    ) {
        self.k.require(Feature::TensorCopy);
        self.count(to.bytes);
        from.box_has(to.bytes);
        let mask = mask.into_val(&self.k);
        let (group, barrier) = self.counted_at();
        self.k.effect_only(
            from.only,
            format!(
                "cp.async.bulk.tensor.{D}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes\
                 .multicast::cluster{group}"
            ),
            vec![
                to.at.operand(),
                from.operand(coordinates),
                barrier,
                mask.register().into(),
            ],
        );
    }
}
