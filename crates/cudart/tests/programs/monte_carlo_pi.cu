#include "common.h"
__device__ unsigned next(unsigned& s) { s ^= s << 13; s ^= s >> 17; return s ^= s << 5; }
__global__ void throws(unsigned long long* hits, int each) {
  unsigned s = 12345 + 7919 * (blockIdx.x * blockDim.x + threadIdx.x), in = 0;
  for (int i = 0; i < each; i++) {
    float x = next(s) * 2.3283064e-10f, y = next(s) * 2.3283064e-10f;
    in += x * x + y * y < 1;
  }
  atomicAdd(hits, (unsigned long long)in);
}
int main() {
  unsigned long long* hits;
  OK(cudaMalloc(&hits, 8));
  OK(cudaMemset(hits, 0, 8));
  throws<<<4, 128>>>(hits, 100);
  double pi = 4.0 * host(hits, 1)[0] / (512 * 100);
  printf("%f\n", pi);
  RIGHT(fabs(pi - 3.14159) < 0.1);
}
