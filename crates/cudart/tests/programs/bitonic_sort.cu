#include "common.h"
__global__ void sort(int* x) {
  __shared__ int s[128];
  int i = threadIdx.x;
  s[i] = x[i];
  for (int size = 2; size <= 128; size *= 2)
    for (int step = size / 2; step; step /= 2) {
      __syncthreads();
      int j = i ^ step;
      if (j > i && (s[i] > s[j]) == !(i & size)) { int t = s[i]; s[i] = s[j]; s[j] = t; }
    }
  __syncthreads();
  x[i] = s[i];
}
int main() {
  std::vector<int> x(128);
  for (int i = 0; i < 128; i++) x[i] = i * 53 % 127;
  int* d = device(x);
  sort<<<1, 128>>>(d);
  auto y = host(d, 128);
  for (int i = 1; i < 128; i++) RIGHT(y[i - 1] <= y[i]);
}
