// Cluster launch control without multicast: every block doubles its tile, then steals the next one until it is refused.
// build: -arch=sm_100
// build: -arch=sm_120
#include <cuda/ptx>
#include <cuda/std/cstdint>
namespace ptx = cuda::ptx;

extern "C" __global__ void steal_and_scale(const float *in, float *out, unsigned *steals, int n) {
    __shared__ alignas(16) uint4 response;
    __shared__ alignas(8) std::uint64_t barrier;
    int t = threadIdx.x, tile = blockIdx.x;
    unsigned phase = 0;
    if (t == 0) ptx::mbarrier_init(&barrier, 1);
    __syncthreads();
    for (;;) {
        if (t == 0) {
            ptx::mbarrier_arrive_expect_tx(ptx::sem_relaxed, ptx::scope_cta, ptx::space_shared, &barrier, 16);
            ptx::clusterlaunchcontrol_try_cancel(&response, &barrier);
        }
        int i = tile * blockDim.x + t;
        if (i < n) out[i] = in[i] * 2.0f;
        while (!ptx::mbarrier_try_wait_parity(&barrier, phase)) {}
        phase ^= 1;
        bool granted = ptx::clusterlaunchcontrol_query_cancel_is_canceled(response);
        if (!granted) break;
        tile = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid_x<int>(response);
        if (t == 0) atomicAdd(steals, 1u);
        ptx::fence_proxy_async(ptx::space_shared); // the answer is read; the next one may overwrite it
        __syncthreads();
    }
}
