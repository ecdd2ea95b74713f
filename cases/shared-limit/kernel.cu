// An attention block's shared memory: queries, keys, values, scores and output of a tile of ROWS x ROWS, 64 wide. With 64 rows it is
// 57,376 bytes, over the 48 KiB that may be static; with 32 rows it is 24,608.
//
// build: bad-static.ptx -arch=sm_89 -DROWS=64
// heist: check too-much-static
// mark: X009 .b8 _ZZ
//
// build: dynamic.ptx -arch=sm_89 -DROWS=64 -DDYNAMIC
// heist: run too-much-for-any-block entry=tile grid=1 block=64 smem=114752 device=sim:l4
// heist: finds X010
// heist: arg in:f16:[1*4096]
// heist: arg out:f32:4096
// heist: run opted-in entry=tile grid=1 block=64 smem=57376 device=sim:l4
// heist: clean
// heist: arg in:f16:[1*4096]
// heist: arg out:f32:4096
// heist: expect 1 f32:[128*4096]
//
// build: good.ptx -arch=sm_89 -DROWS=32
// heist: run half-the-rows entry=tile grid=1 block=32
// heist: arg in:f16:[1*2048]
// heist: arg out:f32:2048
// heist: expect 1 f32:[96*2048]
#include <cuda_fp16.h>
constexpr int WIDTH = 64;

struct Tile {
    __half q[ROWS][WIDTH], k[ROWS][WIDTH], v[ROWS][WIDTH];
    float s[ROWS][ROWS], o[ROWS][WIDTH];
    float partial[8];
};
static_assert(sizeof(Tile) == (ROWS == 64 ? 57376 : 24608));

// Thread r works on row r: o = (q k^T with the scores scaled by 1/WIDTH) v, plus what the row's queries sum up to.
extern "C" __global__ void tile(const __half *in, float *out) {
#ifdef DYNAMIC
    extern __shared__ __align__(16) unsigned char bytes[];
    Tile &tile = *reinterpret_cast<Tile *>(bytes);
#else
    __shared__ Tile tile;
#endif
    int r = threadIdx.x;
    float sum = 0;
#pragma unroll 1
    for (int i = 0; i < WIDTH; i++) {
        tile.q[r][i] = tile.k[r][i] = tile.v[r][i] = in[r * WIDTH + i];
        sum += __half2float(tile.q[r][i]);
        tile.o[r][i] = 0;
    }
    if (r < 8) tile.partial[r] = sum;
    __syncthreads();
#pragma unroll 1
    for (int j = 0; j < ROWS; j++) {
        float dot = 0;
#pragma unroll 1
        for (int i = 0; i < WIDTH; i++) dot += __half2float(tile.q[r][i]) * __half2float(tile.k[j][i]);
        tile.s[r][j] = dot / WIDTH;
#pragma unroll 1
        for (int i = 0; i < WIDTH; i++) tile.o[r][i] += tile.s[r][j] * __half2float(tile.v[j][i]);
    }
#pragma unroll 1
    for (int i = 0; i < WIDTH; i++) out[r * WIDTH + i] = tile.o[r][i] + tile.partial[r % 8];
}
