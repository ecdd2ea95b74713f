#include "common.h"
__global__ void reverse(int* x, int n) {
  extern __shared__ int s[];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[n - 1 - threadIdx.x];
}
__global__ void big(int* x) { extern __shared__ int s[]; s[threadIdx.x + 20000] = threadIdx.x; __syncthreads(); x[threadIdx.x] = s[20000 + (threadIdx.x ^ 1)]; }
int main() {
  std::vector<int> x(64);
  for (int i = 0; i < 64; i++) x[i] = i;
  int* d = device(x);
  reverse<<<1, 64, 256>>>(d, 64);
  auto y = host(d, 64);
  RIGHT(y[0] == 63 && y[63] == 0);
  OK(cudaFuncSetAttribute(big, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 * 1024));
  big<<<1, 64, 96 * 1024>>>(d);
  OK(cudaGetLastError());
  RIGHT(host(d, 64)[0] == 1);
}
