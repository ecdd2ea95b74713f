#include "common.h"
static int called = 0;
void done(void* data) { called += *(int*)data; }
void CUDART_CB ready(cudaStream_t, cudaError_t status, void* data) { if (status == cudaSuccess) called += *(int*)data; }
__global__ void nothing() {}
int main() {
  int two = 2, three = 3;
  nothing<<<1, 1>>>();
  OK(cudaLaunchHostFunc(0, done, &two));
  OK(cudaStreamAddCallback(0, ready, &three, 0));
  OK(cudaDeviceSynchronize());
  RIGHT(called == 5);
}
