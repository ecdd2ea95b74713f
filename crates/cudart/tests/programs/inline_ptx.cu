// PTX by hand in a kernel: special registers, predicates, wide products, a branch, volatile order.
#include "common.h"
__device__ unsigned lane() {
  unsigned x;
  asm("mov.u32 %0, %%laneid;" : "=r"(x));
  return x;
}
__device__ unsigned below() {
  unsigned x;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(x));
  return x;
}
__global__ void mixed(unsigned* x, unsigned long long* wide, float* fused) {
  unsigned i = threadIdx.x, odd, bytes;
  asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %1, 0;\n\tselp.u32 %0, 1, 2, p;\n\t}" : "=r"(odd) : "r"(i & 1));
  asm("prmt.b32 %0, %1, 0, 0x0123;" : "=r"(bytes) : "r"(i * 0x01020304u));
  asm volatile("mad.wide.u32 %0, %1, %2, %3;" : "=l"(wide[i]) : "r"(i + 0xfffffff0u), "r"(7), "l"(5ull));
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(fused[i]) : "f"(i + 0.5f), "f"(2.0f), "f"(-1.0f));
  x[i] = lane() + 100 * __popc(below()) + 10000 * odd + (bytes & 0xff000000u);
}
int main() {
  const int n = 64;
  unsigned* x = device(std::vector<unsigned>(n));
  unsigned long long* wide = device(std::vector<unsigned long long>(n));
  float* fused = device(std::vector<float>(n));
  mixed<<<1, n>>>(x, wide, fused);
  OK(cudaGetLastError());
  auto a = host(x, n);
  auto b = host(wide, n);
  auto c = host(fused, n);
  for (unsigned i = 0; i < n; i++) {
    unsigned bytes = __builtin_bswap32(i * 0x01020304u) & 0xff000000u;
    RIGHT(a[i] == i % 32 + 100 * (i % 32) + 10000 * (i & 1 ? 1 : 2) + bytes);
    RIGHT(b[i] == 7ull * (i + 0xfffffff0u) + 5);
    RIGHT(c[i] == 2.0f * i);
  }
}
