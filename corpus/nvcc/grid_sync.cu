// The whole grid synchronises (cooperative launch), and other groups: tiles of a warp, coalesced threads.
// build: -arch=sm_80
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

// Three Jacobi steps over a ring, the grid meeting between them.
extern "C" __global__ void grid_steps(int *a, int *b, int n) {
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank();
    for (int step = 0; step < 3; step++) {
        if (i < n) b[i] = a[(i + n - 1) % n] + a[(i + 1) % n];
        grid.sync();
        if (i < n) a[i] = b[i] - step;
        grid.sync();
    }
}

extern "C" __global__ void warp_tiles(const int *in, int *out) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int t = block.thread_rank(), v = in[t];
    int sum = cg::reduce(tile, v, cg::plus<int>());
    int most = cg::reduce(tile, v, cg::greater<int>());
    int before = cg::exclusive_scan(tile, v);
    out[t * 4] = sum;
    out[t * 4 + 1] = most;
    out[t * 4 + 2] = before + (int)tile.meta_group_rank() * 1000;
    out[t * 4 + 3] = tile.shfl(v, 0) + (int)tile.any(v > 5);
}

extern "C" __global__ void coalesced(const int *in, int *out, int *counter) {
    int t = threadIdx.x;
    out[t] = -1;
    if (in[t] & 1) {
        cg::coalesced_group odd = cg::coalesced_threads();
        int base = 0;
        if (odd.thread_rank() == 0) base = atomicAdd(counter, (int)odd.size());
        base = odd.shfl(base, 0);
        out[t] = base + (int)odd.thread_rank();
    }
}
