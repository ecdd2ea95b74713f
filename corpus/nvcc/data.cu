// Module variables: constant memory and global arrays with initialisers, pointers and addresses in them, structs, alignment, strings.
// build: -arch=sm_80

struct Entry { const char *name; int id; float weight; const int *values; };

__constant__ float coefficients[5] = {1.0f, -0.5f, 0.25f, -0.125f, 0.0625f};
__constant__ unsigned char mask_bytes[4] = {0x0f, 0xf0, 0x3c, 0xc3};
__constant__ double scale = 2.5;
__device__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ int evens[3] = {2, 4, 6};
__device__ int counter = 40;
__device__ unsigned long long zeros[16];
__device__ __align__(64) short rows[2][3] = {{1, 2, 3}, {-4, -5, -6}};
__device__ Entry entries[2] = {{"primes", 7, 1.5f, primes}, {"evens", 9, -2.0f, &evens[1]}};
__device__ int *const to_middle = &primes[4];
__device__ int *chain[2] = {&primes[7], evens};
__managed__ int managed_value = 5;

extern "C" __global__ void use_constant(const float *x, float *out) {
    int t = threadIdx.x;
    float v = x[t], r = 0.0f;
    for (int i = 4; i >= 0; i--) r = r * v + coefficients[i];
    out[t] = r * (float)scale + mask_bytes[t & 3];
}

extern "C" __global__ void use_globals(int *out) {
    int t = threadIdx.x;
    const Entry &e = entries[t & 1];
    int length = 0;
    while (e.name[length]) length++;
    out += t * 6;
    out[0] = e.id * 100 + length;
    out[1] = e.values[0] + (int)e.weight;
    out[2] = *to_middle + *chain[t & 1];
    out[3] = rows[t & 1][t % 3];
    out[4] = atomicAdd(&counter, 1) >= 40;
    zeros[t] += t + 1;
    out[5] = (int)zeros[t];
}
