// breaks B001
#include "common.h"
__global__ void half(int* x) {
  if (threadIdx.x < 16)
    __syncthreads();  // BUG
  x[threadIdx.x] = 1;
  __syncwarp();
}
int main() { int* x; OK(cudaMalloc(&x, 128)); half<<<1, 32>>>(x); cudaDeviceSynchronize(); }
