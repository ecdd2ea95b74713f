// Attention without the softmax, (q k^T) v, for 64 query rows and tiles of 32 key rows: 64 wide, rows padded to STRIDE elements, the
// keys and values double-buffered with cp.async. 64,000 bytes of dynamic shared memory in a layout of eight arrays.
//
// build: bad-no-wait.ptx -arch=sm_89 -DNO_WAIT
// heist: check barrier-instead-of-wait
// mark: A001 wmma.load.a
//
// build: bad-no-commit.ptx -arch=sm_89 -DNO_COMMIT
// heist: check wait-for-no-group
// mark: A002 cp.async.cg.shared.global
//
// build: bad-stride.ptx -arch=sm_89 -DSTRIDE=76
// heist: check rows-of-152-bytes
// mark: M007 cp.async.cg.shared.global [%r50]
// mark: M007 cp.async.cg.shared.global [%r52]
// mark: M007 cp.async.cg.shared.global [%r128]
// mark: M007 cp.async.cg.shared.global [%r130]
//
// build: good.ptx -arch=sm_89
// heist: check as-it-should-be
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;

#ifndef STRIDE
#define STRIDE 80 // 160 bytes: a multiple of 16, and eight banks further on each row
#endif
constexpr int QUERIES = 64, KEYS = 32, WIDTH = 64;

struct __align__(16) Shared {
    __half q[QUERIES * STRIDE], k[2][KEYS * STRIDE], v[2][KEYS * STRIDE];
    float s[QUERIES * KEYS];
    __half p[QUERIES * KEYS];
    float m[QUERIES], l[QUERIES]; // the softmax's, which this case leaves out
    float u[QUERIES * STRIDE];
};
static_assert(STRIDE != 80 || sizeof(Shared) == 64000);

// Each thread copies 16 bytes of two neighbouring rows.
__device__ void copy_tile(__half *to, const __half *from) {
    int row = threadIdx.x / 8 * 2, at = threadIdx.x % 8 * 8;
    for (int i = 0; i < 2; i++)
        __pipeline_memcpy_async(to + (row + i) * STRIDE + at, from + (row + i) * WIDTH + at, 16);
}

__device__ void commit() {
#ifndef NO_COMMIT
    __pipeline_commit();
#endif
}

extern "C" __global__ void __launch_bounds__(128) attend(const __half *q, const __half *k, const __half *v, float *out, int tiles) {
    extern __shared__ __align__(16) unsigned char bytes[];
    Shared &shared = *reinterpret_cast<Shared *>(bytes);
    int t = threadIdx.x, warp = t / 32, lane = t % 32;
    copy_tile(shared.k[0], k);
    copy_tile(shared.v[0], v);
    commit();
    for (int i = t; i < QUERIES * WIDTH; i += 128) shared.q[i / WIDTH * STRIDE + i % WIDTH] = q[i];
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> u[WIDTH / 16];
    for (auto &fragment : u) wmma::fill_fragment(fragment, 0.0f);
    __half *p = shared.p + warp * 16 * KEYS;
    float *s = shared.s + warp * 16 * KEYS;
#pragma unroll 1
    for (int tile = 0; tile < tiles; tile++) {
        int stage = tile & 1;
        if (tile + 1 < tiles) {
            copy_tile(shared.k[stage ^ 1], k + (tile + 1) * KEYS * WIDTH);
            copy_tile(shared.v[stage ^ 1], v + (tile + 1) * KEYS * WIDTH);
        }
        commit(); // empty for the last tile, so that "all but the newest" is always this tile
#ifndef NO_WAIT
        __pipeline_wait_prior(1);
#endif
        __syncthreads();
        for (int j = 0; j < KEYS; j += 16) {
            wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
            wmma::fill_fragment(c, 0.0f);
#pragma unroll 1
            for (int i = 0; i < WIDTH; i += 16) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
                wmma::load_matrix_sync(a, shared.q + warp * 16 * STRIDE + i, STRIDE);
                wmma::load_matrix_sync(b, shared.k[stage] + j * STRIDE + i, STRIDE);
                wmma::mma_sync(c, a, b, c);
            }
            wmma::store_matrix_sync(s + j, c, KEYS, wmma::mem_row_major);
        }
        __syncwarp();
        for (int i = lane; i < 16 * KEYS; i += 32) p[i] = __float2half(s[i]);
        __syncwarp();
#pragma unroll 1
        for (int j = 0; j < KEYS; j += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
            wmma::load_matrix_sync(a, p + j, KEYS);
            for (int i = 0; i < WIDTH; i += 16) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
                wmma::load_matrix_sync(b, shared.v[stage] + j * STRIDE + i, STRIDE);
                wmma::mma_sync(u[i / 16], a, b, u[i / 16]);
            }
        }
        __syncthreads(); // the stage is read: the next copies may overwrite it
    }
    for (int i = 0; i < WIDTH / 16; i++)
        wmma::store_matrix_sync(shared.u + warp * 16 * STRIDE + i * 16, u[i], STRIDE, wmma::mem_row_major);
    __syncthreads();
    for (int i = t; i < QUERIES * WIDTH; i += 128) out[i] = shared.u[i / WIDTH * STRIDE + i % WIDTH];
}
