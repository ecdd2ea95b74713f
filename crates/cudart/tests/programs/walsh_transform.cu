// A fast Walsh transform: butterflies in global memory where they are wide, in shared memory where not.
#include "common.h"
__global__ void wide(float* x, int stride) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int low = i & (stride - 1), at = (i - low) * 2 + low;
  float a = x[at], b = x[at + stride];
  x[at] = a + b;
  x[at + stride] = a - b;
}
__global__ void narrow(float* x, int log) {
  extern __shared__ float s[];
  int n = 1 << log;
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[blockIdx.x * n + i];
  for (int stride = n >> 1; stride; stride >>= 1) {
    __syncthreads();
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
      int low = i & (stride - 1), at = (i - low) * 2 + low;
      float a = s[at], b = s[at + stride];
      s[at] = a + b;
      s[at + stride] = a - b;
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[blockIdx.x * n + i] = s[i];
}
int main() {
  const int n = 2048, log = 8;
  std::vector<float> x(n);
  for (int i = 0; i < n; i++) x[i] = float(i * i % 17 - 8);
  float* d = device(x);
  auto transform = [&] {
    for (int stride = n / 2; stride >= 1 << log; stride /= 2) wide<<<n / 2 / 128, 128>>>(d, stride);
    narrow<<<n >> log, 64, sizeof(float) << log>>>(d, log);
    OK(cudaGetLastError());
  };
  transform();
  auto y = host(d, n);
  float sum = 0, signs = 0;
  for (int i = 0; i < n; i++) sum += x[i], signs += __builtin_parity(i & 1365) ? -x[i] : x[i];
  RIGHT(y[0] == sum && y[1365] == signs);
  transform();  // twice is n times the same
  y = host(d, n);
  for (int i = 0; i < n; i++) RIGHT(y[i] == n * x[i]);
}
