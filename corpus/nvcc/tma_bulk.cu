// Bulk copies without a tensor map: global to shared with an mbarrier, shared to global with a bulk group, bulk add, prefetch.
// build: -arch=sm_90
// build: -arch=sm_100a
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;

extern "C" __global__ void bulk_double(const int *in, int *out, int *sums) {
    __shared__ alignas(128) int tile[256];
    __shared__ alignas(8) std::uint64_t barrier;
    int t = threadIdx.x;
    in += blockIdx.x * 256, out += blockIdx.x * 256;
    if (t == 0) {
        ptx::mbarrier_init(&barrier, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (t == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof(tile));
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in, sizeof(tile), &barrier);
    }
    while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {}
    for (int i = t; i < 256; i += blockDim.x) tile[i] = tile[i] * 2 + 1;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (t == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, sizeof(tile));
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_add, sums, tile, sizeof(tile));
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
}

extern "C" __global__ void bulk_prefetch(const float *in, float *out) {
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(in), "r"(256) : "memory");
    out[threadIdx.x] = in[threadIdx.x] + 0.5f;
}
