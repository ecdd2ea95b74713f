// Device functions: not inlined, recursive, called through pointers (.callprototype), structs by value and returned, varied parameters.
// build: -arch=sm_80
// build: -arch=sm_90 -rdc=true => rdc

struct Pair { int low; float high; double wide; };

__device__ __noinline__ int add_squares(int a, int b) { return a * a + b * b; }
__device__ __noinline__ int difference(int a, int b) { return a - b; }
__device__ __noinline__ int larger(int a, int b) { return a > b ? a : b; }
__device__ __noinline__ Pair make_pair(int a, Pair before) { return {a + before.low, before.high * 2.0f, before.wide + a}; }
__device__ __noinline__ void swap_at(int *x, int *y) { int t = *x; *x = *y; *y = t; }
__device__ __noinline__ unsigned long long fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ __noinline__ unsigned char narrow(signed char a, short b, bool c) { return c ? a + b : a - b; }
__device__ __noinline__ float4 widen(float a) { return make_float4(a, a + 1, a + 2, a + 3); }

typedef int (*Binary)(int, int);
__device__ Binary table[3] = {add_squares, difference, larger};

extern "C" __global__ void call_direct(const int *a, int *out) {
    int t = threadIdx.x, v = a[t];
    Pair p = make_pair(v, {1, 2.5f, 0.25});
    int x = v, y = p.low;
    swap_at(&x, &y);
    float4 w = widen((float)v);
    out += t * 5;
    out[0] = add_squares(v, 3);
    out[1] = x * 100 + y;
    out[2] = (int)(p.high + p.wide * 4.0);
    out[3] = narrow((signed char)v, 7, v & 1);
    out[4] = (int)(w.x + w.y * 2 + w.z * 3 + w.w * 4);
}

extern "C" __global__ void call_indirect(const int *which, const int *a, int *out) {
    int t = threadIdx.x;
    out[t] = table[which[t]](a[t], 10);
}

extern "C" __global__ void call_recursive(unsigned long long *out) { out[threadIdx.x] = fibonacci(threadIdx.x); }

struct Shape {
    __device__ virtual float area(float s) const { return s; }
};
struct Square : Shape {
    __device__ float area(float s) const override { return s * s; }
};
struct Disc : Shape {
    __device__ float area(float s) const override { return 3.0f * s * s; }
};

extern "C" __global__ void call_virtual(const float *a, float *out) {
    int t = threadIdx.x;
    Square square;
    Disc disc;
    Shape plain;
    const Shape *all[3] = {&plain, &square, &disc};
    out[t] = all[(t * 7) % 3]->area(a[t]);
}
