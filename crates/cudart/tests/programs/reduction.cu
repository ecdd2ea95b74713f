#include "common.h"
__global__ void reduce(const int* x, int* out, int n) {
  __shared__ int part[128];
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 64; step > 0; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
int main() {
  std::vector<int> x(5000, 3);
  int *d = device(x), *out;
  OK(cudaMalloc(&out, 4));
  OK(cudaMemset(out, 0, 4));
  reduce<<<8, 128>>>(d, out, 5000);
  RIGHT(host(out, 1)[0] == 15000);
}
