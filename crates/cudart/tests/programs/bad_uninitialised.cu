// breaks M011
#include "common.h"
__global__ void sum(const float* x, float* y) {
  y[threadIdx.x] = 1 + x[threadIdx.x];  // BUG
}
int main() { float *x, *y; OK(cudaMalloc(&x, 256)); OK(cudaMalloc(&y, 256)); sum<<<1, 64>>>(x, y); OK(cudaDeviceSynchronize()); }
