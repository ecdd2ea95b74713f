// Memory orders and scopes: cuda::atomic_ref loads, stores and exchanges, fences, volatile, cache operators and eviction hints.
// build: -arch=sm_75
// build: -arch=sm_90
#include <cuda/atomic>

template <cuda::thread_scope S> using word = cuda::atomic_ref<int, S>;

// Message passing between two blocks of one warp each: data, then a flag with release; the other acquires.
extern "C" __global__ void message(int *data, int *flag, int *out) {
    word<cuda::thread_scope_device> ready(*flag);
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        data[t] = t * t + 1;
        __syncwarp();
        if (t == 0) {
            cuda::atomic_thread_fence(cuda::memory_order_acq_rel, cuda::thread_scope_device);
            ready.store(1, cuda::memory_order_release);
        }
    } else {
        if (t == 0) while (ready.load(cuda::memory_order_acquire) == 0) {}
        __syncwarp();
        cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_device);
        out[t] = data[t];
    }
}

extern "C" __global__ void orders(int *words, long long *wide) {
    int t = threadIdx.x;
    word<cuda::thread_scope_system> a(words[t]);
    word<cuda::thread_scope_block> b(words[32 + t]);
    cuda::atomic_ref<long long, cuda::thread_scope_device> c(wide[t]);
    int seen = a.load(cuda::memory_order_seq_cst);
    a.store(seen + 1, cuda::memory_order_seq_cst);
    b.store(b.load(cuda::memory_order_relaxed) * 2, cuda::memory_order_relaxed);
    b.fetch_add(a.exchange(seen * 10, cuda::memory_order_acq_rel), cuda::memory_order_release);
    c.fetch_max((long long)seen << 33, cuda::memory_order_relaxed);
    long long expected = (long long)seen << 33;
    c.compare_exchange_strong(expected, -1, cuda::memory_order_acq_rel, cuda::memory_order_acquire);
    __threadfence_block();
    __threadfence_system();
}

extern "C" __global__ void cache_hints(const int *in, const int4 *__restrict__ wide, int *out) {
    int t = threadIdx.x;
    int sum = __ldg(in + t) + __ldcg(in + t) * 2 + __ldca(in + t) * 3 + __ldcs(in + t) * 4 + __ldlu(in + t) * 5 + __ldcv(in + t) * 6;
    int4 v = wide[t];
    int far, evict;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.s32 %0, [%1];" : "=r"(far) : "l"(in + t));
    asm volatile("ld.global.L1::evict_last.s32 %0, [%1];" : "=r"(evict) : "l"(in + t));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + t));
    __stcg(out + t * 4, sum);
    __stcs(out + t * 4 + 1, v.x + v.w);
    __stwt(out + t * 4 + 2, far + evict);
    *(volatile int *)(out + t * 4 + 3) = *(const volatile int *)(in + t) - 1;
}
