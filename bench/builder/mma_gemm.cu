// The twin of crates/builder/examples/04_mma_gemm.rs.
#include <cuda_fp16.h>

constexpr unsigned TILE = 128, DEPTH = 32, STAGES = 4, STAGE = TILE * DEPTH;

// Chunks of 16 bytes, four to a row, turned by the row so that no banks meet.
static __device__ unsigned chunk_at(unsigned row, unsigned chunk)
{
    return row * (DEPTH * 2) + (chunk ^ (row / 2 % 4)) * 16;
}

static __device__ void copy16(unsigned to, const __half *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

static __device__ void copy_tile(unsigned to, const __half *from, unsigned k)
{
#pragma unroll
    for (unsigned trip = 0; trip < 2; trip++) {
        unsigned row = threadIdx.x / 4 + trip * 64, chunk = threadIdx.x % 4;
        copy16(to + chunk_at(row, chunk), from + row * k + chunk * 8);
    }
}

static __device__ void load4(unsigned (&r)[4], unsigned at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

static __device__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(256)
mma_gemm(const __half *__restrict__ a, const __half *__restrict__ b, float *c, unsigned n, unsigned k)
{
    extern __shared__ __align__(128) __half shared[];
    unsigned a_base = __cvta_generic_to_shared(shared), b_base = a_base + STAGES * STAGE * 2;
    unsigned row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
    const __half *a_from = a + row0 * k, *b_from = b + col0 * k;
    unsigned steps = k / DEPTH;
    float sums[4][4][4] = {};

#pragma unroll
    for (unsigned s = 0; s < STAGES - 1; s++) {
        if (s < steps) {
            copy_tile(a_base + s * STAGE * 2, a_from + s * DEPTH, k);
            copy_tile(b_base + s * STAGE * 2, b_from + s * DEPTH, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    unsigned fill = STAGES - 1, read = 0;
    for (unsigned step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        unsigned next = step + STAGES - 1;
        if (next < steps) {
            copy_tile(a_base + fill * STAGE * 2, a_from + next * DEPTH, k);
            copy_tile(b_base + fill * STAGE * 2, b_from + next * DEPTH, k);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        fill = fill + 1 == STAGES ? 0 : fill + 1;

        unsigned a_stage = a_base + read * STAGE * 2, b_stage = b_base + read * STAGE * 2;
#pragma unroll
        for (unsigned d = 0; d < DEPTH / 16; d++) {
            unsigned left[4][4], right[2][4];
#pragma unroll
            for (unsigned m = 0; m < 4; m++)
                load4(left[m], a_stage + chunk_at(warp_row + lane % 16, d * 2 + lane / 16) + m * 16 * DEPTH * 2);
#pragma unroll
            for (unsigned j = 0; j < 2; j++)
                load4(right[j], b_stage + chunk_at(warp_col + lane % 8 + lane / 16 * 8, d * 2 + lane / 8 % 2) + j * 16 * DEPTH * 2);
#pragma unroll
            for (unsigned m = 0; m < 4; m++)
#pragma unroll
                for (unsigned s = 0; s < 4; s++) {
                    unsigned j = m % 2 ? 3 - s : s;
                    mma(sums[m][j], left[m], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
                }
        }
        read = read + 1 == STAGES ? 0 : read + 1;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();

    float *to = c + (row0 + warp_row) * n + col0 + warp_col;
#pragma unroll
    for (unsigned m = 0; m < 4; m++)
#pragma unroll
        for (unsigned j = 0; j < 4; j++) {
            unsigned row = lane / 4 + m * 16, col = lane % 4 * 2 + j * 8;
            *reinterpret_cast<float2 *>(to + row * n + col) = make_float2(sums[m][j][0], sums[m][j][1]);
            *reinterpret_cast<float2 *>(to + (row + 8) * n + col) = make_float2(sums[m][j][2], sums[m][j][3]);
        }
}
