// breaks M001
#include "common.h"
__global__ void read(const int* x, int* y) {
  *y = *x;  // BUG
}
int main() { int here = 5, *y; OK(cudaMalloc(&y, 4)); read<<<1, 1>>>(&here, y); cudaDeviceSynchronize(); }
