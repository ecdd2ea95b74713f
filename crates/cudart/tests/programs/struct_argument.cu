#include "common.h"
struct Shape { float* data; int rows, columns; double scale; char tag; };
__global__ void fill(Shape s, short add, bool on) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < s.rows * s.columns && on) s.data[i] = i * s.scale + add + s.tag;
}
int main() {
  Shape s = {nullptr, 10, 20, 0.5, 'A'};
  OK(cudaMalloc(&s.data, 800));
  fill<<<2, 128>>>(s, -3, true);
  auto y = host(s.data, 200);
  for (int i = 0; i < 200; i++) RIGHT(y[i] == i * 0.5f - 3 + 'A');
}
