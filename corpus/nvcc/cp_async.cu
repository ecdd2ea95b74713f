// cp.async: the pipeline primitives, groups in flight over a double buffer, zero fill, and inline forms with cache hints and an mbarrier.
// build: -arch=sm_80
// build: -arch=sm_89
#include <cuda_pipeline.h>

// Each block sums tiles of 128 ints; the next tile is on its way while this one is added.
extern "C" __global__ void sum_tiles(const int4 *in, int *out, int tiles) {
    __shared__ int4 buffer[2][32];
    int t = threadIdx.x, sum = 0;
    in += blockIdx.x * tiles * 32;
    __pipeline_memcpy_async(&buffer[0][t], &in[t], 16);
    __pipeline_commit();
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) __pipeline_memcpy_async(&buffer[(i + 1) & 1][t], &in[(i + 1) * 32 + t], 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        int4 v = buffer[i & 1][31 - t];
        sum += v.x + v.y * 2 + v.z * 3 + v.w * 4;
        __syncthreads();
    }
    out[blockIdx.x * 32 + t] = sum;
}

// The last elements lie beyond the end and are filled with zeros.
extern "C" __global__ void padded_copy(const float *in, float *out, int n) {
    __shared__ float4 tile[32];
    int t = threadIdx.x, left = n - t * 4, bytes = left >= 4 ? 16 : left > 0 ? left * 4 : 0;
    __pipeline_memcpy_async(&tile[t], bytes > 0 ? (const float4 *)in + t : (const float4 *)in, 16, 16 - bytes);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    ((float4 *)out)[t] = tile[t];
}

extern "C" __global__ void through_mbarrier(const int *in, int *out) {
    __shared__ int tile[64];
    __shared__ __align__(8) unsigned long long barrier;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier), dst = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(bar) : "memory");
    __syncthreads();
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4;" ::"r"(dst), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
    asm volatile(
        "{\n\t.reg .pred done;\nWAIT:\n\tmbarrier.test_wait.parity.shared.b64 done, [%0], 0;\n\t@!done bra WAIT;\n\t}" ::"r"(bar)
        : "memory");
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
