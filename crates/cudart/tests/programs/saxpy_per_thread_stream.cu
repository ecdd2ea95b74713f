#include "common.h"
// nvcc: -default-stream per-thread
__global__ void saxpy(float a, const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += a * x[i]; }
int main() {
  std::vector<float> x(100, 2), y(100, 1);
  float *a = device(x), *b = device(y);
  saxpy<<<1, 128>>>(3, a, b, 100);
  OK(cudaStreamSynchronize(0));
  RIGHT(host(b, 100)[99] == 7);
}
