#include "common.h"
__global__ void fill(int* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = i; }
int main() {
  int grid = 0, block = 0, *x;
  OK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, fill, 0, 0));
  RIGHT(grid > 0 && block >= 32);
  cudaFuncAttributes a;
  OK(cudaFuncGetAttributes(&a, fill));
  RIGHT(a.maxThreadsPerBlock == 1024 && a.numRegs > 0 && a.sharedSizeBytes == 0);
  OK(cudaMalloc(&x, 4000));
  fill<<<(1000 + block - 1) / block, block>>>(x, 1000);
  RIGHT(host(x, 1000)[999] == 999);
  cudaLaunchAttribute cluster; cluster.id = cudaLaunchAttributeClusterDimension; cluster.val.clusterDim.x = 2; cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {}; config.gridDim = 8; config.blockDim = 1024; config.attrs = &cluster; config.numAttrs = 1;
  int many = 0, most = 0; OK(cudaOccupancyMaxActiveClusters(&many, fill, &config)); OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, fill, 1024, 0));
  RIGHT(most == 2 && many == 132 * most / 2);
}
