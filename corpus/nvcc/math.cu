// The math library, inlined from libdevice: range reduction tables, long polynomials, slow paths, the .approx intrinsics.
// build: -arch=sm_90
// build: -arch=sm_89 -use_fast_math => fast

extern "C" __global__ void math_float(const float *a, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = a[i];
    out += i * 10;
    out[0] = sinf(x);
    out[1] = cosf(x);
    out[2] = expf(x);
    out[3] = logf(fabsf(x) + 1.0f);
    out[4] = tanhf(x);
    out[5] = rsqrtf(fabsf(x) + 0.5f);
    out[6] = powf(fabsf(x) + 0.25f, 1.5f);
    out[7] = erff(x);
    out[8] = exp2f(x) + log2f(fabsf(x) + 2.0f);
    out[9] = atan2f(x, 2.0f);
}

extern "C" __global__ void math_double(const double *a, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = a[i];
    out += i * 4;
    out[0] = sin(x);
    out[1] = exp(x);
    out[2] = log(fabs(x) + 1.0);
    out[3] = sqrt(fabs(x)) / (1.0 + x * x);
}
