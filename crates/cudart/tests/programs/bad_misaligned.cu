// breaks M007
#include "common.h"
__global__ void wide(const char* x, int* y) {
  y[threadIdx.x] = *(const int*)(x + 1);  // BUG
}
int main() { std::vector<char> v(64); char* x = device(v); int* y; OK(cudaMalloc(&y, 128)); wide<<<1, 1>>>(x, y); cudaDeviceSynchronize(); }
