// Parameters of 20,000 bytes: more than the 4 KiB that kernels took for long.
#include "common.h"
struct Table { int rows[5000]; };
__global__ void gather(const __grid_constant__ Table table, const int* at, int* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = table.rows[at[i]];
}
int main() {
  static Table table;
  for (int i = 0; i < 5000; i++) table.rows[i] = i * 3;
  const int n = 200;
  std::vector<int> at(n);
  for (int i = 0; i < n; i++) at[i] = (i * 4999) % 5000;
  int *from = device(at), *to = device(std::vector<int>(n));
  gather<<<2, 128>>>(table, from, to, n);
  OK(cudaGetLastError());
  auto y = host(to, n);
  for (int i = 0; i < n; i++) RIGHT(y[i] == at[i] * 3);
}
