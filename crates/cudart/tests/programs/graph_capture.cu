// Two streams captured into a graph, which runs several times; then with other arguments.
#include "common.h"
__global__ void scale(float* x, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= by;
}
__global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
void count(void* at) { ++*(int*)at; }
int main() {
  const int n = 100;
  float *a, *b, *c;
  int calls = 0;
  OK(cudaMalloc(&a, n * 4));
  OK(cudaMalloc(&b, n * 4));
  OK(cudaMalloc(&c, n * 4));
  std::vector<float> from(n, 2), to(n, -1);
  cudaStream_t one, two;
  cudaEvent_t fork, join;
  OK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking));
  OK(cudaEventCreate(&fork));
  OK(cudaEventCreate(&join));
  auto record = [&](float by) {
    OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(fork, one));
    OK(cudaStreamWaitEvent(two, fork, 0));
    OK(cudaMemcpyAsync(a, from.data(), n * 4, cudaMemcpyHostToDevice, one));
    scale<<<1, 128, 0, one>>>(a, by, n);
    OK(cudaMemsetAsync(b, 0, n * 4, two));
    OK(cudaEventRecord(join, two));
    OK(cudaStreamWaitEvent(one, join, 0));
    add<<<1, 128, 0, one>>>(a, b, c, n);
    // Memory of the graph's own.
    float* copy;
    OK(cudaMallocAsync((void**)&copy, n * 4, one));
    OK(cudaMemcpyAsync(copy, c, n * 4, cudaMemcpyDeviceToDevice, one));
    OK(cudaMemcpyAsync(to.data(), copy, n * 4, cudaMemcpyDeviceToHost, one));
    OK(cudaFreeAsync(copy, one));
    OK(cudaLaunchHostFunc(one, count, &calls));
    cudaStreamCaptureStatus state;
    OK(cudaStreamIsCapturing(two, &state));
    RIGHT(state == cudaStreamCaptureStatusActive);
    cudaGraph_t graph;
    OK(cudaStreamEndCapture(one, &graph));
    OK(cudaStreamIsCapturing(two, &state));
    RIGHT(state == cudaStreamCaptureStatusNone);
    return graph;
  };
  cudaGraph_t graph = record(3);
  RIGHT(calls == 0 && to[0] == -1);
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  RIGHT(nodes == 9);
  cudaGraphExec_t ready;
  OK(cudaGraphInstantiate(&ready, graph, 0));
  for (int run = 1; run <= 3; run++) {
    from[7] = run;
    OK(cudaGraphLaunch(ready, one));
    OK(cudaStreamSynchronize(one));
    RIGHT(calls == run && to[7] == 3 * run && to[8] == 6);
  }
  cudaGraph_t other = record(10);
  cudaGraphExecUpdateResultInfo result;
  OK(cudaGraphExecUpdate(ready, other, &result));
  RIGHT(result.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(ready, two));
  OK(cudaStreamSynchronize(two));
  RIGHT(to[8] == 20 && calls == 4);
  OK(cudaGraphExecDestroy(ready));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(other));

  // A host that waits spoils a capture, and the default stream can't be captured. These three calls fail on purpose, and
  // cudaGetLastError tells the last failure again: compute-sanitizer counts four errors of the API, and is right.
  RIGHT(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal) == cudaErrorStreamCaptureUnsupported);
  OK(cudaStreamBeginCapture(one, cudaStreamCaptureModeRelaxed));
  RIGHT(cudaStreamSynchronize(one) == cudaErrorStreamCaptureUnsupported);
  RIGHT(cudaStreamEndCapture(one, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  OK(cudaStreamSynchronize(one));
  OK(cudaFree(a));
  OK(cudaFree(b));
  OK(cudaFree(c));
}
