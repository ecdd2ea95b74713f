// breaks X005
#include "common.h"
__global__ void nothing(int* x) { if (x) *x = 1; }
int main() {
  nothing<<<1, 4096>>>(nullptr);
  RIGHT(cudaPeekAtLastError() == cudaErrorInvalidConfiguration);
  RIGHT(cudaGetLastError() == cudaErrorInvalidConfiguration);
  RIGHT(cudaGetLastError() == cudaSuccess);
  RIGHT(cudaFree((void*)12345) != cudaSuccess);
  cudaGetLastError();
  void* p;
  RIGHT(cudaMalloc(&p, size_t(1) << 50) == cudaErrorMemoryAllocation);
  printf("%s: %s\n", cudaGetErrorName(cudaErrorMemoryAllocation), cudaGetErrorString(cudaErrorMemoryAllocation));
}
