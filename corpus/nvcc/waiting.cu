// Threads that wait for threads: a spin lock taken by each lane, a ticket lock, producer and consumer warps, nanosleep, clocks, named barriers.
// build: -arch=sm_75
// build: -arch=sm_90

extern "C" __global__ void spin_lock(int *lock, int *count) {
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *(volatile int *)count += 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Needs independent progress of a warp's lanes: each lane waits for its turn.
extern "C" __global__ void ticket_lock(unsigned *next, unsigned *serving, int *order) {
    unsigned ticket = atomicAdd(next, 1u);
    while (atomicAdd(serving, 0u) != ticket) __nanosleep(20);
    __threadfence();
    order[ticket] = (int)(threadIdx.x + blockIdx.x * blockDim.x);
    __threadfence();
    atomicAdd(serving, 1u);
}

// Warp 0 produces into a ring of four slots, warp 1 consumes, with named barriers for full and empty.
extern "C" __global__ void produce_consume(const int *in, int *out, int rounds) {
    __shared__ int slot[2][32];
    int lane = threadIdx.x & 31;
    if (threadIdx.x < 32) {
        for (int i = 0; i < rounds; i++) {
            if (i >= 2) asm volatile("bar.sync %0, 64;" ::"r"(3 + (i & 1)) : "memory");
            slot[i & 1][lane] = in[i * 32 + lane] * 3;
            asm volatile("bar.arrive %0, 64;" ::"r"(1 + (i & 1)) : "memory");
        }
    } else {
        int sum = 0;
        for (int i = 0; i < rounds; i++) {
            asm volatile("bar.sync %0, 64;" ::"r"(1 + (i & 1)) : "memory");
            sum += slot[i & 1][31 - lane] + i;
            if (i + 2 < rounds) asm volatile("bar.arrive %0, 64;" ::"r"(3 + (i & 1)) : "memory");
        }
        out[lane] = sum;
    }
}

// The block-wide votes of the barrier, and what time it is.
extern "C" __global__ void barrier_votes(const int *in, int *out, unsigned long long *times) {
    int v = in[threadIdx.x];
    int count = __syncthreads_count(v > 2), all = __syncthreads_and(v > 0), any = __syncthreads_or(v == 9);
    out[threadIdx.x] = count * 100 + (all ? 10 : 0) + (any ? 1 : 0);
    unsigned long long t0, t1;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0)::"memory");
    long long c0 = clock64();
    __nanosleep(500);
    long long c1 = clock64();
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t1)::"memory");
    times[threadIdx.x] = (t1 >= t0) + (c1 > c0) * 2;
}
