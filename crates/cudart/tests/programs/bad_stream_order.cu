// The second stream reads what the first one writes, and does not wait for it.
// breaks R010
#include "common.h"

__global__ void fill(int* to) { to[threadIdx.x] = threadIdx.x; }
__global__ void twice(int* to, const int* from) { to[threadIdx.x] = 2 * from[threadIdx.x]; }

int main() {
  int *a, *b;
  OK(cudaMalloc(&a, 256));
  OK(cudaMalloc(&b, 256));
  cudaStream_t one, two;
  OK(cudaStreamCreate(&one));
  OK(cudaStreamCreate(&two));
  fill<<<1, 64, 0, one>>>(a);
  twice<<<1, 64, 0, two>>>(b, a);
  OK(cudaDeviceSynchronize());
  std::vector<int> back(64);
  OK(cudaMemcpy(back.data(), b, 256, cudaMemcpyDeviceToHost));
  RIGHT(back[63] == 126);
  OK(cudaFree(a));
  OK(cudaFree(b));
  return 0;
}
