// The peer of `sched_bench table`: the synthetic workloads with a plain atomic
// counter, as one writes them in CUDA C++. A block starts with the tile of its
// own number and draws the next one from the counter, before its tile's work
// (early) or after it (late).
//
// The counter is never cleared: `base` is what it holds before the launch, which
// the host knows, so that no memset is part of the time.
//
//   nvcc -O3 -arch=sm_90 -ptx -o plain.ptx bench/sched/plain.cu

#define FACTOR 1664525u
#define PROLOGUE_FACTOR 22695477u
#define PROLOGUE_ADDEND 12345u

// As long a run of multiply-adds without a branch as the assembler makes of ours.
__device__ __forceinline__ unsigned chain(unsigned value, unsigned addend, unsigned steps) {
#pragma unroll 16
    for (unsigned i = 0; i < steps; i++) value = value * FACTOR + addend;
    return value;
}

__device__ __forceinline__ unsigned search(unsigned value, unsigned addend, unsigned expected) {
    unsigned shift = 32 - __popc(expected - 1), limit = expected * 8, step = 0;
    unsigned high;
    do {
        value = value * FACTOR + addend;
        step++;
        // PTX shifts by 32 as one expects; in C++ that would take a test.
        asm("shr.u32 %0, %1, %2;" : "=r"(high) : "r"(value), "r"(shift));
    } while (high != 0 && step < limit);
    return value;
}

template <bool EARLY, bool SEARCH>
__device__ __forceinline__ void run(const unsigned *costs, const unsigned *input, unsigned *output,
                                    unsigned prologue, unsigned seed, unsigned *counter,
                                    unsigned tiles, unsigned base) {
    __shared__ unsigned next;
    unsigned addend = seed;
    // The compiler would make one step of several, for it knows both numbers.
#pragma unroll 16
    for (unsigned i = 0; i < prologue; i++)
        asm volatile("mad.lo.u32 %0, %0, %1, %2;"
                     : "+r"(addend)
                     : "r"(PROLOGUE_FACTOR), "r"(PROLOGUE_ADDEND));
    unsigned tile = blockIdx.x, ticket = 0;
    while (tile < tiles) {
        if (EARLY && threadIdx.x == 0) ticket = atomicAdd(counter, 1);
        unsigned at = tile * 256 + threadIdx.x;
        unsigned steps = __ldg(costs + tile), start = __ldg(input + at);
        output[at] = SEARCH ? search(start, addend, steps) : chain(start, addend, steps);
        if (threadIdx.x == 0) {
            if (!EARLY) ticket = atomicAdd(counter, 1);
            next = gridDim.x + ticket - base;
        }
        __syncthreads();
        tile = next;
        __syncthreads();
    }
}

#define PEER(NAME, EARLY, SEARCH)                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 8)                                          \
        NAME(const unsigned *costs, const unsigned *input, unsigned *output, unsigned prologue,   \
             unsigned seed, unsigned *counter, unsigned tiles, unsigned base) {                   \
        run<EARLY, SEARCH>(costs, input, output, prologue, seed, counter, tiles, base);           \
    }

PEER(plain_early_chain, true, false)
PEER(plain_late_chain, false, false)
PEER(plain_early_search, true, true)
PEER(plain_late_search, false, true)
