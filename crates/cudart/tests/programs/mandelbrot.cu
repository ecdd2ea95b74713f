#include "common.h"
__global__ void mandelbrot(int* out, int w, int h) {
  int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
  if (px >= w || py >= h) return;
  float cx = px * 3.0f / w - 2, cy = py * 2.0f / h - 1, x = 0, y = 0;
  int i = 0;
  for (; i < 50 && x * x + y * y < 4; i++) { float t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; }
  out[py * w + px] = i;
}
int main() {
  int* d;
  OK(cudaMalloc(&d, 64 * 32 * 4));
  mandelbrot<<<dim3(4, 4), dim3(16, 8)>>>(d, 64, 32);
  auto y = host(d, 64 * 32);
  RIGHT(y[16 * 64 + 42] == 50 && y[0] < 3);
}
