// Sums memory that nobody has written, for initcheck: the buffers of `heist exec` all have a value.
#include <cstdio>

__global__ void sum(const float* values, float* total) {
  atomicAdd(total, values[threadIdx.x]);
}

int main() {
  float *values, *total;
  cudaMalloc(&values, 32 * sizeof(float));
  cudaMalloc(&total, sizeof(float));
  cudaMemset(total, 0, sizeof(float));
  sum<<<1, 32>>>(values, total);
  cudaError_t status = cudaDeviceSynchronize();
  printf("%s\n", cudaGetErrorString(status));
  return status != cudaSuccess;
}
