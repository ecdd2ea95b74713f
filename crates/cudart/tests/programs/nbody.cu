#include "common.h"
__global__ void step(const float4* in, float4* out, int n, float dt) {
  __shared__ float4 s[64];
  int i = blockIdx.x * 64 + threadIdx.x;
  float4 p = in[i];
  float ax = 0, ay = 0, az = 0;
  for (int tile = 0; tile < n; tile += 64) {
    s[threadIdx.x] = in[tile + threadIdx.x];
    __syncthreads();
    for (int j = 0; j < 64; j++) {
      float x = s[j].x - p.x, y = s[j].y - p.y, z = s[j].z - p.z, r = rsqrtf(x * x + y * y + z * z + 0.01f), f = s[j].w * r * r * r;
      ax += x * f; ay += y * f; az += z * f;
    }
    __syncthreads();
  }
  out[i] = make_float4(p.x + dt * dt * ax, p.y + dt * dt * ay, p.z + dt * dt * az, p.w);
}
int main() {
  std::vector<float4> x(128);
  for (int i = 0; i < 128; i++) x[i] = make_float4(i % 5, i % 7, i % 3, 1);
  float4 *a = device(x), *b;
  OK(cudaMalloc(&b, sizeof(float4) * 128));
  step<<<2, 64>>>(a, b, 128, 0.01f);
  auto y = host(b, 128);
  for (auto& p : y) RIGHT(std::isfinite(p.x) && p.w == 1);
}
