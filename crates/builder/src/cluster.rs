//! Clusters: blocks that run together and reach each other's shared memory.
//!
//! A kernel without a cluster (see [`KernelSpec::cluster`](crate::KernelSpec::cluster))
//! is a cluster of one block: its rank is 0 and [`Kernel::cluster_sync`] is
//! [`Kernel::sync`], so the same code serves both.

use crate::emit::{Base, Opnd};
use crate::kernel::{Dim3, Kernel};
use crate::mbarrier::RemoteMbarrier;
use crate::pointer::{Cluster, Ptr, Shared};
use crate::scalar::{Storable, Word};
use crate::value::{IntoVal, Val};
use heist_ptx::arch::Feature;

impl<'k> Kernel<'k> {
    /// How many blocks a cluster has along x, y and z.
    pub fn cluster_shape(&self) -> [u32; 3] {
        self.rec.cluster.unwrap_or([1, 1, 1])
    }

    /// How many blocks a cluster has.
    pub fn cluster_size(&self) -> u32 {
        self.cluster_shape().iter().product()
    }

    /// The rank of this block in its cluster; 0 where there is none.
    #[track_caller]
    pub fn cluster_rank(&self) -> Val<'k, u32> {
        if self.cluster_size() == 1 {
            return self.c(0);
        }
        self.special32("%cluster_ctarank", None, "cluster_rank")
    }

    /// The position of this block in its cluster.
    #[track_caller]
    pub fn cluster_block(&self) -> Dim3<'k> {
        self.position(
            "%cluster_ctaid",
            ["cluster_block_x", "cluster_block_y", "cluster_block_z"],
            Some(self.cluster_shape()),
        )
    }

    /// The position of this block's cluster in the grid, counted in clusters.
    #[track_caller]
    pub fn cluster_position(&self) -> Dim3<'k> {
        if self.rec.cluster.is_none() {
            return self.block();
        }
        self.dim3("%clusterid", ["cluster_x", "cluster_y", "cluster_z"])
    }

    /// Waits for all threads of the cluster, and makes their writes, to each
    /// other's shared memory too, visible. Every thread of a warp takes part.
    #[track_caller]
    pub fn cluster_sync(&self) {
        self.cluster_arrive().wait();
    }

    /// Arrives at the cluster's barrier; what is returned waits for the others.
    /// Work that touches no other block's memory can be done in between.
    #[track_caller]
    pub fn cluster_arrive(&self) -> ClusterArrival<'k> {
        if self.cluster_size() > 1 {
            self.require(Feature::ClusterBarrierSemantics);
            self.effect("barrier.cluster.arrive.release.aligned", vec![]);
        }
        ClusterArrival { k: *self }
    }

    /// Lets the next kernel of the stream start, where it was launched to
    /// overlap this one.
    #[track_caller]
    pub fn launch_dependents(&self) {
        self.require(Feature::GridDependency);
        self.effect("griddepcontrol.launch_dependents", vec![]);
    }

    /// Waits for the kernel that this one was launched to overlap.
    #[track_caller]
    pub fn wait_for_dependency(&self) {
        self.require(Feature::GridDependency);
        self.effect("griddepcontrol.wait", vec![]);
    }
}

/// This thread has arrived at the cluster's barrier and must wait for it.
#[must_use = "an arrival without a wait leaves the cluster's barrier half done: call `.wait()`"]
#[derive(Debug)]
pub struct ClusterArrival<'k> {
    k: Kernel<'k>,
}

impl ClusterArrival<'_> {
    /// Waits until every thread of the cluster has arrived.
    #[track_caller]
    pub fn wait(self) {
        if self.k.cluster_size() > 1 {
            self.k
                .effect("barrier.cluster.wait.acquire.aligned", vec![]);
        } else {
            self.k.sync();
        }
    }
}

impl<'k, T: Storable> Ptr<'k, Shared, T> {
    /// The same place in the shared memory of the cluster's block `rank`. That block must have
    /// started, and must not have exited: call [`Kernel::cluster_sync`] before the first and after
    /// the last access.
    #[track_caller]
    pub fn on(self, rank: impl IntoVal<'k, u32>) -> Ptr<'k, Cluster, T> {
        self.k.require(Feature::Clusters);
        let rank = rank.into_val(&self.k).operand();
        let here = Opnd::Reg(self.address_register());
        let there = self
            .k
            .emit::<u32>("mapa.shared::cluster.u32", vec![here, rank]);
        Ptr::new(self.k, Base::Reg(there.register()), 0)
    }
}

impl<'k, T: Word> Ptr<'k, Cluster, T> {
    /// Writes it asynchronously; `barrier`, in the same block, counts the bytes when they have
    /// arrived.
    #[track_caller]
    pub fn store_async(self, value: impl IntoVal<'k, T>, barrier: &RemoteMbarrier<'k>) {
        self.k.require(Feature::StAsync);
        let value = value.into_val(&self.k).bitcast::<u32>();
        self.k.effect(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32",
            vec![self.operand(), value.register().into(), barrier.operand()],
        );
    }

    /// Writes four words asynchronously; `barrier`, in the same block, counts the 16 bytes when
    /// they have arrived.
    #[track_caller]
    pub fn store_async_vec(self, values: [Val<'k, T>; 4], barrier: &RemoteMbarrier<'k>) {
        self.k.require(Feature::StAsync);
        let lanes = values
            .iter()
            .map(|value| value.bitcast::<u32>().register().into())
            .collect();
        self.k.effect(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32",
            vec![self.operand(), Opnd::Vector(lanes), barrier.operand()],
        );
    }
}
