// nvcc: -std=c++17
#include "common.h"
#include <cuda.h>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
constexpr int W = 48, H = 40, BW = 32, BH = 16;
__constant__ CUtensorMap kept;
// Boxes of a matrix, beyond its edges too, doubled by threads and stored in another matrix.
__global__ void twice(const __grid_constant__ CUtensorMap from, const CUtensorMap* to) {
  __shared__ alignas(128) int box[BH][BW];
  __shared__ uint64_t full;
  const CUtensorMap* target = to ? to : &kept;
  const int32_t at[2] = {int(blockIdx.x) * BW, int(blockIdx.y) * BH};
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, box, &from, at, &full);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full, sizeof(box));
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {}
  for (int i = threadIdx.x; i < BW * BH; i += blockDim.x) box[i / BW][i % BW] *= 2;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, target, at, box);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}
using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                            const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
template <class F> F driver(const char* name) {
  void* function = nullptr; cudaDriverEntryPointQueryResult found;
  OK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
  return found == cudaDriverEntryPointSuccess ? (F)function : nullptr;
}
int main() {
  std::vector<int> v(W * H); for (int i = 0; i < W * H; i++) v[i] = i * 7;
  int *a = device(v), *b, *c; OK(cudaMalloc(&b, W * H * 4)); OK(cudaMalloc(&c, W * H * 4));
  auto encode = driver<Encode>("cuTensorMapEncodeTiled");
  auto move = driver<CUresult (*)(CUtensorMap*, void*)>("cuTensorMapReplaceAddress");
  if (!encode || !move || driver<void*>("cuNoSuchFunction")) return 2;
  auto map = [&](CUtensorMap* to, int* base, cuuint64_t row) {
    cuuint64_t dims[] = {W, H}, strides[] = {row}; cuuint32_t box[] = {BW, BH}, steps[] = {1, 1};
    return encode(to, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUtensorMap from, to, third;
  if (map(&from, a, W * 4) || map(&to, b, W * 4) || !map(&third, c, W * 4 + 4)) return 3;
  third = to; if (move(&third, c)) return 4;
  CUtensorMap* there; OK(cudaMalloc(&there, sizeof(to))); OK(cudaMemcpy(there, &to, sizeof(to), cudaMemcpyHostToDevice)); OK(cudaMemcpyToSymbol(kept, &third, sizeof(third)));
  dim3 grid((W + BW - 1) / BW, (H + BH - 1) / BH);
  twice<<<grid, 128>>>(from, there); twice<<<grid, 128>>>(from, nullptr); OK(cudaGetLastError());
  for (int* one : {b, c}) { std::vector<int> r(W * H); OK(cudaMemcpy(r.data(), one, W * H * 4, cudaMemcpyDeviceToHost)); for (int i = 0; i < W * H; i++) if (r[i] != 14 * i) { printf("%d: %d\n", i, r[i]); return 5; } }
}
