// Atomics: every operation and width, shared and global memory, block and system scope, packed halves, compare-and-swap loops.
// build: -arch=sm_75
// build: -arch=sm_90
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Every thread applies every operation to the same words.
extern "C" __global__ void all_operations(const int *in, int *words, unsigned long long *wide) {
    int v = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&words[0], v);
    atomicSub(&words[1], v);
    atomicMin(&words[2], v);
    atomicMax(&words[3], v);
    atomicAnd(&words[4], ~v);
    atomicOr(&words[5], v);
    atomicXor(&words[6], v);
    atomicInc((unsigned *)&words[7], 9);
    atomicDec((unsigned *)&words[8], 9);
    atomicMin((unsigned *)&words[9], (unsigned)v);
    atomicAdd(&wide[0], (unsigned long long)(v * 3ll));
    atomicMax((long long *)&wide[1], (long long)v << 20);
    atomicOr(&wide[2], 1ull << (v & 63));
    atomicXor(&wide[3], (unsigned long long)v << 32);
}

extern "C" __global__ void scopes(int *words, double *sums) {
    __shared__ int local;
    __shared__ float fsum;
    if (threadIdx.x == 0) local = 0, fsum = 0.0f;
    __syncthreads();
    atomicAdd_block(&local, 1);
    atomicAdd(&fsum, 0.5f);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd_system(&words[0], local);
        atomicMax_block(&words[1 + blockIdx.x], local);
        atomicAdd(&sums[0], (double)fsum);
        atomicExch(&words[8 + blockIdx.x], (int)fsum);
    }
}

// The returned values are a permutation of 0..n.
extern "C" __global__ void tickets(unsigned *counter, unsigned *taken) { atomicAdd(&taken[atomicAdd(counter, 1u)], 1u); }

// Multiplication by a compare-and-swap loop, and a 64-bit one.
extern "C" __global__ void swap_loops(unsigned *product, unsigned long long *longest) {
    unsigned seen = *(volatile unsigned *)product, expected;
    do {
        expected = seen;
        seen = atomicCAS(product, expected, expected * 3u + 0u);
    } while (seen != expected);
    unsigned long long mine = (unsigned long long)(threadIdx.x * 37 % 64) << 32 | threadIdx.x, before = *(volatile unsigned long long *)longest;
    while (mine > before) {
        unsigned long long found = atomicCAS(longest, before, mine);
        if (found == before) break;
        before = found;
    }
}

extern "C" __global__ void packed(__half2 *sums, __half *single, unsigned short *flag) {
    atomicAdd(sums, __floats2half2_rn(1.0f, 0.5f));
    atomicAdd(single, __float2half(0.25f));
    atomicCAS(flag, (unsigned short)0, (unsigned short)(7));
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void vectors(float4 *sums, float2 *pair, __nv_bfloat162 *halves) {
    atomicAdd(sums, make_float4(1.0f, 2.0f, 0.5f, -1.0f));
    atomicAdd(pair, make_float2(0.25f, 8.0f));
    atomicAdd(halves, __floats2bfloat162_rn(1.0f, 2.0f));
}
#endif
