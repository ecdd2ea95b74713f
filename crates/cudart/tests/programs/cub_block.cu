// CUB inside a kernel: a block's loads, scan and sum; and a whole-device scan.
#include <cub/cub.cuh>
#include "common.h"
__global__ void ranks(const int* x, int* y, int* total) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE>;
  using Store = cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_TRANSPOSE>;
  using Scan = cub::BlockScan<int, 128>;
  using Sum = cub::BlockReduce<int, 128>;
  __shared__ union {
    typename Load::TempStorage load;
    typename Store::TempStorage store;
    typename Scan::TempStorage scan;
    typename Sum::TempStorage sum;
  } room;
  int items[4], sums[4];
  Load(room.load).Load(x + blockIdx.x * 512, items);
  __syncthreads();
  Scan(room.scan).ExclusiveSum(items, sums);
  __syncthreads();
  Store(room.store).Store(y + blockIdx.x * 512, sums);
  __syncthreads();
  int all = Sum(room.sum).Sum(items);
  if (threadIdx.x == 0) atomicAdd(total, all);
}
int main() {
  const int n = 1024;
  std::vector<int> x(n);
  for (int i = 0; i < n; i++) x[i] = i % 7;
  int *from = device(x), *to = device(std::vector<int>(n)), *total = device(std::vector<int>(1));
  ranks<<<2, 128>>>(from, to, total);
  OK(cudaGetLastError());
  auto y = host(to, n);
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if (i == 512) sum = 0;
    RIGHT(y[i] == sum);
    sum += x[i];
  }
  int all = 0;
  for (int i : x) all += i;
  RIGHT(host(total, 1)[0] == all);
  size_t bytes = 0;
  void* room = nullptr;
  OK(cub::DeviceScan::InclusiveSum(room, bytes, from, to, n));
  OK(cudaMalloc(&room, bytes));
  OK(cub::DeviceScan::InclusiveSum(room, bytes, from, to, n));
  RIGHT(host(to, n)[n - 1] == all);
}
