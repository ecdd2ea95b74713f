// What the programs share: every call is checked, and a result that is not right ends the program.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define OK(call)                                                                  \
  do {                                                                            \
    cudaError_t status = (call);                                                  \
    if (status != cudaSuccess) {                                                  \
      printf("%s: %s\n", #call, cudaGetErrorString(status));                      \
      exit(2);                                                                    \
    }                                                                             \
  } while (0)

#define RIGHT(condition)                                                          \
  do {                                                                            \
    if (!(condition)) {                                                           \
      printf("line %d: not so: %s\n", __LINE__, #condition);                      \
      exit(3);                                                                    \
    }                                                                             \
  } while (0)

template <class T> T* device(const std::vector<T>& from) {
  T* to;
  OK(cudaMalloc(&to, from.size() * sizeof(T)));
  OK(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return to;
}

template <class T> std::vector<T> host(const T* from, size_t count) {
  std::vector<T> to(count);
  OK(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
  return to;
}
