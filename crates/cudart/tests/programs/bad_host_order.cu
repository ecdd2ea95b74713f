// The host reads what the kernel writes, and does not wait for it.
// breaks R011
#include "common.h"

__global__ void fill(int* to) { to[threadIdx.x] = threadIdx.x; }

int main() {
  int* shared;
  OK(cudaMallocManaged(&shared, 256));
  fill<<<1, 64>>>(shared);
  printf("%d\n", shared[63]);
  OK(cudaDeviceSynchronize());
  RIGHT(shared[63] == 63);
  OK(cudaFree(shared));
  return 0;
}
