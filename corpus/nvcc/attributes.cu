// Kernel attributes and parameters: launch bounds, register limits, cluster and block sizes, grid constants, structs, packed and aligned parameters.
// build: -arch=sm_90
// build: -arch=sm_121
// build: -arch=sm_100f

struct Matrix { int rows, columns; float scale[3]; unsigned char flags; };
struct __align__(32) Block { double values[4]; };
struct Empty {};

extern "C" __global__ void __launch_bounds__(128, 2, 4) bounded(int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = gridDim.x; }
extern "C" __global__ void __maxnreg__(32) few_registers(int *out) { out[threadIdx.x] = threadIdx.x * 3; }
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int *out) {
    if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x ^ 1;
}
extern "C" __global__ void __block_size__((32, 2, 1), (2, 1, 1)) sized(int *out) {
    out[(blockIdx.x * 2 + threadIdx.y) * 32 + threadIdx.x] = threadIdx.y;
}

extern "C" __global__ void by_value(Matrix m, const float *data, const Block b, Empty, char c, short s, long long l, bool yes, float *out) {
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = 0; i < m.rows; i++) sum += data[i * m.columns + t];
    out[t] = sum * m.scale[t % 3] + (float)b.values[t & 3] + (float)c + (float)s + (float)l + (yes ? 0.5f : 0.0f) + (float)m.flags;
}

extern "C" __global__ void constant_parameter(const __grid_constant__ Matrix m, int *out) {
    const Matrix *p = &m;
    const unsigned char *raw = (const unsigned char *)p;
    int sum = 0;
    for (int i = 0; i < 8; i++) sum += raw[i] * (i + 1);
    out[threadIdx.x] = sum + p->rows * 1000 + (int)p->scale[threadIdx.x % 3];
}

extern "C" __global__ void many_parameters(int a, unsigned b, float c, double d, unsigned char e, const int *__restrict__ f, int2 g, float4 h, char3 i,
                                           ulonglong2 j, int *out) {
    out[threadIdx.x] = a + (int)b + (int)c + (int)d + e + f[threadIdx.x] + g.x * g.y + (int)(h.x + h.w) + i.z + (int)(j.x + j.y);
}

// A volatile copy of a struct parameter, indexed at run time: it goes through local memory.
extern "C" __global__ void indexed_parameter(Block b, int *out) { out[threadIdx.x] = (int)b.values[(threadIdx.x * 3) & 3]; }
