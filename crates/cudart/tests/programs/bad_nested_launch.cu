// breaks X024
// remarks launches kernels by itself (dynamic parallelism), which is not there
// nvcc: -rdc=true -lcudadevrt
#include "common.h"
__global__ void inner(int* x) { x[threadIdx.x] = threadIdx.x; }
__global__ void outer(int* x) { inner<<<1, 32>>>(x); }
int main() {
  int* x;
  OK(cudaMalloc(&x, 128));
  outer<<<1, 1>>>(x);
  RIGHT(cudaDeviceSynchronize() == cudaSuccess && cudaGetLastError() != cudaSuccess);
}
