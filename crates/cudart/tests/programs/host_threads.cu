// Host threads that launch at once, each with a stream, memory and a last error of its own.
// nvcc: -Xcompiler -pthread
#include <atomic>
#include <thread>
#include "common.h"
__global__ void fill(int* x, int value, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = value + i;
}
int main() {
  const int threads = 4, n = 300;
  std::atomic<int> right{0}, looked{0};
  std::atomic<bool> failed{false};
  auto work = [&](int me) {
    cudaStream_t stream;
    int* x;
    std::vector<int> got(n);
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocAsync((void**)&x, n * 4, stream));
    for (int turn = 0; turn < 3; turn++) {
      fill<<<3, 128, 0, stream>>>(x, me * 1000 + turn, n);
      OK(cudaMemcpyAsync(got.data(), x, n * 4, cudaMemcpyDeviceToHost, stream));
      OK(cudaStreamSynchronize(stream));
      for (int i = 0; i < n; i++) right += got[i] == me * 1000 + turn + i;
    }
    // A mistake of one thread is no other's: the others look first.
    if (me == 0) {
      RIGHT(cudaSetDevice(99) == cudaErrorInvalidDevice);
      failed = true;
    }
    while (!failed || (me == 0 && looked < threads - 1)) std::this_thread::yield();
    RIGHT(cudaGetLastError() == (me == 0 ? cudaErrorInvalidDevice : cudaSuccess));
    looked++;
    OK(cudaFreeAsync(x, stream));
    OK(cudaStreamDestroy(stream));
  };
  std::vector<std::thread> all;
  for (int me = 0; me < threads; me++) all.emplace_back(work, me);
  for (auto& one : all) one.join();
  RIGHT(right == threads * 3 * n);
}
