// breaks M001
#include "common.h"
__global__ void fill(int* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = i;  // BUG
}
int main() { int* x; OK(cudaMalloc(&x, 400)); fill<<<1, 128>>>(x, 100); OK(cudaDeviceSynchronize()); }
