// Asynchronous copies through the C++ interfaces: cooperative_groups::memcpy_async and cuda::pipeline with several stages.
// build: -arch=sm_80
// build: -arch=sm_90
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;

extern "C" __global__ void group_copy(const int *in, int *out, int n) {
    __shared__ alignas(16) int tile[128];
    cg::thread_block block = cg::this_thread_block();
    for (int at = 0; at < n; at += 128) {
        cg::memcpy_async(block, tile, in + at, cuda::aligned_size_t<16>(sizeof(tile)));
        cg::wait(block);
        for (int i = block.thread_rank(); i < 128; i += block.size()) out[at + i] = tile[127 - i] + at;
        block.sync();
    }
}

// One pipeline for the whole block, three stages deep.
extern "C" __global__ void staged_sum(const int *in, int *out, int batches) {
    constexpr int stages = 3;
    __shared__ alignas(16) int buffer[stages][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    int t = block.thread_rank(), sum = 0;
    for (int at = 0, ahead = 0; at < batches; at++) {
        for (; ahead < batches && ahead < at + stages; ahead++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, buffer[ahead % stages], in + ahead * 64, sizeof(int) * 64, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += buffer[at % stages][63 - t] * (at + 1);
        pipe.consumer_release();
    }
    out[t] = sum;
}

// A pipeline of each thread's own copies.
extern "C" __global__ void thread_pipeline(const int4 *in, int4 *out, int n) {
    __shared__ int4 slot[2][32];
    auto pipe = cuda::make_pipeline();
    int t = threadIdx.x;
    pipe.producer_acquire();
    cuda::memcpy_async(&slot[0][t], &in[t], cuda::aligned_size_t<16>(16), pipe);
    pipe.producer_commit();
    for (int i = 0; i < n; i++) {
        if (i + 1 < n) {
            pipe.producer_acquire();
            cuda::memcpy_async(&slot[(i + 1) & 1][t], &in[(i + 1) * 32 + t], cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
            cuda::pipeline_consumer_wait_prior<1>(pipe);
        } else {
            cuda::pipeline_consumer_wait_prior<0>(pipe);
        }
        int4 v = slot[i & 1][t];
        out[i * 32 + t] = make_int4(v.w, v.z, v.y, v.x);
        pipe.consumer_release();
    }
}
