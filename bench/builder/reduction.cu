// The twin of crates/builder/examples/02_reduction.rs.
static __device__ float warp_sum(float v)
{
    for (int step = 16; step > 0; step /= 2)
        v += __shfl_xor_sync(~0u, v, step);
    return v;
}

extern "C" __global__ void __launch_bounds__(256) reduce(const float *__restrict__ x, float *sum, unsigned n)
{
    __shared__ float partials[8];
    float mine = 0.0f;
    for (unsigned i = (blockIdx.x * 256 + threadIdx.x) * 4; i < n; i += gridDim.x * 256 * 4) {
        float4 v = __ldg(reinterpret_cast<const float4 *>(x + i));
        mine += (v.x + v.y) + (v.z + v.w);
    }
    mine = warp_sum(mine);
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0)
        partials[warp] = mine;
    __syncthreads();
    mine = warp_sum(lane < 8 ? partials[lane] : 0.0f);
    __syncthreads();
    if (threadIdx.x == 0)
        atomicAdd(sum, mine);
}
