#include "common.h"
__global__ void lists(int** out) {
  int* p = (int*)malloc(16);
  for (int i = 0; i < 4; i++) p[i] = threadIdx.x * 10 + i;
  int sum = 0;
  for (int i = 0; i < 4; i++) sum += p[i];
  free(p);
  ((int*)out)[threadIdx.x] = sum;
}
int main() {
  int* out;
  OK(cudaMalloc(&out, 32));
  lists<<<1, 8>>>((int**)out);
  auto y = host(out, 8);
  for (int i = 0; i < 8; i++) RIGHT(y[i] == 40 * i + 6);
}
