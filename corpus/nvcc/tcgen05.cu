// Blackwell's tensor memory: a product of 128 x 64 halves, from bulk copies to the loads of its result.
// build: -arch=sm_100a
// build: -arch=sm_103a
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;

__device__ __forceinline__ std::uint64_t descriptor(const void *p, unsigned leading, unsigned stride) {
    unsigned a = (unsigned)__cvta_generic_to_shared(p);
    return (std::uint64_t)(a >> 4 & 0x3fff) | (std::uint64_t)(leading >> 4) << 16 | (std::uint64_t)(stride >> 4) << 32 | 1ull << 46 | 2ull << 61;
}

// The library's overloads of plain mma are ambiguous in this version, so the instruction is written out.
#define MMA(form, d, a, kind_of_a, b, shape, accumulate)                                                                                   \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma." form " [%0], %1, %2, %3, p; }" ::"r"(d), kind_of_a(a), "l"(b),          \
                 "r"(shape), "r"((int)(accumulate))                                                                                         \
                 : "memory")

// D[128][64] = A[128][64] * B[64][64]^T in f16; tiles arrive by bulk copies already swizzled by whoever wrote them.
extern "C" __global__ void __launch_bounds__(128) mma_f16(const uint4 *a, const uint4 *b, float *d, std::uint32_t shape) {
    extern __shared__ __align__(1024) uint4 tiles[];
    __shared__ std::uint32_t column;
    __shared__ alignas(8) std::uint64_t loaded, done;
    int t = threadIdx.x, warp = t / 32;
    if (warp == 0) ptx::tcgen05_alloc(ptx::cta_group_1, &column, 64);
    if (t == 0) {
        ptx::mbarrier_init(&loaded, 1);
        ptx::mbarrier_init(&done, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    if (t == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &loaded, 24576);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tiles, a, 16384, &loaded);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tiles + 1024, b, 8192, &loaded);
        while (!ptx::mbarrier_try_wait_parity(&loaded, 0)) {}
        for (int i = 0; i < 4; i++)
            MMA("cta_group::1.kind::f16", column, descriptor(tiles + i * 2, 16, 1024), "l", descriptor(tiles + 1024 + i * 2, 16, 1024), shape, i > 0);
        ptx::tcgen05_commit(ptx::cta_group_1, &done);
    }
    while (!ptx::mbarrier_try_wait_parity(&done, 0)) {}
    ptx::tcgen05_fence_after_thread_sync();
    std::uint32_t r[32];
    for (int half = 0; half < 2; half++) {
        ptx::tcgen05_ld_32x32b(r, column + (warp * 32 << 16) + half * 32);
        ptx::tcgen05_wait_ld();
        for (int i = 0; i < 32; i++) d[t * 64 + half * 32 + i] = __uint_as_float(r[i]);
    }
    __syncthreads();
    if (warp == 0) {
        ptx::tcgen05_dealloc(ptx::cta_group_1, column, 64);
        ptx::tcgen05_relinquish_alloc_permit(ptx::cta_group_1);
    }
}
