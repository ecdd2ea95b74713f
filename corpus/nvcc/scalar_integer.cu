// Integer arithmetic of 8 to 64 bits: add, multiply (wide, high), divide, remainder, shifts, min/max, dot products, carries.
// build: -arch=sm_75
// build: -arch=sm_90

extern "C" __global__ void int32_ops(const int *a, const int *b, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int x = a[i], y = b[i];
    out += i * 12;
    out[0] = (int)((unsigned)x + (unsigned)y);
    out[1] = (int)((unsigned)x - (unsigned)y);
    out[2] = (int)((unsigned)x * (unsigned)y);
    out[3] = __mulhi(x, y);
    out[4] = y == 0 ? 0 : (int)((long long)x / y);
    out[5] = y == 0 ? 0 : (int)((unsigned)x % (unsigned)y);
    out[6] = x >> (y & 31);
    out[7] = (int)((unsigned)x >> (y & 31));
    out[8] = (int)((unsigned)x << (y & 31));
    out[9] = min(x, y) ^ max(x, y);
    out[10] = (int)min((unsigned)x, (unsigned)y);
    out[11] = x == (int)0x80000000 ? x : abs(x);
}

extern "C" __global__ void int64_ops(const long long *a, const long long *b, long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = a[i], y = b[i];
    unsigned long long ux = x, uy = y;
    out += i * 8;
    out[0] = ux + uy;
    out[1] = ux * uy;
    out[2] = __mul64hi(x, y);
    out[3] = __umul64hi(ux, uy);
    out[4] = uy == 0 ? 0 : ux / uy;
    out[5] = uy == 0 ? 0 : ux % uy;
    out[6] = x >> (y & 63);
    out[7] = min(x, y);
}

extern "C" __global__ void narrow_ops(const signed char *a, const unsigned char *b, short *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    short x = a[i];
    unsigned short y = b[i];
    out += i * 4;
    out[0] = x * y;
    out[1] = x + y;
    out[2] = x < y ? x : y;
    out[3] = (signed char)(x - y);
}

// Packed and fused forms that nvcc has intrinsics for.
extern "C" __global__ void packed_ops(const unsigned *a, const unsigned *b, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i];
    out += i * 6;
    out[0] = __dp4a((int)x, (int)y, 7);
    out[1] = __dp2a_lo((int)x, (int)y, 1);
    out[2] = __sad((int)x, (int)y, 5u);
    out[3] = __vadd4(x, y);
    out[4] = __vmaxs2(x, y);
    out[5] = __umul24(x, y);
}

extern "C" __global__ void int128_ops(const unsigned long long *a, unsigned long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned __int128 x = ((unsigned __int128)a[4 * i + 1] << 64) | a[4 * i];
    unsigned __int128 y = ((unsigned __int128)a[4 * i + 3] << 64) | a[4 * i + 2];
    unsigned __int128 s = x + y, d = x - y, p = x * y, q = y == 0 ? 0 : x / y;
    out += i * 8;
    out[0] = s, out[1] = s >> 64;
    out[2] = d, out[3] = d >> 64;
    out[4] = p, out[5] = p >> 64;
    out[6] = q, out[7] = q >> 64;
}
