// Half precision and bfloat16, scalar and packed: arithmetic, fma with relu, comparisons, conversions both ways.
// build: -arch=sm_75
// build: -arch=sm_90
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_ops(const __half *a, const __half *b, __half *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half x = a[i], y = b[i];
    out += i * 6;
    out[0] = __hadd(x, y);
    out[1] = __hmul(x, y);
    out[2] = __hfma(x, y, x);
    out[3] = __hsub(x, y);
    out[4] = __hlt(x, y) ? x : y;
    out[5] = __float2half_rz(__half2float(x) * 1.0009765625f);
}

extern "C" __global__ void half2_ops(const __half2 *a, const __half2 *b, __half2 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half2 x = a[i], y = b[i];
    out += i * 4;
    out[0] = __hadd2(x, y);
    out[1] = __hfma2(x, y, y);
    out[2] = __hmul2_sat(x, y);
    out[3] = __floats2half2_rn(__low2float(x) + 1.0f, __high2float(y) - 1.0f);
}

#if __CUDA_ARCH__ >= 800
extern "C" __global__ void bfloat_ops(const __nv_bfloat16 *a, const __nv_bfloat16 *b, __nv_bfloat16 *out, float *wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16 x = a[i], y = b[i];
    out += i * 6;
    out[0] = __hadd(x, y);
    out[1] = __hmul(x, y);
    out[2] = __hfma(x, y, x);
    out[3] = __hmax(x, y);
    out[4] = __hneg(x);
    out[5] = __float2bfloat16(__bfloat162float(x) + 0.125f);
    wide[i] = __bfloat162float(x) * __bfloat162float(y);
}

extern "C" __global__ void bfloat2_ops(const __nv_bfloat162 *a, const __nv_bfloat162 *b, __nv_bfloat162 *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat162 x = a[i], y = b[i];
    out += i * 3;
    out[0] = __hadd2(x, y);
    out[1] = __hfma2_relu(x, y, x);
    out[2] = __hmin2(x, y);
}
#endif
