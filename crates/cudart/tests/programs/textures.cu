// Arrays and memory read as textures: filtering, coordinates outside, formats, layers.
#include "common.h"
__global__ void sample(cudaTextureObject_t image, const float2* at, float* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = tex2D<float>(image, at[i].x, at[i].y);
}
__global__ void colours(cudaTextureObject_t image, float4* out, int w) {
  out[threadIdx.y * w + threadIdx.x] = tex2D<float4>(image, threadIdx.x + 0.5f, threadIdx.y + 0.5f);
}
__global__ void bytes(cudaTextureObject_t image, uchar4* out, int w) {
  out[threadIdx.y * w + threadIdx.x] = tex2D<uchar4>(image, threadIdx.x, threadIdx.y);
}
__global__ void fetch(cudaTextureObject_t line, int* out, int n) {
  int i = threadIdx.x;
  if (i < n + 2) out[i] = tex1Dfetch<int>(line, i);
}
__global__ void layers(cudaTextureObject_t image, float* out, int w, int h) {
  int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
  out[(z * h + y) * w + x] = tex2DLayered<float>(image, x + 0.5f, y + 0.5f, z);
}
__global__ void volume(cudaTextureObject_t image, float* out) { *out = tex3D<float>(image, 1.0f, 1.0f, 1.0f); }

cudaTextureObject_t texture(const cudaResourceDesc& from, cudaTextureAddressMode outside, cudaTextureFilterMode filter,
                            bool unit, cudaTextureReadMode read = cudaReadModeElementType) {
  cudaTextureDesc how = {};
  for (auto& mode : how.addressMode) mode = outside;
  how.filterMode = filter;
  how.readMode = read;
  how.normalizedCoords = unit;
  cudaTextureObject_t made;
  OK(cudaCreateTextureObject(&made, &from, &how, nullptr));
  return made;
}
cudaResourceDesc of(cudaArray_t array) {
  cudaResourceDesc from = {};
  from.resType = cudaResourceTypeArray;
  from.res.array.array = array;
  return from;
}

int main() {
  const int w = 8, h = 4;
  std::vector<float> values(w * h);
  for (int i = 0; i < w * h; i++) values[i] = 3 * i;
  auto floats = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  OK(cudaMallocArray(&array, &floats, w, h));
  OK(cudaMemcpy2DToArray(array, 0, 0, values.data(), w * 4, w * 4, h, cudaMemcpyHostToDevice));
  std::vector<float2> at = {{0.5f, 0.5f}, {3.0f, 2.0f}, {-5.0f, 0.5f}, {7.75f, 3.9f}};
  float2* places = device(at);
  float* out;
  OK(cudaMalloc(&out, 4096));
  auto smooth = texture(of(array), cudaAddressModeClamp, cudaFilterModeLinear, false);
  sample<<<1, 32>>>(smooth, places, out, 4);
  auto got = host(out, 4);
  RIGHT(got[0] == 0 && got[1] == 3 * (2.5f + 1.5f * w) && got[2] == 0 && got[3] == 3 * (3 * w + 7));
  OK(cudaDestroyTextureObject(smooth));
  // A quarter of the width to the left of the image is a quarter before its right edge.
  at = {{-0.25f, 0.1f}, {1.0f + 2.5f / w, 1.0f + 1.5f / h}, {0.99f, 0.99f}, {0, 0}};
  OK(cudaMemcpy(places, at.data(), 4 * sizeof(float2), cudaMemcpyHostToDevice));
  auto tiled = texture(of(array), cudaAddressModeWrap, cudaFilterModePoint, true);
  sample<<<1, 32>>>(tiled, places, out, 4);
  got = host(out, 4);
  RIGHT(got[0] == 3 * 6 && got[1] == 3 * (w + 2) && got[2] == 3 * 31 && got[3] == 0);
  auto mirrored = texture(of(array), cudaAddressModeMirror, cudaFilterModePoint, true);
  sample<<<1, 32>>>(mirrored, places, out, 4);
  RIGHT(host(out, 1)[0] == 3 * 1);
  auto framed = texture(of(array), cudaAddressModeBorder, cudaFilterModePoint, true);
  sample<<<1, 32>>>(framed, places, out, 4);
  got = host(out, 4);
  RIGHT(got[0] == 0 && got[1] == 0 && got[2] == 3 * 31);
  OK(cudaFreeArray(array));

  // Bytes in rows that lie apart, as fractions and as they are.
  std::vector<uchar4> pixels(w * h);
  for (int i = 0; i < w * h; i++) pixels[i] = make_uchar4(i, 255 - i, 2 * i, 255);
  cudaResourceDesc rows = {};
  rows.resType = cudaResourceTypePitch2D;
  rows.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
  rows.res.pitch2D.width = w;
  rows.res.pitch2D.height = h;
  OK(cudaMallocPitch(&rows.res.pitch2D.devPtr, &rows.res.pitch2D.pitchInBytes, w * 4, h));
  OK(cudaMemcpy2D(rows.res.pitch2D.devPtr, rows.res.pitch2D.pitchInBytes, pixels.data(), w * 4, w * 4, h,
                  cudaMemcpyHostToDevice));
  auto fractions = texture(rows, cudaAddressModeClamp, cudaFilterModeLinear, false, cudaReadModeNormalizedFloat);
  colours<<<1, dim3(w, h)>>>(fractions, (float4*)out, w);
  auto colour = host((float4*)out, w * h);
  for (int i = 0; i < w * h; i++) RIGHT(std::fabs(colour[i].y - (255 - i) / 255.0f) < 1e-6f && colour[i].w == 1);
  auto whole = texture(rows, cudaAddressModeClamp, cudaFilterModePoint, false);
  bytes<<<1, dim3(w, h)>>>(whole, (uchar4*)out, w);
  auto back = host((uchar4*)out, w * h);
  for (int i = 0; i < w * h; i++) RIGHT(back[i].x == i && back[i].y == 255 - i && back[i].z == 2 * i);

  // A line of memory, and what is behind it.
  std::vector<int> numbers = {5, -6, 7};
  cudaResourceDesc line = {};
  line.resType = cudaResourceTypeLinear;
  line.res.linear.devPtr = device(numbers);
  line.res.linear.desc = cudaCreateChannelDesc<int>();
  line.res.linear.sizeInBytes = 12;
  fetch<<<1, 32>>>(texture(line, cudaAddressModeClamp, cudaFilterModePoint, false), (int*)out, 3);
  auto fetched = host((int*)out, 5);
  RIGHT(fetched[0] == 5 && fetched[1] == -6 && fetched[2] == 7 && fetched[3] == 0 && fetched[4] == 0);

  // Layers, and a box in space.
  cudaMemcpy3DParms copy = {};
  OK(cudaMalloc3DArray(&array, &floats, make_cudaExtent(4, 4, 2), cudaArrayLayered));
  copy.srcPtr = make_cudaPitchedPtr(values.data(), 4 * sizeof(float), 4, 4);
  copy.dstArray = array;
  copy.extent = make_cudaExtent(4, 4, 2);
  copy.kind = cudaMemcpyHostToDevice;
  OK(cudaMemcpy3D(&copy));
  layers<<<2, dim3(4, 4)>>>(texture(of(array), cudaAddressModeClamp, cudaFilterModeLinear, false), out, 4, 4);
  RIGHT(host(out, 32) == values);
  cudaArray_t space;
  OK(cudaMalloc3DArray(&space, &floats, make_cudaExtent(4, 4, 2)));
  copy.dstArray = space;
  OK(cudaMemcpy3D(&copy));
  volume<<<1, 1>>>(texture(of(space), cudaAddressModeClamp, cudaFilterModeLinear, false), out);
  // Between eight texels: numbers 0, 1, 4, 5 and those 16 further.
  RIGHT(host(out, 1)[0] == 3 * 10.5f);
  cudaChannelFormatDesc format;
  cudaExtent extent;
  unsigned flags;
  OK(cudaArrayGetInfo(&format, &extent, &flags, space));
  RIGHT(format.x == 32 && format.y == 0 && format.f == cudaChannelFormatKindFloat && extent.depth == 2 && flags == 0);
}
