#include "common.h"
const int N = 48, T = 16;
__global__ void product(const float* a, const float* b, float* c) {
  __shared__ float s[T][T], t[T][T];
  int row = blockIdx.y * T + threadIdx.y, column = blockIdx.x * T + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < N; k += T) {
    s[threadIdx.y][threadIdx.x] = a[row * N + k + threadIdx.x];
    t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * N + column];
    __syncthreads();
    for (int i = 0; i < T; i++) sum += s[threadIdx.y][i] * t[i][threadIdx.x];
    __syncthreads();
  }
  c[row * N + column] = sum;
}
int main() {
  std::vector<float> a(N * N), b(N * N);
  for (int i = 0; i < N * N; i++) { a[i] = i % 7; b[i] = i % 5; }
  float *x = device(a), *y = device(b), *z;
  OK(cudaMalloc(&z, N * N * 4));
  product<<<dim3(N / T, N / T), dim3(T, T)>>>(x, y, z);
  auto c = host(z, N * N);
  for (int r = 0; r < N; r++)
    for (int q = 0; q < N; q++) {
      float sum = 0;
      for (int k = 0; k < N; k++) sum += a[r * N + k] * b[k * N + q];
      RIGHT(c[r * N + q] == sum);
    }
}
