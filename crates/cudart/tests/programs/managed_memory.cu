#include "common.h"
__managed__ int total = 1;
__global__ void fill(int* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { x[i] = i; atomicAdd(&total, i); } }
int main() {
  int* x;
  OK(cudaMallocManaged(&x, 400));
  x[5] = 77;
  RIGHT(total == 1);
  total = 10;
  fill<<<2, 64>>>(x, 100);
  OK(cudaDeviceSynchronize());
  for (int i = 0; i < 100; i++) RIGHT(x[i] == i);
  RIGHT(total == 10 + 4950);
  OK(cudaFree(x));
}
