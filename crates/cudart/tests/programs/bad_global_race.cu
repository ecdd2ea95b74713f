// breaks R002
#include "common.h"
__global__ void count(int* total) {
  *total += 1;  // BUG
}
int main() { std::vector<int> v(1); int* x = device(v); count<<<4, 32>>>(x); OK(cudaDeviceSynchronize()); }
