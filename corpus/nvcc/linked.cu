// Relocatable code: extern functions and variables, weak and inline functions, templates, constructors and destructors, visible device functions.
// build: -arch=sm_80 -rdc=true => rdc
// build: -arch=sm_80 -rdc=true -DCOMPLETE => weak

#ifndef COMPLETE
extern __device__ int outside(int, float);
extern __device__ int outside_value;
extern __constant__ float outside_constants[];
#else
static __device__ int outside_value = 3;
static __constant__ float outside_constants[4] = {1.0f, 2.0f, 3.0f, 4.0f};
static __device__ __noinline__ int outside(int a, float b) { return a * (int)b; }
#endif

template <typename T> __device__ __noinline__ T twice(T v) { return v + v; }
inline __device__ __noinline__ int shared_inline(int v) { return v ^ 0x1f; }
__device__ __noinline__ int visible(int v) { return v * 5; }

struct Counter {
    int start;
    __device__ __noinline__ Counter(int s) : start(s * 2) {}
    __device__ __noinline__ virtual ~Counter() { start = 0; }
    __device__ __noinline__ int next() { return ++start; }
};
struct Doubled : Counter {
    __device__ __noinline__ Doubled(int s) : Counter(s + 1) {}
    __device__ __noinline__ ~Doubled() {}
};

template <int N> __global__ void instantiated(int *out) { out[threadIdx.x] = twice(N) + twice((int)threadIdx.x); }
template __global__ void instantiated<4>(int *);

extern "C" __global__ void linked(int *out) {
    int t = threadIdx.x;
    Doubled c(t);
    out[t] = c.next() + c.next() + shared_inline(t) + visible(t) + outside(t, outside_constants[t & 3]) + outside_value + (int)twice(0.5f * t);
}
