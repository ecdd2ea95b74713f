// Cluster launch control with multicast: the leader of a 2x1 cluster asks for both blocks, each takes the answer from its own
// slot, adds its own offset, and tells the leader when it has read it.
// build: -arch=sm_100a
// build: -arch=sm_120a
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(2, 1, 1) steal_pairs(const int *in, int *out, unsigned *visits, int n) {
    __shared__ alignas(16) uint4 response;
    __shared__ alignas(8) std::uint64_t full, empty;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), t = threadIdx.x;
    dim3 offset = cluster.block_index();
    if (t == 0) {
        ptx::mbarrier_init(&full, 1);
        ptx::mbarrier_init(&empty, 2);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    cluster.sync();
    std::uint64_t *leader_empty = cluster.map_shared_rank(&empty, 0);
    unsigned tile = blockIdx.x, phase = 0;
    for (;;) {
        if (rank == 0 && t < 32) {
            while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &empty, phase ^ 1)) {}
            if (t < 2)
                ptx::mbarrier_arrive_expect_tx(ptx::sem_relaxed, ptx::scope_cluster, ptx::space_cluster, cluster.map_shared_rank(&full, t), 16);
            __syncwarp();
            if (t == 0) ptx::clusterlaunchcontrol_try_cancel_multicast(&response, &full);
        }
        unsigned i = tile * blockDim.x + t;
        if (i < n) out[i] = in[i] + 100;
        if (t == 0) atomicAdd(&visits[tile], 1u);
        while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &full, phase)) {}
        uint4 answer = response;
        bool granted = ptx::clusterlaunchcontrol_query_cancel_is_canceled(answer);
        if (granted) tile = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_x<unsigned>(answer) + offset.x;
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (t == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, leader_empty);
        if (!granted) break;
        phase ^= 1;
    }
    cluster.sync();
}
