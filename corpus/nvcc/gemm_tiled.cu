// C = A*B with 16x16 tiles in shared memory, and a register-blocked one with dynamic shared memory and launch bounds.
// build: -arch=sm_75
// build: -arch=sm_86

template <int TILE>
__device__ __forceinline__ void tile_product(const float *a, const float *b, float *c, int n, int k) {
    __shared__ float as[TILE][TILE + 1], bs[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int at = 0; at < k; at += TILE) {
        as[threadIdx.y][threadIdx.x] = a[row * k + at + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * n + column];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

extern "C" __global__ void gemm16(const float *a, const float *b, float *c, int n, int k) { tile_product<16>(a, b, c, n, k); }

// A 32x32 tile of C by 64 threads, 4x4 a thread.
extern "C" __global__ void __launch_bounds__(64, 4) gemm_registers(const float *a, const float *b, float *c, int n, int k) {
    extern __shared__ float4 dynamic[];
    float *as = (float *)dynamic, *bs = as + 8 * 32;
    int t = threadIdx.x, tx = t % 8, ty = t / 8;
    int row0 = blockIdx.y * 32, column0 = blockIdx.x * 32;
    float sum[4][4] = {};
    for (int at = 0; at < k; at += 8) {
        for (int i = t; i < 256; i += 64) {
            as[i] = a[(row0 + i % 32) * k + at + i / 32];
            bs[i] = b[(at + i / 32) * n + column0 + i % 32];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float4 u = *(const float4 *)&as[i * 32 + ty * 4], v = *(const float4 *)&bs[i * 32 + tx * 4];
            const float *up = &u.x, *vp = &v.x;
#pragma unroll
            for (int y = 0; y < 4; y++)
#pragma unroll
                for (int x = 0; x < 4; x++) sum[y][x] += up[y] * vp[x];
        }
        __syncthreads();
    }
    for (int y = 0; y < 4; y++)
        *(float4 *)&c[(row0 + ty * 4 + y) * n + column0 + tx * 4] = make_float4(sum[y][0], sum[y][1], sum[y][2], sum[y][3]);
}
