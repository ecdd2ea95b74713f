// mma.sync by inline assembly, fragments loaded by hand: f16 (both accumulators), bf16, tf32, int8, f64.
// build: -arch=sm_80
// build: -arch=sm_90 -DHOPPER => wide_f64
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define LANE int lane = threadIdx.x & 31, g = lane >> 2, q = lane & 3

__device__ __forceinline__ unsigned word(const void *p) { return *(const unsigned *)p; }

// D[16][8] = A[16][16] * B[8][16]^T + C, the accumulator kept in c.
extern "C" __global__ void mma_f16_f32(const __half *a, const __half *b, float *c) {
    LANE;
    unsigned a0 = word(a + g * 16 + q * 2), a1 = word(a + (g + 8) * 16 + q * 2), a2 = word(a + g * 16 + q * 2 + 8),
             a3 = word(a + (g + 8) * 16 + q * 2 + 8), b0 = word(b + g * 16 + q * 2), b1 = word(b + g * 16 + q * 2 + 8);
    float *top = c + g * 8 + q * 2, *bottom = top + 64;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(top[0]), "+f"(top[1]), "+f"(bottom[0]), "+f"(bottom[1])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// D[16][8] = A[16][8] * B[8][8]^T with f16 accumulators.
extern "C" __global__ void mma_f16_f16(const __half *a, const __half *b, __half *d) {
    LANE;
    unsigned a0 = word(a + g * 8 + q * 2), a1 = word(a + (g + 8) * 8 + q * 2), b0 = word(b + g * 8 + q * 2), d0, d1;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3}, {%4}, {%5,%5};"
                 : "=r"(d0), "=r"(d1)
                 : "r"(a0), "r"(a1), "r"(b0), "r"(0));
    *(unsigned *)(d + g * 8 + q * 2) = d0;
    *(unsigned *)(d + (g + 8) * 8 + q * 2) = d1;
}

extern "C" __global__ void mma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *d) {
    LANE;
    unsigned a0 = word(a + g * 16 + q * 2), a1 = word(a + (g + 8) * 16 + q * 2), a2 = word(a + g * 16 + q * 2 + 8),
             a3 = word(a + (g + 8) * 16 + q * 2 + 8), b0 = word(b + g * 16 + q * 2), b1 = word(b + g * 16 + q * 2 + 8);
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.5f));
    *(float2 *)(d + g * 8 + q * 2) = make_float2(d0, d1);
    *(float2 *)(d + (g + 8) * 8 + q * 2) = make_float2(d2, d3);
}

// D[16][8] = A[16][8] * B[8][8]^T, inputs converted to tf32 first.
extern "C" __global__ void mma_tf32(const float *a, const float *b, float *d) {
    LANE;
    float in[6] = {a[g * 8 + q], a[(g + 8) * 8 + q], a[g * 8 + q + 4], a[(g + 8) * 8 + q + 4], b[g * 8 + q], b[g * 8 + q + 4]};
    unsigned t[6];
    for (int i = 0; i < 6; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(t[i]) : "f"(in[i]));
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
                 : "r"(t[0]), "r"(t[1]), "r"(t[2]), "r"(t[3]), "r"(t[4]), "r"(t[5]), "f"(0.0f));
    *(float2 *)(d + g * 8 + q * 2) = make_float2(d0, d1);
    *(float2 *)(d + (g + 8) * 8 + q * 2) = make_float2(d2, d3);
}

// D[16][8] = A[16][32] * B[8][32]^T, signed by unsigned.
extern "C" __global__ void mma_int8(const signed char *a, const unsigned char *b, int *d) {
    LANE;
    unsigned a0 = word(a + g * 32 + q * 4), a1 = word(a + (g + 8) * 32 + q * 4), a2 = word(a + g * 32 + q * 4 + 16),
             a3 = word(a + (g + 8) * 32 + q * 4 + 16), b0 = word(b + g * 32 + q * 4), b1 = word(b + g * 32 + q * 4 + 16);
    int d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(d0), "=r"(d1), "=r"(d2), "=r"(d3)
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(-5));
    *(int2 *)(d + g * 8 + q * 2) = make_int2(d0, d1);
    *(int2 *)(d + (g + 8) * 8 + q * 2) = make_int2(d2, d3);
}

// D[8][8] = A[8][4] * B[8][4]^T
extern "C" __global__ void mma_f64(const double *a, const double *b, double *d) {
    LANE;
    double d0, d1;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%4};"
                 : "=d"(d0), "=d"(d1)
                 : "d"(a[g * 4 + q]), "d"(b[g * 4 + q]), "d"(0.25));
    *(double2 *)(d + g * 8 + q * 2) = make_double2(d0, d1);
}

#ifdef HOPPER
// D[16][8] = A[16][4] * B[8][4]^T
extern "C" __global__ void mma_f64_m16(const double *a, const double *b, double *d) {
    LANE;
    double d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
                 : "=d"(d0), "=d"(d1), "=d"(d2), "=d"(d3)
                 : "d"(a[g * 4 + q]), "d"(a[(g + 8) * 4 + q]), "d"(b[g * 4 + q]), "d"(0.0));
    *(double2 *)(d + g * 8 + q * 2) = make_double2(d0, d1);
    *(double2 *)(d + (g + 8) * 8 + q * 2) = make_double2(d2, d3);
}
#endif
