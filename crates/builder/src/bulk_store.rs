//! Bulk stores: the copy engine writes shared memory to global memory, and the thread that started
//! it waits.

use crate::Shared;
use crate::kernel::{Kernel, number};
use crate::pointer::{Global, Ptr};
use crate::scalar::Storable;
use heist_ptx::arch::Feature;

impl<'k> Kernel<'k> {
    /// One thread starts writing `from` to global memory; sizes and addresses
    /// are multiples of 16 bytes. What the block wrote must have been made
    /// visible before: [`Kernel::fence_async_shared`] in every writer, then a
    /// barrier.
    #[track_caller]
    pub fn store_bulk<T: Storable>(
        &self,
        to: Ptr<'k, Global, T>,
        from: crate::SharedArray<'k, T>,
    ) -> PendingStore<'k> {
        self.require(Feature::BulkCopy);
        self.must_divide("the bytes of a bulk store", from.bytes(), 16);
        self.effect(
            "cp.async.bulk.global.shared::cta.bulk_group",
            vec![
                to.operand(),
                from.ptr().operand(),
                number(from.bytes() as i64),
            ],
        );
        PendingStore::commit(*self)
    }

    /// One thread starts adding `len` whole numbers of shared memory to those of global memory, as [`Kernel::store_bulk`] stores; each
    /// is added atomically.
    #[track_caller]
    pub fn add_bulk(
        &self,
        to: Ptr<'k, Global, i32>,
        from: Ptr<'k, Shared, i32>,
        len: u32,
    ) -> PendingStore<'k> {
        self.require(Feature::BulkReduce);
        let bytes = 4 * i64::from(len);
        self.must_divide("the bytes of a bulk addition", bytes as u64, 16);
        self.effect(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32",
            vec![to.operand(), from.operand(), number(bytes)],
        );
        PendingStore::commit(*self)
    }

    /// Waits until all bulk stores of this thread have been written.
    #[track_caller]
    pub fn wait_stores_written(&self) {
        self.require(Feature::BulkCopy);
        self.effect("cp.async.bulk.wait_group", vec![number(0)]);
    }

    /// Waits until all bulk stores of this thread but the newest `newer` have read their source, so
    /// that it may be written again.
    #[track_caller]
    pub fn wait_stores_read(&self, newer: u32) {
        self.require(Feature::BulkCopy);
        self.effect("cp.async.bulk.wait_group.read", vec![number(newer.into())]);
    }
}

/// A bulk store in flight from shared memory.
#[must_use = "the memory a bulk store reads must not change before `.wait_read()`, and the block must not exit"]
#[derive(Debug)]
pub struct PendingStore<'k> {
    k: Kernel<'k>,
}

impl<'k> PendingStore<'k> {
    #[track_caller]
    pub(crate) fn commit(k: Kernel<'k>) -> PendingStore<'k> {
        k.effect("cp.async.bulk.commit_group", vec![]);
        PendingStore { k }
    }

    /// Waits until shared memory has been read and may be written again.
    #[track_caller]
    pub fn wait_read(self) {
        self.k
            .effect("cp.async.bulk.wait_group.read", vec![number(0)]);
    }

    /// Leaves it in flight: the same thread waits later, with [`Kernel::wait_stores_read`].
    pub fn in_flight(self) {}

    /// Waits until everything has been written.
    #[track_caller]
    pub fn wait_written(self) {
        self.k.effect("cp.async.bulk.wait_group", vec![number(0)]);
    }
}
