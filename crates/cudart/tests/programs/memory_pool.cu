#include "common.h"
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
  cudaStream_t s;
  OK(cudaStreamCreate(&s));
  int* x;
  OK(cudaMallocAsync(&x, 128, s));
  fill<<<1, 32, 0, s>>>(x);
  std::vector<int> y(32);
  OK(cudaMemcpyAsync(y.data(), x, 128, cudaMemcpyDeviceToHost, s));
  OK(cudaFreeAsync(x, s));
  OK(cudaStreamSynchronize(s));
  RIGHT(y[31] == 31);
  cudaMemPool_t pool;
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = 1 << 20, kept = 0, used = 0;
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept));
  OK(cudaMallocFromPoolAsync((void**)&x, 128, pool, s));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  RIGHT(kept == keep && used >= 128);
  int reuse = 0;
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolReuseFollowEventDependencies, &reuse));
  RIGHT(reuse == 1);
  OK(cudaFreeAsync(x, s));
}
