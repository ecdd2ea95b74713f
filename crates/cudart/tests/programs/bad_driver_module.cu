// A text that is no PTX is told, and the program is told why.
// nvcc: -lcuda
// breaks P001
#include "common.h"
#include <cuda.h>
#include <string.h>

int main() {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  char log[256] = "";
  CUjit_option kinds[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)sizeof log};
  RIGHT(cuInit(0) == 0 && cuDeviceGet(&device, 0) == 0 && cuDevicePrimaryCtxRetain(&context, device) == 0);
  RIGHT(cuCtxSetCurrent(context) == 0);
  const char *text = ".version 8.0\n.target sm_80\n.address_size 64\nnothing";
  RIGHT(cuModuleLoadDataEx(&module, text, 2, kinds, values) == CUDA_ERROR_INVALID_PTX);
  RIGHT(log[0] && (size_t)values[1] == strlen(log));
  return 0;
}
