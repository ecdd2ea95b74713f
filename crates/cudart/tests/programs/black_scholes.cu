#include "common.h"
__device__ float normal(float d) { return 0.5f * erfcf(-d * 0.70710678f); }
__global__ void price(float* call, const float* s, const float* x, const float* t, float r, float v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float root = sqrtf(t[i]), d1 = (logf(s[i] / x[i]) + (r + 0.5f * v * v) * t[i]) / (v * root), d2 = d1 - v * root;
  call[i] = s[i] * normal(d1) - x[i] * expf(-r * t[i]) * normal(d2);
}
int main() {
  const int n = 200;
  std::vector<float> s(n), x(n), t(n);
  for (int i = 0; i < n; i++) { s[i] = 5 + i % 26; x[i] = 1 + i % 99; t[i] = 0.25f + i % 10; }
  float *S = device(s), *X = device(x), *T = device(t), *C;
  OK(cudaMalloc(&C, n * 4));
  price<<<2, 128>>>(C, S, X, T, 0.02f, 0.3f, n);
  auto c = host(C, n);
  for (int i = 0; i < n; i++) {
    double d1 = (log(s[i] / x[i]) + (0.02 + 0.045) * t[i]) / (0.3 * sqrt(t[i])), d2 = d1 - 0.3 * sqrt(t[i]);
    double want = s[i] * 0.5 * erfc(-d1 * M_SQRT1_2) - x[i] * exp(-0.02 * t[i]) * 0.5 * erfc(-d2 * M_SQRT1_2);
    RIGHT(fabs(c[i] - want) < 1e-3);
  }
}
