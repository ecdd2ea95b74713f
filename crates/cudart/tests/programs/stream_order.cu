// Streams and the host, each kept in order by one of the means that there are: nothing is found.
#include "common.h"

__global__ void add(int* to, const int* from, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) to[at] = from[at] + 1;
}

__global__ void count(int* counter) { atomicAdd(counter, 1); }

__global__ void announce(int* data, volatile int* flag) {
  *data = 5;
  __threadfence_system();
  *flag = 1;
}

static void note(void* data) { *(int*)data += 1; }
static volatile bool called;
static void tell(cudaStream_t, cudaError_t, void*) { called = true; }

int main() {
  const int n = 1000;
  int *a, *b, *c, *counter, *managed, *pinned;
  OK(cudaMalloc(&a, n * 4));
  OK(cudaMalloc(&b, n * 4));
  OK(cudaMalloc(&c, n * 4));
  OK(cudaMalloc(&counter, 4));
  OK(cudaMallocManaged(&managed, n * 4));
  OK(cudaMallocHost(&pinned, n * 4));
  OK(cudaMemset(a, 0, n * 4));
  OK(cudaMemset(counter, 0, 4));
  cudaStream_t one, two, apart;
  OK(cudaStreamCreate(&one));
  OK(cudaStreamCreate(&two));
  OK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  cudaEvent_t done;
  OK(cudaEventCreate(&done));

  // An event, the default stream, a wait of the host.
  add<<<4, 256, 0, one>>>(b, a, n);
  OK(cudaEventRecord(done, one));
  OK(cudaStreamWaitEvent(two, done, 0));
  add<<<4, 256, 0, two>>>(c, b, n);
  add<<<4, 256>>>(a, c, n);
  add<<<4, 256, 0, one>>>(b, a, n);
  OK(cudaStreamSynchronize(one));
  add<<<4, 256, 0, apart>>>(c, b, n);
  OK(cudaMemcpyAsync(pinned, c, n * 4, cudaMemcpyDeviceToHost, apart));
  OK(cudaEventRecord(done, apart));
  OK(cudaEventSynchronize(done));
  RIGHT(pinned[n - 1] == 5);

  // Halves of one array, and atomics from anywhere.
  OK(cudaMemsetAsync(a, 0, n * 2, one));
  OK(cudaMemsetAsync(a + n / 2, 0, n * 2, two));
  count<<<2, 32, 0, one>>>(counter);
  count<<<2, 32, 0, two>>>(counter);
  OK(cudaDeviceSynchronize());

  // Memory of both: other bytes, and after a wait; a copy to memory that is not pinned waits itself.
  add<<<2, 256, 0, one>>>(managed, a, n / 2);
  managed[n / 2] = 7;
  OK(cudaStreamSynchronize(one));
  RIGHT(managed[0] == 1 && managed[n / 2] == 7);
  std::vector<int> back(n);
  OK(cudaMemcpyAsync(back.data(), managed, n * 2, cudaMemcpyDeviceToHost, one));
  managed[0] = 3;
  RIGHT(back[0] == 1);
  add<<<2, 256>>>(managed, a, n / 2);
  OK(cudaMemcpy(back.data(), managed, n * 2, cudaMemcpyDeviceToHost));
  RIGHT(managed[1] == 1);

  // A host function of a stream, and a kernel that tells the host itself.
  OK(cudaMemcpyAsync(pinned, a, 4, cudaMemcpyDeviceToHost, two));
  OK(cudaLaunchHostFunc(two, note, pinned));
  OK(cudaStreamSynchronize(two));
  RIGHT(*pinned == 1);
  OK(cudaMemcpyAsync(pinned, a, 4, cudaMemcpyDeviceToHost, two));
  OK(cudaStreamAddCallback(two, tell, 0, 0));
  while (!called) {}
  RIGHT(*pinned == 0);
  pinned[1] = 0;
  announce<<<1, 1, 0, two>>>(pinned, pinned + 1);
  while (!((volatile int*)pinned)[1]) {}
  RIGHT(pinned[0] == 5);
  OK(cudaStreamSynchronize(two));

  // Memory of a stream, given to another one.
  int* fresh;
  OK(cudaMallocAsync(&fresh, n * 4, one));
  OK(cudaEventRecord(done, one));
  OK(cudaStreamWaitEvent(two, done, 0));
  add<<<4, 256, 0, two>>>(fresh, b, n);
  OK(cudaFreeAsync(fresh, two));
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(c));
  OK(cudaFree(counter));
  OK(cudaFree(managed));
  OK(cudaFreeHost(pinned));
  return 0;
}
