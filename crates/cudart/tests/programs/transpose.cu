#include "common.h"
__global__ void transpose(const float* x, float* y, int w, int h) {
  __shared__ float tile[32][33];
  int cx = blockIdx.x * 32 + threadIdx.x, ry = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (cx < w && ry + j < h) tile[threadIdx.y + j][threadIdx.x] = x[(ry + j) * w + cx];
  __syncthreads();
  int c2 = blockIdx.y * 32 + threadIdx.x, r2 = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (c2 < h && r2 + j < w) y[(r2 + j) * h + c2] = tile[threadIdx.x][threadIdx.y + j];
}
int main() {
  const int w = 70, h = 40;
  std::vector<float> x(w * h);
  for (int i = 0; i < w * h; i++) x[i] = i;
  float *d = device(x), *e;
  OK(cudaMalloc(&e, w * h * 4));
  transpose<<<dim3(3, 2), dim3(32, 8)>>>(d, e, w, h);
  auto y = host(e, w * h);
  for (int r = 0; r < h; r++) for (int c = 0; c < w; c++) RIGHT(y[c * h + r] == x[r * w + c]);
}
