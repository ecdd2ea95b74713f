// mbarriers: cuda::barrier (arrive, wait, drop, copies), cuda::ptx with tokens and parities, several phases, pending counts, inval.
// build: -arch=sm_80
// build: -arch=sm_90
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda/std/utility>
namespace ptx = cuda::ptx;
using barrier_t = cuda::barrier<cuda::thread_scope_block>;

// Rounds of neighbours' sums; the barrier separates the rounds.
extern "C" __global__ void rounds(const int *in, int *out, int n) {
    __shared__ int line[2][64];
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier_t barrier;
    int t = threadIdx.x;
    if (t == 0) init(&barrier, blockDim.x);
    line[0][t] = in[t];
    __syncthreads();
    barrier.arrive_and_wait();
    for (int i = 0; i < n; i++) {
        line[(i + 1) & 1][t] = line[i & 1][t] + line[i & 1][(t + 1) % 64];
        auto token = barrier.arrive();
        barrier.wait(cuda::std::move(token));
    }
    out[t] = line[n & 1][t];
}

// Half the threads leave after the first phase.
extern "C" __global__ void leavers(int *out) {
    __shared__ int sum;
    __shared__ barrier_t barrier;
    int t = threadIdx.x;
    if (t == 0) init(&barrier, blockDim.x), sum = 0;
    __syncthreads();
    atomicAdd(&sum, t);
    if (t >= 32) {
        barrier.arrive_and_drop();
        return;
    }
    barrier.arrive_and_wait();
    int first = sum;
    barrier.arrive_and_wait();
    if (t < 16) atomicAdd(&sum, 1000);
    barrier.arrive_and_wait();
    out[t] = first * 2 + sum;
}

extern "C" __global__ void copy_with_barrier(const int *in, int *out) {
    __shared__ alignas(16) int tile[128];
    __shared__ barrier_t barrier;
    auto block = cooperative_groups::this_thread_block();
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(block, tile, in, cuda::aligned_size_t<16>(sizeof(tile)), barrier);
    barrier.arrive_and_wait();
    for (int i = threadIdx.x; i < 128; i += blockDim.x) out[i] = tile[i ^ 5];
}

// The instructions themselves: one warp arrives with counts, the others wait by token and by parity.
extern "C" __global__ void tokens(int *out) {
    __shared__ alignas(8) cuda::std::uint64_t barrier;
    __shared__ int box;
    int t = threadIdx.x;
    if (t == 0) ptx::mbarrier_init(&barrier, 64), box = 7;
    __syncthreads();
    cuda::std::uint64_t token = ptx::mbarrier_arrive(&barrier);
    while (!ptx::mbarrier_test_wait(&barrier, token)) {}
    int seen = box;
    __syncthreads();
    if (t == 0) {
        box = 8;
        token = ptx::mbarrier_arrive_no_complete(&barrier, 31);
        unsigned pending;
        asm("mbarrier.pending_count.b64 %0, %1;" : "=r"(pending) : "l"(token));
        box += pending >= 32 && pending <= 64; // how many of the others were faster is not known
        token = ptx::mbarrier_arrive(&barrier);
    } else if (t >= 32) {
        token = ptx::mbarrier_arrive(&barrier);
    }
    while (!ptx::mbarrier_test_wait_parity(&barrier, 1)) {}
    out[t] = seen * 1000 + box;
    __syncthreads();
    if (t == 0) {
        asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"((unsigned)__cvta_generic_to_shared(&barrier)) : "memory");
        ptx::mbarrier_init(&barrier, 1);
    }
    __syncthreads();
    if (t == 5) token = ptx::mbarrier_arrive(&barrier);
    while (!ptx::mbarrier_test_wait_parity(&barrier, 0)) {}
}
