#include "common.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void rounds(int* x) {
  auto grid = cg::this_grid();
  int i = grid.thread_rank(), n = grid.size();
  x[i] = i;
  grid.sync();
  int y = x[n - 1 - i];
  grid.sync();
  x[i] = y;
}
int main() {
  int *x, blocks = 0;
  OK(cudaMalloc(&x, 4 * 256));
  OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rounds, 64, 0));
  RIGHT(blocks > 0);
  void* args[] = {&x};
  OK(cudaLaunchCooperativeKernel((void*)rounds, dim3(4), dim3(64), args, 0, 0));
  OK(cudaDeviceSynchronize());
  auto y = host(x, 256);
  for (int i = 0; i < 256; i++) RIGHT(y[i] == 255 - i);
}
