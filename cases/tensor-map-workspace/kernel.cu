// A grouped product gives each block its own tensor map: a copy of a template, 128 bytes, with its group's address written into
// it. The host sized the workspace for one block on each of an H100's 132 multiprocessors; the grid has more blocks.
//
// build: bad.ptx -arch=sm_90a
// heist: run sized-for-the-multiprocessors entry=make_maps grid=1,264,1 block=32
// heist: arg in:u32:[7*32]
// heist: arg in:u64:[0..264]
// heist: arg inout:u32:[0*4224]
// heist: arg u32:132
// mark: M001 st.global
//
// build: good.ptx -arch=sm_90a -DGUARD
// heist: run sized-for-the-grid entry=make_maps grid=1,264,1 block=32
// heist: arg in:u32:[7*32]
// heist: arg in:u64:[0..264]
// heist: arg inout:u32:[0*8448]
// heist: arg u32:264
// heist: run too-small-and-noticed entry=make_maps grid=1,264,1 block=32
// heist: finds X018
// heist: arg in:u32:[7*32]
// heist: arg in:u64:[0..264]
// heist: arg inout:u32:[0*4224]
// heist: arg u32:132
#include <cassert>
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;

extern "C" __global__ void make_maps(const unsigned *pattern, const std::uint64_t *addresses, unsigned *workspace, unsigned slots) {
    __shared__ __align__(128) unsigned map[32];
    unsigned t = threadIdx.x, slot = blockIdx.y * gridDim.x + blockIdx.x;
#ifdef GUARD
    assert(slot < slots);
#endif
    map[t] = pattern[t];
    __syncwarp();
    if (t == 0) *reinterpret_cast<std::uint64_t *>(map) = addresses[slot];
    __syncwarp();
    workspace[slot * 32 + t] = map[t];
    // Whoever copies with this map sees it through the proxy of tensor maps.
    ptx::fence_proxy_tensormap_generic(ptx::sem_release, ptx::scope_gpu);
}
