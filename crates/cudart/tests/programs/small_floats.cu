// bfloat16 and 8-bit floats: conversions, arithmetic in pairs, rounding and saturation.
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include "common.h"
__global__ void halves(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i >= n) return;
  __nv_bfloat162 pair = __floats2bfloat162_rn(x[i], 1.0f);
  pair = __hfma2(pair, pair, pair);
  y[2 * i] = __low2float(pair);
  y[2 * i + 1] = __high2float(pair);
}
__global__ void quarters(const float* x, float* y, int n) {
  int i = threadIdx.x;
  if (i < n) y[i] = float(__nv_fp8_e4m3(x[i])), y[n + i] = float(__nv_fp8_e5m2(x[i]));
}
int main() {
  std::vector<float> x = {0, 1, 1.5f, -2.25f, 3.1415926f, 447, 1000, -0.001f, 0.017f, 70000};
  const int n = int(x.size());
  float *from = device(x), *to = device(std::vector<float>(2 * n));
  halves<<<1, 32>>>(from, to, n);
  OK(cudaGetLastError());
  auto y = host(to, 2 * n);
  for (int i = 0; i < n; i++) {
    float b = __bfloat162float(__float2bfloat16(x[i]));
    RIGHT(y[2 * i] == __bfloat162float(__double2bfloat16(double(b) * b + b)) && y[2 * i + 1] == 2);
  }
  quarters<<<1, 32>>>(from, to, n);
  OK(cudaGetLastError());
  y = host(to, 2 * n);
  for (int i = 0; i < n; i++) {
    RIGHT(y[i] == float(__nv_fp8_e4m3(x[i])));
    RIGHT(y[n + i] == float(__nv_fp8_e5m2(x[i])));
  }
  RIGHT(y[6] == 448 && y[3] == -2.25f);  // the largest e4m3, and one that needs no rounding
}
