#include "common.h"
__global__ void sum(const int* x, int* out) {
  int v = x[threadIdx.x];
  for (int step = 16; step; step /= 2) v += __shfl_down_sync(~0u, v, step);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = v;
}
int main() {
  std::vector<int> x(64);
  for (int i = 0; i < 64; i++) x[i] = i;
  int *d = device(x), *out;
  OK(cudaMalloc(&out, 8));
  sum<<<1, 64>>>(d, out);
  auto y = host(out, 2);
  RIGHT(y[0] == 496 && y[1] == 1520);
}
