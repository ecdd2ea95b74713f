// Blackwell's tensor memory, every kind of instruction for pairs of blocks: copy in, products of several kinds, shift, multicast commit, load and store.
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

// The other forms, in the order of a kernel that would use them.
extern "C" __global__ void __cluster_dims__(2, 1, 1) forms(std::uint64_t a, std::uint64_t b, std::uint32_t shape, std::uint32_t *out) {
    __shared__ std::uint32_t column;
    __shared__ alignas(8) std::uint64_t done;
    if (threadIdx.x < 32) ptx::tcgen05_alloc(ptx::cta_group_2, &column, 256);
    if (threadIdx.x == 0) ptx::mbarrier_init(&done, 1);
    __syncthreads();
    std::uint32_t t = column;
    if (threadIdx.x == 0) {
        ptx::tcgen05_cp_128x256b(ptx::cta_group_2, t, a);
        ptx::tcgen05_cp_32x128b_warpx4(ptx::cta_group_2, t + 64, b);
        MMA("cta_group::2.kind::tf32", t, a, "l", b, shape, true);
        MMA("cta_group::2.kind::f8f6f4.collector::a::fill", t, a, "l", b, shape, true);
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %4, 0; tcgen05.mma.cta_group::2.kind::f16 [%0], [%1], %2, %3, {%5,%5,%5,%5,%5,%5,%5,%5}, p; }" ::"r"(t),
                     "r"(t + 128), "l"(b), "r"(shape), "r"(1), "r"(0)
                     : "memory");
        ptx::tcgen05_mma_block_scale_vec_1x(ptx::kind_mxf8f6f4, ptx::cta_group_2, t, a, b, shape, t + 192, t + 200, true);
        ptx::tcgen05_shift_down(ptx::cta_group_2, t);
        ptx::tcgen05_commit_multicast(ptx::cta_group_2, &done, (std::uint16_t)3);
    }
    while (!ptx::mbarrier_try_wait_parity(&done, 0)) {}
    std::uint32_t r[8], s[4];
    ptx::tcgen05_ld_16x256b(r, t);
    ptx::tcgen05_ld_16x64b(s, t + 32);
    ptx::tcgen05_wait_ld();
    for (int i = 0; i < 8; i++) out[threadIdx.x * 12 + i] = r[i];
    for (int i = 0; i < 4; i++) out[threadIdx.x * 12 + 8 + i] = s[i];
    ptx::tcgen05_st_16x256b(t + 64, r);
    ptx::tcgen05_wait_st();
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    if (threadIdx.x < 32) ptx::tcgen05_dealloc(ptx::cta_group_2, t, 256);
}
