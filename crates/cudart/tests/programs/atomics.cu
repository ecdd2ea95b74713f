#include "common.h"
__global__ void all(int* x, unsigned* u, float* f, double* d, unsigned long long* w) {
  atomicAdd(&x[0], 1); atomicSub(&x[1], 1); atomicMax(&x[2], threadIdx.x); atomicMin(&x[3], -int(threadIdx.x));
  atomicAnd(&u[0], ~(1u << threadIdx.x % 32)); atomicOr(&u[1], 1u << threadIdx.x % 32); atomicXor(&u[2], 1); atomicInc(&u[3], 9);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(w, 1ull << 33);
  int old = atomicAdd(&x[4], 0), seen;
  do { seen = old; old = atomicCAS(&x[4], seen, seen + 2); } while (old != seen);
}
int main() {
  std::vector<int> x(5); std::vector<unsigned> u = {~0u, 0, 0, 0}; std::vector<float> f(1); std::vector<double> d(1); std::vector<unsigned long long> w(1);
  int* X = device(x); unsigned* U = device(u); float* F = device(f); double* D = device(d); unsigned long long* W = device(w);
  all<<<2, 64>>>(X, U, F, D, W);
  x = host(X, 5); u = host(U, 4);
  RIGHT(x[0] == 128 && x[1] == -128 && x[2] == 63 && x[3] == -63 && x[4] == 256);
  RIGHT(u[0] == 0 && u[1] == ~0u && u[2] == 0 && u[3] == 8);
  RIGHT(host(F, 1)[0] == 64 && host(D, 1)[0] == 32 && host(W, 1)[0] == (128ull << 33));
}
