// A debug build (-G): debug sections, unoptimised code, every variable in local memory; and line information of inlined calls.
// build: -arch=sm_80 -G => debug
// build: -arch=sm_90 -lineinfo => lineinfo

struct Point { float x, y; };

__device__ __forceinline__ float dot(Point a, Point b) { return a.x * b.x + a.y * b.y; }
__device__ float longer(Point a, Point b) {
    float u = dot(a, a), v = dot(b, b);
    return u > v ? u : v;
}

extern "C" __global__ void points(const Point *a, const Point *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float best = 0.0f;
        for (int j = 0; j < n; j++) best = fmaxf(best, longer(a[i], b[j]));
        out[i] = best + dot(a[i], b[i]);
    }
}
