// breaks X018
#include "common.h"
#include <cassert>
__global__ void positive(const int* x) {
  assert(x[threadIdx.x] > 0);  // BUG
}
int main() { std::vector<int> v(32, 1); v[7] = -1; int* x = device(v); positive<<<1, 32>>>(x); return cudaDeviceSynchronize() != cudaErrorAssert; }
