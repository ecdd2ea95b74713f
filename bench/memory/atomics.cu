#include <cstdio>
#include <cstdint>
// Atomics per SM clock on few addresses. FORM 0: atom.add fetched, 1: red.add, 2: atom.exch, 3: atom.cas
template <int FORM> __device__ uint32_t one(uint32_t *p, uint32_t v) {
  uint32_t old = 0;
  if (FORM == 0) asm volatile("atom.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  if (FORM == 1) asm volatile("red.global.add.u32 [%0], %1;" :: "l"(p), "r"(v) : "memory");
  if (FORM == 2) asm volatile("atom.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  if (FORM == 3) asm volatile("atom.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(p), "r"(v), "r"(v + 1) : "memory");
  return old;
}
// lanes: how many lanes of each warp take part; apart: bytes between lanes; blocks_apart: between blocks
template <int FORM> __global__ void many(uint32_t *w, int rounds, int lanes, int apart, int blocks_apart, uint32_t *sink, unsigned long long *clocks) {
  unsigned long long c0 = clock64(), g0; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(g0));
  int lane = threadIdx.x & 31;
  uint32_t sum = 0;
  char *at = (char *)w + (size_t)lane * apart + (size_t)blockIdx.x * blocks_apart;
  if (lane < lanes) for (int i = 0; i < rounds; i++) sum += one<FORM>((uint32_t *)at, threadIdx.x + i);
  if (sum == 0x12345) *sink = sum;
  unsigned long long c1 = clock64(), g1; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(g1));
  if (blockIdx.x == 0 && threadIdx.x == 0) { clocks[0] = c1 - c0; clocks[1] = g1 - g0; }
}
template <int FORM> void run(const char *name, int blocks, int threads, int lanes, int apart, int blocks_apart) {
  uint32_t *w, *sink; unsigned long long *clocks, host[2];
  cudaMalloc(&w, 64 << 20); cudaMalloc(&sink, 4); cudaMalloc(&clocks, 16);
  cudaMemset(w, 0, 64 << 20);
  cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b);
  int rounds = 256; float best = 1e9;
  double ghz = 0;
  for (int r = 0; r < 4; r++) {
    cudaEventRecord(a);
    many<FORM><<<blocks, threads>>>(w, rounds, lanes, apart, blocks_apart, sink, clocks);
    cudaEventRecord(b); cudaEventSynchronize(b);
    float ms; cudaEventElapsedTime(&ms, a, b); if (ms < best) best = ms;
    cudaMemcpy(host, clocks, 16, cudaMemcpyDeviceToHost);
    ghz = (double)host[0] / host[1];
  }
  double ops = (double)blocks * (threads / 32) * lanes * rounds;
  printf("%-44s blocks %4d threads %4d lanes %2d apart %3d blocks_apart %5d: %8.1f us, %.2f GHz, %.3f atomics/clock, %.3f warps/clock\n",
         name, blocks, threads, lanes, apart, blocks_apart, best * 1e3, ghz, ops / (best * 1e-3 * ghz * 1e9), ops / lanes / (best * 1e-3 * ghz * 1e9));
  cudaFree(w); cudaFree(sink); cudaFree(clocks);
}
int main() {
  for (int t : {32, 256}) {
    run<0>("one address, one lane, fetched add", 132, t, 1, 0, 0);
    run<1>("one address, one lane, red", 132, t, 1, 0, 0);
    run<2>("one address, one lane, exch", 132, t, 1, 0, 0);
    run<3>("one address, one lane, cas", 132, t, 1, 0, 0);
    run<0>("one address, 32 lanes, fetched add", 132, t, 32, 0, 0);
    run<1>("one address, 32 lanes, red", 132, t, 32, 0, 0);
    run<2>("one address, 32 lanes, exch", 132, t, 32, 0, 0);
    run<3>("one address, 32 lanes, cas", 132, t, 32, 0, 0);
    run<0>("one line, a word a lane, fetched add", 132, t, 32, 4, 0);
    run<1>("one line, a word a lane, red", 132, t, 32, 4, 0);
    run<0>("own line a block, a word a lane, fetched add", 132, t, 32, 4, 4096);
    run<1>("own line a block, a word a lane, red", 132, t, 32, 4, 4096);
    run<0>("own address a block, one lane, fetched add", 132, t, 1, 0, 4096);
    run<0>("own address a block, 32 lanes, fetched add", 132, t, 32, 0, 4096);
  }
  run<0>("one block: latency, one lane", 1, 32, 1, 0, 0);
  run<0>("one block: one address 32 lanes", 1, 32, 32, 0, 0);
  run<2>("one block: one address 32 lanes exch", 1, 32, 32, 0, 0);
  printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
