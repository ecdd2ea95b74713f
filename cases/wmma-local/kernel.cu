// Scores of one query tile: each warp multiplies 16 query rows with 16 key rows on the tensor cores.
//
// build: bad-trap.ptx -arch=sm_89 -DLOCAL_ROWS
// heist: check cut-to-a-trap
// mark: T013 trap;
//
// build: good.ptx -arch=sm_89
// heist: run scores entry=scores grid=1 block=32
// heist: arg in:f16:[0..16,1*240]
// heist: arg in:f16:[1*256]
// heist: arg out:f32:256
// heist: expect 2 f32:[120*16,16*240]
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

__device__ void multiply(const __half *q, const __half *k, float *s) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(c, 0.0f);
    wmma::load_matrix_sync(a, q, 16);
    wmma::load_matrix_sync(b, k, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(s, c, 16, wmma::mem_row_major);
}

extern "C" __global__ void scores(const __half *q, const __half *k, float *s) {
#ifdef LOCAL_ROWS
    // Each thread keeps "its" rows to itself; a fragment is spread over 32 threads, which can't see them.
    __half rows[16 * 16];
    for (int i = 0; i < 256; i++) rows[i] = q[i];
#else
    __shared__ __align__(32) __half rows[16 * 16];
    for (int i = threadIdx.x; i < 256; i += 32) rows[i] = q[i];
    __syncwarp();
#endif
    multiply(rows, k, s);
}
