#include "common.h"
__global__ void add(int* x, int v) { x[threadIdx.x] += v; }
int main() {
  cudaStream_t s[2];
  cudaEvent_t a, b;
  int* d;
  std::vector<int> y(32);
  OK(cudaMalloc(&d, 128));
  OK(cudaStreamCreate(&s[0]));
  OK(cudaStreamCreateWithFlags(&s[1], cudaStreamNonBlocking));
  OK(cudaEventCreate(&a));
  OK(cudaEventCreateWithFlags(&b, cudaEventDefault));
  OK(cudaMemsetAsync(d, 0, 128, s[0]));
  OK(cudaEventRecord(a, s[0]));
  add<<<1, 32, 0, s[0]>>>(d, 1);
  OK(cudaEventRecord(b, s[0]));
  OK(cudaStreamWaitEvent(s[1], b, 0));
  add<<<1, 32, 0, s[1]>>>(d, 2);
  OK(cudaMemcpyAsync(y.data(), d, 128, cudaMemcpyDeviceToHost, s[1]));
  OK(cudaStreamSynchronize(s[1]));
  float ms = 0;
  OK(cudaEventElapsedTime(&ms, a, b));
  RIGHT(ms > 0 && y[31] == 3 && cudaStreamQuery(s[0]) == cudaSuccess);
  OK(cudaEventDestroy(a)); OK(cudaEventDestroy(b));
  OK(cudaStreamDestroy(s[0])); OK(cudaStreamDestroy(s[1]));
}
