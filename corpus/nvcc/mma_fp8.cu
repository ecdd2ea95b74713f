// Eight-bit floats: conversions to e4m3 and e5m2, and mma.sync on them (the plain form, and kind::f8f6f4 where there is one).
// build: -arch=sm_89
// build: -arch=sm_120a -DKINDS
#include <cuda_fp16.h>
#include <cuda_fp8.h>

// D[16][8] = A[16][32] * B[8][32]^T; A arrives as f16 and is converted to e4m3, B as f16 to e5m2.
extern "C" __global__ void mma_e4m3(const __half2 *a, const __half2 *b, float *d) {
    int lane = threadIdx.x, g = lane >> 2, q = lane & 3;
    unsigned r[6];
    for (int i = 0; i < 6; i++) {
        const __half2 *from = i < 4 ? a + ((g + (i & 1) * 8) * 32 + q * 4 + (i >> 1) * 16) / 2 : b + (g * 32 + q * 4 + (i - 4) * 16) / 2;
        __nv_fp8_interpretation_t kind = i < 4 ? __NV_E4M3 : __NV_E5M2;
        unsigned low = __nv_cvt_halfraw2_to_fp8x2(from[0], __NV_SATFINITE, kind);
        unsigned high = __nv_cvt_halfraw2_to_fp8x2(from[1], __NV_SATFINITE, kind);
        r[i] = low | high << 16;
    }
    float d0, d1, d2, d3;
    asm volatile(
#ifdef KINDS
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
#else
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
#endif
        : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
        : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "f"(0.0f));
    *(float2 *)(d + g * 8 + q * 2) = make_float2(d0, d1);
    *(float2 *)(d + (g + 8) * 8 + q * 2) = make_float2(d2, d3);
}

extern "C" __global__ void fp8_convert(const float2 *in, unsigned short *e4m3, unsigned short *e5m2, __half2 *back) {
    int t = threadIdx.x;
    float2 v = in[t];
    e4m3[t] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E4M3);
    e5m2[t] = __nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, __NV_E5M2);
    back[t] = __nv_cvt_fp8x2_to_halfraw2(e4m3[t], __NV_E4M3);
}
