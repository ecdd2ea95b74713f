#include "common.h"
template <class T, int N> __global__ void power(T* x) { T v = x[threadIdx.x], p = 1; for (int i = 0; i < N; i++) p *= v; x[threadIdx.x] = p; }
template <class T> void test() {
  std::vector<T> x(8);
  for (int i = 0; i < 8; i++) x[i] = T(i);
  T* d = device(x);
  power<T, 3><<<1, 8>>>(d);
  auto y = host(d, 8);
  for (int i = 0; i < 8; i++) RIGHT(y[i] == T(i * i * i));
}
int main() { test<int>(); test<float>(); test<double>(); test<long long>(); test<unsigned char>(); }
