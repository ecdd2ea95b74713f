#include "common.h"
int main() {
  int count = 0, value = 0;
  cudaDeviceProp p;
  OK(cudaGetDeviceCount(&count));
  RIGHT(count == 1);
  OK(cudaSetDevice(0));
  OK(cudaGetDeviceProperties(&p, 0));
  printf("%s, %d.%d, %d SMs\n", p.name, p.major, p.minor, p.multiProcessorCount);
  RIGHT(p.warpSize == 32 && p.maxThreadsPerBlock == 1024 && p.major >= 8 && p.multiProcessorCount > 0);
  OK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  RIGHT(value == p.multiProcessorCount);
  size_t free = 0, total = 0;
  OK(cudaMemGetInfo(&free, &total));
  RIGHT(free <= total && total == p.totalGlobalMem);
  RIGHT(cudaSetDevice(3) == cudaErrorInvalidDevice);
  RIGHT(cudaGetLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaSuccess);
}
