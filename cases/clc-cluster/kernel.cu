// A persistent kernel on clusters of (1,2): the leader asks for the next cluster's work, the answer is multicast into both blocks'
// slots, each block waits on its own barrier, takes the answer apart, adds its own place in the cluster, and hands the slot back.
// A tile's row says which group it belongs to, and `group_of` must not be asked for a row that was never granted.
//
// build: bad-decode-first.ptx -arch=sm_100a -DDECODE_FIRST
// heist: run decode-first entry=steal grid=200,4,1 block=32 cluster=1,2,1 smem=200000 device=sim:b200 gpu=no "needs sm_100"
// heist: arg in:u32:[0,1,2,3]
// heist: arg inout:u32:[0*800]
// heist: allows M001
// mark: L004 clusterlaunchcontrol.query_cancel.get_first_ctaid
//
// build: good.ptx -arch=sm_100a
// heist: run test-first entry=steal grid=200,4,1 block=32 cluster=1,2,1 smem=200000 device=sim:b200 gpu=no "needs sm_100"
// heist: arg in:u32:[0,1,2,3]
// heist: arg inout:u32:[0*800]
// heist: expect 1 u32:[1*200,2*200,3*200,4*200]
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(1, 2, 1) steal(const unsigned *group_of, unsigned *out) {
    __shared__ alignas(16) uint4 slot;
    __shared__ alignas(8) std::uint64_t full, empty;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), t = threadIdx.x, phase = 0;
    uint2 place = {cluster.block_index().x, cluster.block_index().y};
    if (t == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::mbarrier_init(&empty, 2);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    cluster.sync();
    std::uint64_t *leader_empty = cluster.map_shared_rank(&empty, 0);
    unsigned x = blockIdx.x, y = blockIdx.y, group = group_of[y];
    for (;;) {
        if (rank == 0 && t == 0) {
            while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &empty, phase ^ 1)) {}
            for (unsigned peer = 0; peer < 2; peer++)
                ptx::mbarrier_arrive_expect_tx(ptx::sem_relaxed, ptx::scope_cluster, ptx::space_cluster, cluster.map_shared_rank(&full, peer), 16);
            ptx::clusterlaunchcontrol_try_cancel_multicast(&slot, &full);
        }
        if (t == 0) atomicAdd(&out[y * gridDim.x + x], group + 1);
        while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &full, phase)) {}
        uint4 answer = slot;
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (t == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, leader_empty);
#ifdef DECODE_FIRST
        // The group is looked up early, to hide the load. After a refusal the row is anything.
        y = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_y<unsigned>(answer) + place.y;
        group = *static_cast<const volatile unsigned *>(&group_of[y]);
        if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(answer)) break;
        x = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_x<unsigned>(answer) + place.x;
#else
        if (!ptx::clusterlaunchcontrol_query_cancel_is_canceled(answer)) break;
        x = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_x<unsigned>(answer) + place.x;
        y = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_y<unsigned>(answer) + place.y;
        group = group_of[y];
#endif
        phase ^= 1;
    }
    cluster.sync(); // no block leaves while a multicast or an arrival may still come its way
}
