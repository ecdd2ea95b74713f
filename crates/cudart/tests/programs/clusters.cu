#include "common.h"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void neighbours(int* out) {
  __shared__ int own;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) own = 100 + blockIdx.x;
  cluster.sync();
  int* other = cluster.map_shared_rank(&own, cluster.block_rank() ^ 1);
  if (threadIdx.x == 0) out[blockIdx.x] = *other;
  cluster.sync();
}
int main() {
  int* out;
  OK(cudaMalloc(&out, 16));
  cudaLaunchConfig_t config = {};
  config.gridDim = 4;
  config.blockDim = 32;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 2;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  OK(cudaLaunchKernelEx(&config, neighbours, out));
  auto y = host(out, 4);
  RIGHT(y[0] == 101 && y[1] == 100 && y[2] == 103 && y[3] == 102);
}
