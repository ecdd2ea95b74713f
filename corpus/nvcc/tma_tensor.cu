// Tensor copies in one to five dimensions: load, store, add into global memory, prefetch, one thread issuing.
// build: -arch=sm_90
// build: -arch=sm_100
#include <cuda.h>
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;
using std::int32_t;


__device__ __forceinline__ void begin(std::uint64_t *barrier) {
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
}

__device__ __forceinline__ void expect(std::uint64_t *barrier, unsigned bytes) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, barrier, bytes);
}

__device__ __forceinline__ void wait(std::uint64_t *barrier, unsigned parity) {
    while (!ptx::mbarrier_try_wait_parity(barrier, parity)) {}
}

// One tile of 64 numbers from a row, copied out reversed by the threads.
extern "C" __global__ void tensor_1d(const __grid_constant__ CUtensorMap map, int *out, int at) {
    __shared__ alignas(128) int tile[64];
    __shared__ alignas(8) std::uint64_t barrier;
    begin(&barrier);
    if (threadIdx.x == 0) {
        expect(&barrier, sizeof(tile));
        int32_t where[1] = {at};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, where, &barrier);
    }
    wait(&barrier, 0);
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Loads an 8x16 tile (boxes at the edge are filled with zeros), adds 1, stores it through another map.
extern "C" __global__ void tensor_2d(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to) {
    __shared__ alignas(128) float tile[8][16];
    __shared__ alignas(8) std::uint64_t barrier;
    begin(&barrier);
    int32_t where[2] = {(int)blockIdx.x * 16, (int)blockIdx.y * 8};
    if (threadIdx.x == 0) {
        expect(&barrier, sizeof(tile));
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &from, where, &barrier);
    }
    wait(&barrier, 0);
    for (int i = threadIdx.x; i < 128; i += blockDim.x) tile[i / 16][i % 16] += 1.0f;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &to, where, tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
}

// Three, four and five dimensions, and a reduction of each tile into `to` (a three-dimensional map of ints).
extern "C" __global__ void tensor_345d(const __grid_constant__ CUtensorMap map3, const __grid_constant__ CUtensorMap map4,
                                       const __grid_constant__ CUtensorMap map5, const __grid_constant__ CUtensorMap to, int *out) {
    __shared__ alignas(128) int tile3[32];
    __shared__ alignas(128) int tile4[32];
    __shared__ alignas(128) int tile5[32];
    __shared__ alignas(8) std::uint64_t barrier;
    begin(&barrier);
    if (threadIdx.x == 0) {
        int32_t at3[3] = {4, 1, -1}, at4[4] = {0, 1, 1, 0}, at5[5] = {0, 1, 0, 1, 1};
        ptx::cp_async_bulk_prefetch_tensor(ptx::space_global, &map5, at5);
        expect(&barrier, sizeof(tile3) + sizeof(tile4) + sizeof(tile5));
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile3, &map3, at3, &barrier);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile4, &map4, at4, &barrier);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile5, &map5, at5, &barrier);
    }
    wait(&barrier, 0);
    int t = threadIdx.x;
    out[t] = tile3[t], out[32 + t] = tile4[t], out[64 + t] = tile5[t];
    __syncthreads();
    if (t == 0) {
        int32_t zero[3] = {0, 0, 0};
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &to, zero, tile4);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_max, &to, zero, tile3);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
}

// The raw bytes of a tile as the swizzle laid them out: 16 rows of 128 bytes for the map's own swizzle mode.
extern "C" __global__ void tensor_swizzled(const __grid_constant__ CUtensorMap map, int *out, int bytes) {
    __shared__ alignas(1024) int tile[512];
    __shared__ alignas(8) std::uint64_t barrier;
    begin(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
        expect(&barrier, bytes);
        int32_t where[2] = {0, 0};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, where, &barrier);
    }
    wait(&barrier, 0);
    for (int i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = tile[i];
}
