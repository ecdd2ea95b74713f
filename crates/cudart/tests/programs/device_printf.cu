#include "common.h"
__global__ void hello(int n, double x, const char* s) { if (threadIdx.x < n) printf("thread %d of %u: %.2f %s\n", threadIdx.x, blockDim.x, x, s ? "text" : "none"); }
int main() {
  printf("before\n");
  hello<<<1, 4>>>(2, 1.5, nullptr);
  OK(cudaDeviceSynchronize());
  printf("after\n");
}
