#include "common.h"
#include <cuda_pipeline.h>
__global__ void copy(const int4* x, int4* y) {
  __shared__ int4 s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}
int main() {
  std::vector<int4> x(64);
  for (int i = 0; i < 64; i++) x[i] = make_int4(i, i, i, i);
  int4 *d = device(x), *e;
  OK(cudaMalloc(&e, 1024));
  copy<<<1, 64>>>(d, e);
  RIGHT(host(e, 64)[0].z == 63);
}
