#include "common.h"
__global__ void twice(int* x) { x[threadIdx.x] *= 2; }
int main() {
  int *x, *d, *mapped;
  OK(cudaMallocHost(&x, 256));
  for (int i = 0; i < 64; i++) x[i] = i;
  OK(cudaMalloc(&d, 256));
  OK(cudaMemcpy(d, x, 256, cudaMemcpyDefault));
  twice<<<1, 64>>>(d);
  OK(cudaMemcpy(x, d, 256, cudaMemcpyDefault));
  RIGHT(x[63] == 126);
  OK(cudaFreeHost(x));
  OK(cudaHostAlloc(&x, 256, cudaHostAllocMapped));
  for (int i = 0; i < 64; i++) x[i] = i;
  OK(cudaHostGetDevicePointer(&mapped, x, 0));
  twice<<<1, 64>>>(mapped);
  OK(cudaDeviceSynchronize());
  RIGHT(x[10] == 20);
  std::vector<int> own(64, 4);
  OK(cudaHostRegister(own.data(), 256, cudaHostRegisterMapped));
  OK(cudaHostGetDevicePointer(&mapped, own.data(), 0));
  twice<<<1, 64>>>(mapped);
  OK(cudaDeviceSynchronize());
  RIGHT(own[63] == 8);
  OK(cudaHostUnregister(own.data()));
}
