#include "common.h"
#include <mma.h>
#include <cuda_fp16.h>
using namespace nvcuda;
__global__ void product(const __half* a, const __half* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> y;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
  wmma::fill_fragment(z, 0.0f);
  wmma::load_matrix_sync(x, a, 16);
  wmma::load_matrix_sync(y, b, 16);
  wmma::mma_sync(z, x, y, z);
  wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
}
int main() {
  std::vector<__half> a(256), b(256);
  for (int i = 0; i < 256; i++) { a[i] = __float2half(i % 7); b[i] = __float2half(i % 3); }
  __half *x = device(a), *y = device(b);
  float* z;
  OK(cudaMalloc(&z, 1024));
  product<<<1, 32>>>(x, y, z);
  auto c = host(z, 256);
  for (int r = 0; r < 16; r++)
    for (int q = 0; q < 16; q++) {
      float sum = 0;
      for (int k = 0; k < 16; k++) sum += ((r * 16 + k) % 7) * ((q * 16 + k) % 3);
      RIGHT(c[r * 16 + q] == sum);
    }
}
