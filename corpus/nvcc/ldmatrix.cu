// ldmatrix of one, two and four tiles, transposed too, movmatrix, and stmatrix where there is one.
// build: -arch=sm_75 -DOLD
// build: -arch=sm_90

__device__ __forceinline__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// in is a 32x8 matrix of 16-bit values (four 8x8 tiles), out is 32 lanes x 10 registers.
extern "C" __global__ void load_tiles(const unsigned short *in, unsigned *out) {
    __shared__ __align__(16) unsigned short tile[32][8];
    int lane = threadIdx.x;
    for (int i = 0; i < 8; i++) tile[lane][i] = in[lane * 8 + i];
    __syncwarp();
    unsigned r[10];
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(shared_address(tile[lane & 7])) : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[1]), "=r"(r[2])
                 : "r"(shared_address(tile[lane & 15]))
                 : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6])
                 : "r"(shared_address(tile[lane]))
                 : "memory");
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[7])
                 : "r"(shared_address(tile[24 + (lane & 7)]))
                 : "memory");
#ifdef OLD
    r[8] = r[0];
#else
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r[8]) : "r"(r[0]));
#endif
    r[9] = r[3] ^ r[7];
    for (int i = 0; i < 10; i++) out[lane * 10 + i] = r[i];
}

#ifndef OLD
// The inverse: registers to four 8x8 tiles, then one more, transposed.
extern "C" __global__ void store_tiles(const unsigned *in, unsigned short *out) {
    __shared__ __align__(16) unsigned short tile[40][8];
    int lane = threadIdx.x;
    unsigned a = in[lane], b = in[32 + lane], c = in[64 + lane], d = in[96 + lane], e = in[128 + lane];
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(tile[lane])), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared_address(tile[32 + (lane & 7)])), "r"(e) : "memory");
    __syncwarp();
    for (int i = lane; i < 320; i += 32) out[i] = tile[i / 8][i % 8];
}
#endif
