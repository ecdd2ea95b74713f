#include "common.h"
__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
int main() {
  std::vector<float> x(1000);
  for (int i = 0; i < 1000; i++) x[i] = i;
  float *a = device(x), *b = device(x), *c;
  OK(cudaMalloc(&c, 4000));
  add<<<4, 256>>>(a, b, c, 1000);
  OK(cudaGetLastError());
  OK(cudaDeviceSynchronize());
  auto y = host(c, 1000);
  for (int i = 0; i < 1000; i++) RIGHT(y[i] == 2 * x[i]);
  OK(cudaFree(a)); OK(cudaFree(b)); OK(cudaFree(c));
}
