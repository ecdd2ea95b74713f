// Clusters: distributed shared memory (read, atomics, st.async, red.async), cluster barriers whole and split, cluster registers.
// build: -arch=sm_90
// build: -arch=sm_120
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;
namespace cg = cooperative_groups;

// Each block reads its right neighbour's shared memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring(const int *in, int *out) {
    __shared__ int mine[32];
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x, i = blockIdx.x * 32 + t;
    mine[t] = in[i];
    cluster.sync();
    int *next = cluster.map_shared_rank(mine, (cluster.block_rank() + 1) % cluster.num_blocks());
    out[i] = next[31 - t] * 10 + (int)cluster.block_rank();
    cluster.sync();
}

// A histogram whose bins are spread over the blocks of the cluster.
extern "C" __global__ void spread_histogram(const unsigned char *in, unsigned *bins, int n) {
    __shared__ unsigned part[8];
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x;
    if (t < 8) part[t] = 0;
    cluster.sync();
    for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) {
        unsigned bin = in[i];
        atomicAdd(cluster.map_shared_rank(&part[bin % 8], bin / 8), 1u);
    }
    cluster.sync();
    if (t < 8) bins[cluster.block_rank() * 8 + t] = part[t];
}

// st.async and red.async into the other block, which waits on its own mbarrier for the bytes.
extern "C" __global__ void __cluster_dims__(2, 1, 1) send(const int *in, int *out) {
    __shared__ alignas(16) int inbox[32];
    __shared__ alignas(16) std::uint32_t count;
    __shared__ alignas(8) std::uint64_t barrier;
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank();
    int t = threadIdx.x;
    if (t == 0) {
        count = 0;
        ptx::mbarrier_init(&barrier, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof(inbox) + 32 * 4);
    }
    cluster.sync();
    std::uint64_t *there = cluster.map_shared_rank(&barrier, rank ^ 1);
    ptx::st_async(cluster.map_shared_rank(&inbox[t], rank ^ 1), in[blockIdx.x * 32 + t], there);
    ptx::red_async(ptx::op_add, cluster.map_shared_rank(&count, rank ^ 1), (std::uint32_t)t, there);
    while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, &barrier, 0)) {}
    out[blockIdx.x * 32 + t] = inbox[31 - t] + (int)count;
    cluster.sync();
}

// Arrive early, work, wait late; and the special registers.
extern "C" __global__ void __cluster_dims__(2, 2, 1) places(unsigned *out) {
    __shared__ unsigned mark;
    unsigned x, y, rank, many;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(y));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(many));
    if (threadIdx.x == 0) mark = rank * 3 + 1;
    ptx::barrier_cluster_arrive(ptx::sem_release);
    unsigned id = blockIdx.y * gridDim.x + blockIdx.x;
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    unsigned local = (unsigned)__cvta_generic_to_shared(&mark), remote, other;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(many - 1 - rank));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(other) : "r"(remote) : "memory");
    ptx::barrier_cluster_arrive(ptx::sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    unsigned home;
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(home) : "r"(remote));
    if (threadIdx.x == 0) out[id] = other * 1000 + home * 100 + x * 10 + y;
}
