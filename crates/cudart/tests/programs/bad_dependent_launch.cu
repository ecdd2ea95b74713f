// A kernel that may begin before the one in front of it has ended, and does not wait for its memory.
// breaks R010
#include "common.h"
__global__ void first(int* x) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x + 1;
  cudaTriggerProgrammaticLaunchCompletion();
}
__global__ void second(const int* x, int* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = i * 100 + x[i];
}
int main() {
  const int n = 256;
  int *x = device(std::vector<int>(n)), *y = device(std::vector<int>(n));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(2);
  config.blockDim = dim3(128);
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  first<<<2, 128, 0, stream>>>(x);
  OK(cudaLaunchKernelEx(&config, second, (const int*)x, y));
  OK(cudaStreamSynchronize(stream));
  auto got = host(y, n);
  for (int i = 0; i < n; i++) RIGHT(got[i] == i * 100 + i % 128 + 1);
}
