// The twin of crates/builder/examples/03_tiled_gemm.rs.
constexpr unsigned TILE = 128, DEPTH = 8;

extern "C" __global__ void __launch_bounds__(256, 2)
tiled_gemm(const float *__restrict__ a, const float *__restrict__ b, float *c, unsigned n, unsigned k)
{
    __shared__ __align__(16) float a_tile[DEPTH * TILE], b_tile[DEPTH * TILE];
    unsigned t = threadIdx.x, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    float sums[8][8] = {};
    unsigned a_row = t / 2, a_col = t % 2 * 4, b_row = t / 32, b_col = t % 32 * 4;
    const float *a_from = a + (row0 + a_row) * k + a_col;
    const float *b_from = b + b_row * n + col0 + b_col;
    unsigned my_row = t / 16 * 4, my_col = t % 16 * 4;

    for (unsigned depth = 0; depth < k; depth += DEPTH) {
        float4 a_new = __ldg(reinterpret_cast<const float4 *>(a_from + depth));
        float4 b_new = __ldg(reinterpret_cast<const float4 *>(b_from + depth * n));
        __syncthreads();
        a_tile[(a_col + 0) * TILE + a_row] = a_new.x;
        a_tile[(a_col + 1) * TILE + a_row] = a_new.y;
        a_tile[(a_col + 2) * TILE + a_row] = a_new.z;
        a_tile[(a_col + 3) * TILE + a_row] = a_new.w;
        *reinterpret_cast<float4 *>(&b_tile[b_row * TILE + b_col]) = b_new;
        __syncthreads();
#pragma unroll
        for (unsigned d = 0; d < DEPTH; d++) {
            float x[8], y[8];
            *reinterpret_cast<float4 *>(x) = *reinterpret_cast<float4 *>(&a_tile[d * TILE + my_row]);
            *reinterpret_cast<float4 *>(x + 4) = *reinterpret_cast<float4 *>(&a_tile[d * TILE + TILE / 2 + my_row]);
            *reinterpret_cast<float4 *>(y) = *reinterpret_cast<float4 *>(&b_tile[d * TILE + my_col]);
            *reinterpret_cast<float4 *>(y + 4) = *reinterpret_cast<float4 *>(&b_tile[d * TILE + TILE / 2 + my_col]);
#pragma unroll
            for (unsigned i = 0; i < 8; i++)
#pragma unroll
                for (unsigned j = 0; j < 8; j++)
                    sums[i][j] = fmaf(x[i], y[j], sums[i][j]);
        }
    }
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
        float *to = c + (row0 + my_row + i / 4 * (TILE / 2) + i % 4) * n + col0 + my_col;
        *reinterpret_cast<float4 *>(to) = make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
        *reinterpret_cast<float4 *>(to + TILE / 2) = make_float4(sums[i][4], sums[i][5], sums[i][6], sums[i][7]);
    }
}
