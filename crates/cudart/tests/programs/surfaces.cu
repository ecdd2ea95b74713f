// A kernel writes an array as a surface; another reads it as a texture, and the host copies it out.
#include "common.h"
__global__ void paint(cudaSurfaceObject_t image, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  float value = 100 * y + x;
  // Beyond the edge nothing is written.
  surf2Dwrite(value, image, x * (int)sizeof(float), y, cudaBoundaryModeZero);
}
__global__ void turn(cudaSurfaceObject_t from, cudaTextureObject_t same, float* out, int w, int h) {
  int x = threadIdx.x, y = threadIdx.y;
  if (x < w && y < h)
    out[x * h + y] = surf2Dread<float>(from, x * (int)sizeof(float), y) + tex2D<float>(same, x + 0.5f, y + 0.5f);
}
int main() {
  const int w = 13, h = 9;
  auto floats = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  OK(cudaMallocArray(&array, &floats, w, h, cudaArraySurfaceLoadStore));
  cudaResourceDesc from = {};
  from.resType = cudaResourceTypeArray;
  from.res.array.array = array;
  cudaSurfaceObject_t surface;
  OK(cudaCreateSurfaceObject(&surface, &from));
  paint<<<dim3(2, 2), dim3(8, 8)>>>(surface, w, h);
  cudaTextureDesc how = {};
  cudaTextureObject_t texture;
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
  OK(cudaCreateTextureObject(&texture, &from, &how, nullptr));
  float* out;
  OK(cudaMalloc(&out, w * h * 4));
  turn<<<1, dim3(16, 16)>>>(surface, texture, out, w, h);
  auto got = host(out, w * h);
  for (int x = 0; x < w; x++) for (int y = 0; y < h; y++) RIGHT(got[x * h + y] == 2 * (100 * y + x));
  std::vector<float> rows(w * h);
  OK(cudaMemcpy2DFromArray(rows.data(), w * 4, array, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
  for (int x = 0; x < w; x++) for (int y = 0; y < h; y++) RIGHT(rows[y * w + x] == 100 * y + x);
  OK(cudaDestroyTextureObject(texture));
  OK(cudaDestroySurfaceObject(surface));
  OK(cudaFreeArray(array));
}
