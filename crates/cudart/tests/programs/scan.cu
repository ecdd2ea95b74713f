#include "common.h"
__global__ void scan(int* x) {
  __shared__ int s[256];
  int i = threadIdx.x;
  s[i] = x[i];
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    int add = i >= step ? s[i - step] : 0;
    __syncthreads();
    s[i] += add;
    __syncthreads();
  }
  x[i] = s[i];
}
int main() {
  std::vector<int> x(256);
  for (int i = 0; i < 256; i++) x[i] = i % 10;
  int* d = device(x);
  scan<<<1, 256>>>(d);
  auto y = host(d, 256);
  int sum = 0;
  for (int i = 0; i < 256; i++) { sum += x[i]; RIGHT(y[i] == sum); }
}
