// A graph made node by node: copies, fills, a kernel, the host, a graph inside, a copy of the whole.
#include "common.h"
__global__ void shift(int* x, int by, int n) {
  int i = threadIdx.x;
  if (i < n) x[i] += by;
}
struct Seen { int* from; int sum; };
void look(void* at) {
  Seen* seen = (Seen*)at;
  for (int i = 0; i < 16; i++) seen->sum += seen->from[i];
}
int main() {
  const int n = 16;
  int *x, host[n] = {};
  OK(cudaMalloc(&x, n * 4));
  cudaGraph_t graph, child;
  cudaGraphNode_t fill, first, second, back, call, inside, pause;
  OK(cudaGraphCreate(&graph, 0));
  OK(cudaGraphCreate(&child, 0));
  cudaMemsetParams zeros = {};
  zeros.dst = x;
  zeros.value = 5;
  zeros.elementSize = 4;
  zeros.width = n;
  zeros.height = 1;
  OK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &zeros));
  int by = 1, count = n;
  void* arguments[] = {&x, &by, &count};
  cudaKernelNodeParams kernel = {};
  kernel.func = (void*)shift;
  kernel.gridDim = dim3(1);
  kernel.blockDim = dim3(32);
  kernel.kernelParams = arguments;
  OK(cudaGraphAddKernelNode(&first, graph, &fill, 1, &kernel));
  by = 10;
  OK(cudaGraphAddKernelNode(&inside, child, nullptr, 0, &kernel));
  OK(cudaGraphAddChildGraphNode(&second, graph, &first, 1, child));
  cudaMemcpy3DParms copy = {};
  copy.srcPtr = make_cudaPitchedPtr(x, n * 4, n, 1);
  copy.dstPtr = make_cudaPitchedPtr(host, n * 4, n, 1);
  copy.extent = make_cudaExtent(n * 4, 1, 1);
  copy.kind = cudaMemcpyDeviceToHost;
  OK(cudaGraphAddMemcpyNode(&back, graph, nullptr, 0, &copy));
  Seen seen = {host, 0};
  cudaHostNodeParams looking = {look, &seen};
  OK(cudaGraphAddHostNode(&call, graph, &back, 1, &looking));
  // The copy comes after the kernels by way of an empty node.
  OK(cudaGraphAddEmptyNode(&pause, graph, &second, 1));
  OK(cudaGraphAddDependencies(graph, &pause, &back, nullptr, 1));
  cudaGraphNodeType type;
  OK(cudaGraphNodeGetType(second, &type));
  RIGHT(type == cudaGraphNodeTypeGraph);
  cudaGraphNode_t roots[4];
  size_t found = 4;
  OK(cudaGraphGetRootNodes(graph, roots, &found));
  RIGHT(found == 1 && roots[0] == fill);

  cudaGraph_t twin;
  cudaGraphNode_t same;
  OK(cudaGraphClone(&twin, graph));
  OK(cudaGraphNodeFindInClone(&same, first, twin));
  cudaGraphExec_t ready;
  OK(cudaGraphInstantiate(&ready, twin, 0));
  cudaStream_t stream;
  OK(cudaStreamCreate(&stream));
  OK(cudaGraphLaunch(ready, stream));
  OK(cudaStreamSynchronize(stream));
  RIGHT(host[3] == 16 && seen.sum == 16 * n);
  by = 100;
  OK(cudaGraphExecKernelNodeSetParams(ready, same, &kernel));
  OK(cudaGraphLaunch(ready, stream));
  OK(cudaStreamSynchronize(stream));
  RIGHT(host[3] == 115);
  // Nodes that wait for each other in a circle can't run. The call fails on purpose, and cudaGetLastError tells it again:
  // compute-sanitizer counts two errors of the API, and is right.
  OK(cudaGraphAddDependencies(graph, &back, &fill, nullptr, 1));
  RIGHT(cudaGraphInstantiate(&ready, graph, 0) != cudaSuccess);
  cudaGetLastError();
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(twin));
  OK(cudaGraphDestroy(child));
  OK(cudaFree(x));
}
