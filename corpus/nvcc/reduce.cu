// Sums: a shared-memory tree, warp shuffles, atomics, and the last block that finishes adds up (threadfence).
// build: -arch=sm_80
// build: -arch=sm_100

__device__ unsigned int blocks_done = 0;

extern "C" __global__ void reduce_tree(const float *in, float *out, int n) {
    __shared__ float part[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    part[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void reduce_shuffle(const int *in, int *out, int n) {
    __shared__ int part[32];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int v = i < n ? in[i] : 0;
    for (int d = 16; d > 0; d >>= 1) v += __shfl_down_sync(0xffffffffu, v, d);
    if (t % 32 == 0) part[t / 32] = v;
    __syncthreads();
    if (t < 32) {
        v = t < blockDim.x / 32 ? part[t] : 0;
        for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
        if (t == 0) atomicAdd(out, v);
    }
}

// The last block to finish sums the blocks' parts and resets the counter for the next launch.
extern "C" __global__ void reduce_last_block(const int *in, int *parts, int *total, int n) {
    __shared__ int sum;
    __shared__ bool last;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    if (t == 0) sum = 0;
    __syncthreads();
    if (i < n) atomicAdd(&sum, in[i]);
    __syncthreads();
    if (t == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && t == 0) {
        int all = 0;
        for (unsigned b = 0; b < gridDim.x; b++) all += ((volatile int *)parts)[b];
        *total = all;
    }
}

extern "C" __global__ void reduce_redux(const unsigned *in, unsigned *out) {
    unsigned v = in[threadIdx.x];
    unsigned s = __reduce_add_sync(0xffffffffu, v);
    unsigned m = __reduce_max_sync(0xffffffffu, v);
    unsigned x = __reduce_xor_sync(0xffffffffu, v);
    if (threadIdx.x == 0) out[0] = s, out[1] = m, out[2] = x;
}
