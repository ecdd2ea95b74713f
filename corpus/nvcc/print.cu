// printf with many argument kinds, assert, trap and the breakpoint.
// build: -arch=sm_80
#include <assert.h>
#include <stdio.h>

extern "C" __global__ void hello(int n) {
    int t = threadIdx.x;
    if (t < n) printf("thread %d of block %u: %s %c %5.2f %lld 100%%\n", t, blockIdx.x, t & 1 ? "odd" : "even", 'a' + t, t * 0.5, (long long)t << 33);
    if (t == 0) printf("no arguments\n");
}

extern "C" __global__ void checked(const int *in, int *out) {
    int t = threadIdx.x;
    assert(in[t] >= 0 && "the input may not be negative");
    out[t] = in[t] * 2;
}

extern "C" __global__ void traps(const int *in, int *out) {
    int t = threadIdx.x;
    if (in[t] == 13) __trap();
    if (in[t] == 14) __brkpt();
    out[t] = in[t] + 1;
}
