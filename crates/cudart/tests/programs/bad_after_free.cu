// breaks M016
#include "common.h"
__global__ void read(const int* x, int* y) {
  *y = *x;  // BUG
}
int main() { std::vector<int> v(64); int *x = device(v), *y; OK(cudaMalloc(&y, 4)); OK(cudaFree(x)); read<<<1, 1>>>(x, y); cudaDeviceSynchronize(); }
