// A tensor tile sent to every block of a cluster at once; each block fetches one half and all get both.
// build: -arch=sm_90a
// build: -arch=sm_100a
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast_halves(const __grid_constant__ CUtensorMap map, float *out) {
    __shared__ alignas(128) float tile[2][4][16];
    __shared__ alignas(8) std::uint64_t barrier;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&barrier, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof(tile));
    }
    cluster.sync();
    if (threadIdx.x == 0) {
        int where[2] = {0, (int)(blockIdx.x / 2 * 8 + rank * 4)};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile[rank], &map, where, &barrier, (std::uint16_t)3);
    }
    while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {}
    for (int i = threadIdx.x; i < 128; i += blockDim.x) out[blockIdx.x * 128 + i] = tile[i / 64][i / 16 % 4][i % 16] * (float)(rank + 1);
    cluster.sync();
}

// A plain bulk copy, also to all four blocks of a cluster.
extern "C" __global__ void __cluster_dims__(4, 1, 1) multicast_bulk(const int *in, int *out) {
    __shared__ alignas(128) int tile[64];
    __shared__ alignas(8) std::uint64_t barrier;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&barrier, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof(tile));
    }
    cluster.sync();
    if (threadIdx.x == 0 && cluster.block_rank() == 2)
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in, sizeof(tile), &barrier, (std::uint16_t)0xf);
    while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {}
    out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x] + (int)blockIdx.x;
    cluster.sync();
}
