// Single and double precision: the four roundings, fma, division, square root, conversions, comparisons, classification.
// build: -arch=sm_80
// build: -arch=sm_86 -use_fast_math => fast

extern "C" __global__ void float_ops(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i], y = b[i];
    out += i * 16;
    out[0] = __fadd_rn(x, y);
    out[1] = __fadd_rz(x, y);
    out[2] = __fadd_ru(x, y);
    out[3] = __fadd_rd(x, y);
    out[4] = __fmul_rn(x, y);
    out[5] = __fmaf_rn(x, y, 1.0f);
    out[6] = __fdiv_rn(x, y);
    out[7] = __fsqrt_rn(fabsf(x));
    out[8] = fminf(x, y);
    out[9] = fmaxf(x, y);
    out[10] = truncf(x);
    out[11] = floorf(x) + ceilf(y);
    out[12] = rintf(x);
    out[13] = x < y ? 1.0f : (x != y ? 2.0f : 3.0f);
    out[14] = copysignf(x, y);
    out[15] = isnan(x) ? 4.0f : isinf(x) ? 5.0f : 6.0f;
}

extern "C" __global__ void double_ops(const double *a, const double *b, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i], y = b[i];
    out += i * 8;
    out[0] = __dadd_rn(x, y);
    out[1] = __dmul_rz(x, y);
    out[2] = __fma_rn(x, y, 0.5);
    out[3] = __ddiv_rn(x, y);
    out[4] = __dsqrt_rn(fabs(x));
    out[5] = fmin(x, y);
    out[6] = floor(x);
    out[7] = (double)(float)x;
}

extern "C" __global__ void conversions(const float *a, const int *k, int *out, float *fout, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i];
    int v = k[i];
    out += i * 6;
    out[0] = __float2int_rn(x);
    out[1] = __float2int_rz(x);
    out[2] = (int)__float2uint_ru(x);
    out[3] = (int)(__float2ll_rd(x) >> 1);
    out[4] = __float_as_int(x);
    out[5] = (unsigned char)__float2int_rd(x);
    fout += i * 4;
    fout[0] = __int2float_rn(v);
    fout[1] = __uint2float_rz((unsigned)v);
    fout[2] = (float)((long long)v << 20);
    fout[3] = (float)(double)v;
}
