// Thrust: vectors, a stable sort by key, sums of equal keys, a transformation that is reduced.
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <algorithm>
#include "common.h"
struct square {
  __host__ __device__ int operator()(int x) const { return x * x; }
};
int main() {
  const int n = 4864;  // a whole tile of the sort, 256 threads with 19 each
  std::vector<int> keys(n), values(n);
  for (int i = 0; i < n; i++) keys[i] = (i * 37 + 11) % 10, values[i] = i;
  thrust::device_vector<int> k(keys.begin(), keys.end()), v(values.begin(), values.end());
  thrust::stable_sort_by_key(k.begin(), k.end(), v.begin());
  std::vector<int> order(values);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
  std::vector<int> sorted(n);
  thrust::copy(v.begin(), v.end(), sorted.begin());
  RIGHT(sorted == order);
  thrust::device_vector<int> kinds(10), sums(10);
  auto ends = thrust::reduce_by_key(k.begin(), k.end(), v.begin(), kinds.begin(), sums.begin());
  RIGHT(ends.first - kinds.begin() == 10);
  int wanted = 0, squares = 0;
  for (int i = 0; i < n; i++) wanted += keys[i] == 3 ? i : 0, squares += keys[i] * keys[i];
  RIGHT(kinds[3] == 3 && sums[3] == wanted);
  RIGHT(thrust::transform_reduce(k.begin(), k.end(), square(), 0, thrust::plus<int>()) == squares);
}
