#include "common.h"
__global__ void lists(int** out) {
  int* p = (int*)malloc(16);
  for (int i = 0; i < 4; i++) p[i] = threadIdx.x * 10 + i;
  int sum = 0;
  for (int i = 0; i < 4; i++) sum += p[i];
  free(p);
  ((int*)out)[threadIdx.x] = sum;
}
// What a kernel takes stays until a kernel gives it back.
__device__ int* kept[8];
__global__ void take() {
  kept[threadIdx.x] = new int[2];
  kept[threadIdx.x][0] = threadIdx.x;
}
__global__ void use() { kept[threadIdx.x][1] = kept[threadIdx.x][0] + 100; }
__global__ void end(int* out) {
  out[threadIdx.x] = kept[threadIdx.x][1];
  delete[] kept[threadIdx.x];
}
int main() {
  int* out;
  OK(cudaMalloc(&out, 32));
  lists<<<1, 8>>>((int**)out);
  auto y = host(out, 8);
  for (int i = 0; i < 8; i++) RIGHT(y[i] == 40 * i + 6);
  take<<<1, 8>>>();
  // Memory of the host's lies elsewhere.
  int* more;
  OK(cudaMalloc(&more, 1 << 16));
  OK(cudaMemset(more, 255, 1 << 16));
  use<<<1, 8>>>();
  end<<<1, 8>>>(out);
  y = host(out, 8);
  for (int i = 0; i < 8; i++) RIGHT(y[i] == 100 + i);
}
