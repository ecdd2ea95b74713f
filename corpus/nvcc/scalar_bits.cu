// Bit operations: popc, clz, brev, bfe/bfi, prmt, lop3, funnel shifts, bfind, bmsk.
// build: -arch=sm_80

extern "C" __global__ void bits(const unsigned *a, const unsigned *b, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    out += i * 12;
    out[0] = __popc(x);
    out[1] = __clz(x);
    out[2] = __brev(x);
    out[3] = __byte_perm(x, y, 0x6240);
    out[4] = (x & y) ^ (~x | (y << 1));
    out[5] = __funnelshift_l(x, y, y);
    out[6] = __funnelshift_rc(x, y, x);
    out[7] = __ffs(x);
    unsigned r;
    asm("bfe.u32 %0, %1, 5, 9;" : "=r"(r) : "r"(x));
    out[8] = r;
    asm("bfi.b32 %0, %1, %2, 7, 12;" : "=r"(r) : "r"(x), "r"(y));
    out[9] = r;
    asm("bfind.shiftamt.u32 %0, %1;" : "=r"(r) : "r"(x));
    out[10] = r;
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(r) : "r"(x & 31), "r"(y & 31));
    out[11] = r;
}

extern "C" __global__ void bits64(const unsigned long long *a, unsigned *out, unsigned long long *wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned long long x = a[i];
    out[2 * i] = __popcll(x);
    out[2 * i + 1] = __clzll(x);
    wide[2 * i] = __brevll(x);
    wide[2 * i + 1] = __byte_perm((unsigned)(x >> 32), (unsigned)x, 0x3175) | (x << 40);
}
