// repeats 8
#include "common.h"
// A launch is run once for each state of memory: the first fill writes fresh memory, the second one
// finds it written, and the eight others are as the second. Increments are each of their own.
__global__ void fill(int* a) { a[blockIdx.x * 32 + threadIdx.x] = threadIdx.x; }
__global__ void increment(int* a) { a[threadIdx.x] += 1; }
int main() {
  int* a;
  OK(cudaMalloc(&a, 128 * 4));
  for (int i = 0; i < 10; i++) fill<<<4, 32>>>(a);
  for (int i = 0; i < 3; i++) increment<<<1, 32>>>(a);
  auto y = host(a, 128);
  RIGHT(y[5] == 8 && y[37] == 5);
}
