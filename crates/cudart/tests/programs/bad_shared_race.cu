// breaks R001
#include "common.h"
__global__ void turn(int* x) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = s[63 - threadIdx.x];  // BUG
}
int main() { std::vector<int> v(64); int* x = device(v); turn<<<1, 64>>>(x); OK(cudaDeviceSynchronize()); }
