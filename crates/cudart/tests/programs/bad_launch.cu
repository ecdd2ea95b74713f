// breaks X005
#include "common.h"
__global__ void nothing() {}
int main() { nothing<<<1, 2000>>>(); return cudaGetLastError() == cudaSuccess; }
