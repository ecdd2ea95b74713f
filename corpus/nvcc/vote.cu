// Warp-wide operations: vote, match, shfl (all modes), activemask, elect, redux, syncwarp with masks, lane registers.
// build: -arch=sm_75
// build: -arch=sm_90

extern "C" __global__ void votes(const int *in, unsigned *out) {
    int t = threadIdx.x, v = in[t];
    unsigned all = 0xffffffffu;
    out += t * 6;
    out[0] = __ballot_sync(all, v > 3);
    out[1] = __all_sync(all, v >= 0) * 2 + __any_sync(all, v == 5);
    out[2] = __match_any_sync(all, v);
    int same;
    out[3] = __match_all_sync(all, v >> 8, &same) + same;
    if (t & 1) out[4] = __ballot_sync(0xaaaaaaaau, v & 2);
    else out[4] = __ballot_sync(0x55555555u, v & 1);
    unsigned below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    out[5] = __popc(below) + (__isShared(&out) ? 100 : 0) + (__activemask() >> t & 1) * 1000;
}

extern "C" __global__ void shuffles(const int *in, int *out) {
    int t = threadIdx.x, v = in[t];
    unsigned all = 0xffffffffu;
    out += t * 6;
    out[0] = __shfl_sync(all, v, t * 5);
    out[1] = __shfl_up_sync(all, v, 3);
    out[2] = __shfl_down_sync(all, v, 2, 8);
    out[3] = __shfl_xor_sync(all, v, 21);
    out[4] = (int)(__shfl_sync(all, (long long)v << 16, 31 - t) >> 16);
    out[5] = (int)__shfl_xor_sync(all, (double)v * 0.5, 1, 4);
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void elects(unsigned *out) {
    unsigned leader, chosen;
    asm volatile("{ .reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p; }" : "=r"(leader), "=r"(chosen));
    atomicAdd(&out[0], chosen);
    atomicAdd(&out[1], chosen == (leader == threadIdx.x));
}
#endif
