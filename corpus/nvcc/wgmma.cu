// wgmma on Hopper: both operands in shared memory, A in registers, several types, async fences and groups.
// build: -arch=sm_90a
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Operands lie in shared memory as 8x8 (16-byte rows) core matrices without swizzle. `k_step` is the distance between
// core matrices along K, `mn_step` along M or N.
__device__ __forceinline__ unsigned long long descriptor(const void *p, unsigned k_step, unsigned mn_step) {
    unsigned a = (unsigned)__cvta_generic_to_shared(p);
    return (unsigned long long)(a >> 4 & 0x3fff) | (unsigned long long)(k_step >> 4) << 16 | (unsigned long long)(mn_step >> 4) << 32;
}

// Puts a row-major matrix of `rows` x (16-byte chunks) into core matrices: chunk-major, then rows.
__device__ __forceinline__ void to_core(const uint4 *from, uint4 *to, int rows, int chunks) {
    for (int i = threadIdx.x; i < rows * chunks; i += blockDim.x) to[(i % chunks) * rows + i / chunks] = from[i];
}

__device__ __forceinline__ void ready() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
}

#define ARRIVE asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

template <int N> __device__ __forceinline__ void store(float *d, const float (&r)[N], int columns) {
    int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    for (int i = 0; i < N; i += 4) {
        *(float2 *)&d[row * columns + column + i * 2] = make_float2(r[i], r[i + 1]);
        *(float2 *)&d[(row + 8) * columns + column + i * 2] = make_float2(r[i + 2], r[i + 3]);
    }
}

// D[64][16] = A[64][32] * B[16][32]^T in f16, two k-steps, one group.
extern "C" __global__ void __launch_bounds__(128) wgmma_f16(const uint4 *a, const uint4 *b, float *d) {
    __shared__ alignas(128) uint4 as[64 * 4], bs[16 * 4];
    to_core(a, as, 64, 4);
    to_core(b, bs, 16, 4);
    ready();
    float r[8];
    ARRIVE;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0; }"
                 : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]), "=f"(r[4]), "=f"(r[5]), "=f"(r[6]), "=f"(r[7])
                 : "l"(descriptor(as, 1024, 128)), "l"(descriptor(bs, 256, 128)), "r"(0));
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, 0, 0; }"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]), "+f"(r[4]), "+f"(r[5]), "+f"(r[6]), "+f"(r[7])
                 : "l"(descriptor(as + 128, 1024, 128)), "l"(descriptor(bs + 32, 256, 128)), "r"(1));
    COMMIT;
    WAIT(0);
    store(d, r, 16);
}

// D[64][8] = A[64][16] * B[8][16]^T in bf16, A from registers, the result negated by the scale of A, twice in two groups.
extern "C" __global__ void __launch_bounds__(128) wgmma_bf16_registers(const unsigned *a, const uint4 *b, float *d) {
    __shared__ alignas(128) uint4 bs[8 * 2];
    to_core(b, bs, 8, 2);
    ready();
    int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, q = t % 4;
    unsigned a0 = a[row * 8 + q], a1 = a[(row + 8) * 8 + q], a2 = a[row * 8 + q + 4], a3 = a[(row + 8) * 8 + q + 4];
    float r[4] = {1.0f, 2.0f, 3.0f, 4.0f}, s[4] = {};
    ARRIVE;
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, -1, 1, 0;"
                 : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(descriptor(bs, 128, 128)));
    COMMIT;
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(descriptor(bs, 128, 128)));
    COMMIT;
    WAIT(1);
    WAIT(0);
    store(d, r, 8);
    store(d + 512, s, 8);
}

// D[64][8] = A[64][32] * B[8][32]^T of signed bytes.
extern "C" __global__ void __launch_bounds__(128) wgmma_int8(const uint4 *a, const uint4 *b, int *d) {
    __shared__ alignas(128) uint4 as[64 * 2], bs[8 * 2];
    to_core(a, as, 64, 2);
    to_core(b, bs, 8, 2);
    ready();
    int r0, r1, r2, r3;
    ARRIVE;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0,%1,%2,%3}, %4, %5, p; }"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "l"(descriptor(as, 1024, 128)), "l"(descriptor(bs, 128, 128)), "r"(0));
    COMMIT;
    WAIT(0);
    int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    *(int2 *)&d[row * 8 + column] = make_int2(r0, r1);
    *(int2 *)&d[(row + 8) * 8 + column] = make_int2(r2, r3);
}

// D[64][8] = A[64][8] * B[8][8]^T in tf32.
extern "C" __global__ void __launch_bounds__(128) wgmma_tf32(const uint4 *a, const uint4 *b, float *d) {
    __shared__ alignas(128) uint4 as[64 * 2], bs[8 * 2];
    to_core(a, as, 64, 2);
    to_core(b, bs, 8, 2);
    ready();
    float r[4];
    ARRIVE;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%0,%1,%2,%3}, %4, %5, p, 1, 1; }"
                 : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
                 : "l"(descriptor(as, 1024, 128)), "l"(descriptor(bs, 128, 128)), "r"(0));
    COMMIT;
    WAIT(0);
    store(d, r, 8);
}

// D[64][8] = A[64][32] * B[8][32]^T in e4m3.
extern "C" __global__ void __launch_bounds__(128) wgmma_e4m3(const uint4 *a, const uint4 *b, float *d) {
    __shared__ alignas(128) uint4 as[64 * 2], bs[8 * 2];
    to_core(a, as, 64, 2);
    to_core(b, bs, 8, 2);
    ready();
    float r[4];
    ARRIVE;
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %6, 0; wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0,%1,%2,%3}, %4, %5, p, 1, 1; }"
                 : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3])
                 : "l"(descriptor(as, 1024, 128)), "l"(descriptor(bs, 128, 128)), "r"(0));
    COMMIT;
    WAIT(0);
    store(d, r, 8);
}
