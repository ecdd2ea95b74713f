#include "common.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void sum(const int* x, int* out) {
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  __shared__ int part[4];
  int v = x[block.thread_rank()];
  for (int step = warp.size() / 2; step; step /= 2) v += warp.shfl_down(v, step);
  if (warp.thread_rank() == 0) part[block.thread_rank() / 32] = v;
  block.sync();
  if (block.thread_rank() == 0) *out = part[0] + part[1] + part[2] + part[3];
}
int main() {
  std::vector<int> x(128, 2);
  int *d = device(x), *out;
  OK(cudaMalloc(&out, 4));
  sum<<<1, 128>>>(d, out);
  RIGHT(host(out, 1)[0] == 256);
}
