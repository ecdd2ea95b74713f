#include "common.h"
#include <cuda_fp16.h>
__global__ void mul(const __half* a, const __half* b, __half* c) { c[threadIdx.x] = __hfma(a[threadIdx.x], b[threadIdx.x], __float2half(1.0f)); }
int main() {
  std::vector<__half> a(32), b(32);
  for (int i = 0; i < 32; i++) { a[i] = __float2half(i); b[i] = __float2half(0.5f); }
  __half *x = device(a), *y = device(b), *z;
  OK(cudaMalloc(&z, 64));
  mul<<<1, 32>>>(x, y, z);
  auto c = host(z, 32);
  for (int i = 0; i < 32; i++) RIGHT(__half2float(c[i]) == i * 0.5f + 1);
}
