#include "common.h"
__global__ void histogram(const unsigned char* x, unsigned* bins, int n) {
  __shared__ unsigned own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 256 * gridDim.x) atomicAdd(&own[x[i]], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
int main() {
  std::vector<unsigned char> x(4000);
  std::vector<unsigned> want(256);
  for (int i = 0; i < 4000; i++) want[x[i] = i * 37 % 251]++;
  unsigned char* d = device(x);
  unsigned* bins;
  OK(cudaMalloc(&bins, 1024));
  OK(cudaMemset(bins, 0, 1024));
  histogram<<<3, 256>>>(d, bins, 4000);
  RIGHT(host(bins, 256) == want);
}
