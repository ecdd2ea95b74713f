#include "common.h"
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  int* x;
  OK(cudaMallocAsync(&x, 128, s));
  fill<<<1, 32, 0, s>>>(x);
  std::vector<int> y(32);
  OK(cudaMemcpyAsync(y.data(), x, 128, cudaMemcpyDeviceToHost, s));
  OK(cudaFreeAsync(x, s));
  OK(cudaStreamSynchronize(s));
  RIGHT(y[31] == 31);
}
