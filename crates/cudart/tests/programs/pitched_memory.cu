#include "common.h"
__global__ void mark(char* base, size_t pitch, int w, int h) {
  int x = threadIdx.x, y = threadIdx.y;
  if (x < w && y < h) ((int*)(base + y * pitch))[x] += 100 * y + x;
}
int main() {
  const int w = 10, h = 6;
  char* base;
  size_t pitch;
  OK(cudaMallocPitch(&base, &pitch, w * 4, h));
  RIGHT(pitch >= w * 4);
  OK(cudaMemset2D(base, pitch, 0, w * 4, h));
  mark<<<1, dim3(16, 8)>>>(base, pitch, w, h);
  int out[h][w];
  OK(cudaMemcpy2D(out, w * 4, base, pitch, w * 4, h, cudaMemcpyDeviceToHost));
  for (int y = 0; y < h; y++) for (int x = 0; x < w; x++) RIGHT(out[y][x] == 100 * y + x);
}
