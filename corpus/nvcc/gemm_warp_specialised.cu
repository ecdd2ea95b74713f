// A Hopper GEMM: a producer warp feeds tiles by TMA (32-byte swizzle) through full/empty mbarriers, two consumer warpgroups
// multiply with wgmma, registers move from the producer to the consumers with setmaxnreg. C[128][64] per block.
// build: -arch=sm_90a
// build: -arch=sm_90a -DTRANSPOSED_B => transposed
#include <cuda.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>
#include <cuda_fp16.h>
namespace ptx = cuda::ptx;

constexpr int STAGES = 2, BM = 128, BN = 64, BK = 16;

struct __align__(1024) Tiles {
    __half a[STAGES][BM * BK];
    __half b[STAGES][BN * BK];
    std::uint64_t full[STAGES], empty[STAGES];
};

__device__ __forceinline__ void wait(std::uint64_t *barrier, unsigned parity) {
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {}
}

// layout: 1 = 128-byte swizzle, 3 = 32-byte swizzle.
__device__ __forceinline__ std::uint64_t descriptor(const void *p, unsigned leading, unsigned stride, std::uint64_t layout) {
    unsigned a = (unsigned)__cvta_generic_to_shared(p);
    return (std::uint64_t)(a >> 4 & 0x3fff) | (std::uint64_t)(leading >> 4) << 16 | (std::uint64_t)(stride >> 4) << 32 | layout << 62;
}

template <int TRANSPOSE_B> __device__ __forceinline__ void multiply(float (&d)[32], std::uint64_t a, std::uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, 1, 1, 1, 0, %34;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b), "n"(TRANSPOSE_B));
}

extern "C" __global__ void __launch_bounds__(384, 1) gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                                                       float *c, int n, int k) {
    extern __shared__ Tiles tiles_memory[];
    Tiles &tiles = *tiles_memory;
    int group = threadIdx.x / 128, steps = k / BK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            ptx::mbarrier_init(&tiles.full[i], 1);
            ptx::mbarrier_init(&tiles.empty[i], 2);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int i = 0; i < steps; i++) {
                int s = i % STAGES;
                wait(&tiles.empty[s], (i / STAGES & 1) ^ 1);
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &tiles.full[s],
                                               sizeof(tiles.a[0]) + sizeof(tiles.b[0]));
                int at_a[2] = {i * BK, (int)blockIdx.y * BM};
#ifdef TRANSPOSED_B
                int at_b[2] = {(int)blockIdx.x * BN, i * BK};
#else
                int at_b[2] = {i * BK, (int)blockIdx.x * BN};
#endif
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tiles.a[s], &map_a, at_a, &tiles.full[s]);
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tiles.b[s], &map_b, at_b, &tiles.full[s]);
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[32] = {};
        for (int i = 0; i < steps; i++) {
            int s = i % STAGES;
            wait(&tiles.full[s], i / STAGES & 1);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            std::uint64_t a = descriptor(tiles.a[s] + (group - 1) * 64 * BK, 16, 256, 3);
#ifdef TRANSPOSED_B
            multiply<1>(d, a, descriptor(tiles.b[s], 2048, 1024, 1)); // 16 rows of 64 columns, 128-byte swizzle
#else
            multiply<0>(d, a, descriptor(tiles.b[s], 16, 256, 3));
#endif
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (threadIdx.x % 128 == 0) ptx::mbarrier_arrive(&tiles.empty[s]);
        }
        int t = threadIdx.x % 128, row = blockIdx.y * BM + (group - 1) * 64 + t / 32 * 16 + t % 32 / 4, column = blockIdx.x * BN + t % 4 * 2;
        for (int i = 0; i < 32; i += 4) {
            *(float2 *)&c[row * n + column + i * 2] = make_float2(d[i], d[i + 1]);
            *(float2 *)&c[(row + 8) * n + column + i * 2] = make_float2(d[i + 2], d[i + 3]);
        }
    }
}
