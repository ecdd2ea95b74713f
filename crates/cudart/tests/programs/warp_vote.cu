#include "common.h"
__global__ void vote(const int* x, unsigned* out) {
  bool odd = x[threadIdx.x] & 1;
  unsigned mask = __ballot_sync(~0u, odd);
  if (threadIdx.x == 0) { out[0] = mask; }
  bool any = __any_sync(~0u, odd), all = __all_sync(~0u, odd);
  if (threadIdx.x == 0) { out[1] = any; out[2] = all; out[3] = __popc(mask); }
}
int main() {
  std::vector<int> x(32);
  for (int i = 0; i < 32; i++) x[i] = i;
  int* d = device(x);
  unsigned* out;
  OK(cudaMalloc(&out, 16));
  vote<<<1, 32>>>(d, out);
  auto y = host(out, 4);
  RIGHT(y[0] == 0xaaaaaaaau && y[1] == 1 && y[2] == 0 && y[3] == 16);
}
