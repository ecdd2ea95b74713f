#include "common.h"
__device__ int counter = 5;
__device__ float table[4] = {1, 2, 3, 4};
__global__ void count() { atomicAdd(&counter, 1); if (threadIdx.x < 4 && blockIdx.x == 0) table[threadIdx.x] *= 2; }
int main() {
  count<<<2, 32>>>();
  count<<<2, 32>>>();
  int c;
  float t[4];
  OK(cudaMemcpyFromSymbol(&c, counter, sizeof c));
  OK(cudaMemcpyFromSymbol(t, table, sizeof t));
  RIGHT(c == 133 && t[3] == 16);
  void* at;
  size_t size;
  OK(cudaGetSymbolAddress(&at, table));
  OK(cudaGetSymbolSize(&size, table));
  RIGHT(size == 16);
  OK(cudaMemset(at, 0, 16));
  OK(cudaMemcpyFromSymbol(t, table, sizeof t));
  RIGHT(t[0] == 0);
}
