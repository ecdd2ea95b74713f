// breaks M001
// The first coordinate of a surface counts bytes; the last thread of each row is outside. The place is in the header that
// has the function, so no line is marked here.
#include "common.h"
__global__ void paint(cudaSurfaceObject_t image) {
  surf2Dwrite(1.0f, image, (threadIdx.x + 1) * (int)sizeof(float), threadIdx.y);
}
int main() {
  auto floats = cudaCreateChannelDesc<float>();
  cudaResourceDesc from = {};
  from.resType = cudaResourceTypeArray;
  OK(cudaMallocArray(&from.res.array.array, &floats, 8, 8, cudaArraySurfaceLoadStore));
  cudaSurfaceObject_t surface;
  OK(cudaCreateSurfaceObject(&surface, &from));
  paint<<<1, dim3(8, 8)>>>(surface);
  OK(cudaDeviceSynchronize());
}
