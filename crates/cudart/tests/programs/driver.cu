// Device code that the program loads itself, with the driver's functions alone.
// nvcc: -lcuda
#include "common.h"
#include <cuda.h>
#include <string.h>

static const char *text = R"(
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 calls = 7;
.const .align 4 .u32 factor = 2;
.visible .entry scale(.param .u64 to, .param .u8 add, .param .u32 count) {
    .reg .pred %p; .reg .u32 %r<8>; .reg .u64 %d<4>; .reg .u16 %h;
    ld.param.u64 %d0, [to]; ld.param.u8 %h, [add]; ld.param.u32 %r0, [count];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
    mad.lo.u32 %r1, %r1, %r2, %r3;
    setp.ge.u32 %p, %r1, %r0;
    @%p ret;
    mad.wide.u32 %d1, %r1, 4, %d0;
    ld.global.u32 %r4, [%d1]; ld.const.u32 %r5, [factor]; cvt.u32.u16 %r6, %h;
    mad.lo.u32 %r4, %r4, %r5, %r6; st.global.u32 [%d1], %r4;
    atom.global.add.u32 %r4, [calls], 1;
    ret;
}
)";

static void expect(const unsigned *all, unsigned value) {
    for (int at = 0; at < 100; at++) RIGHT(all[at] == value);
}

int main() {
    CUdeviceptr memory, variable;
    RIGHT(cuMemAlloc(&memory, 400) == CUDA_ERROR_NOT_INITIALIZED);
    RIGHT(cuInit(0) == 0);
    RIGHT(cuMemAlloc(&memory, 400) == CUDA_ERROR_INVALID_CONTEXT);
    CUdevice device; CUcontext context, now; CUmodule module; CUfunction scale, none; char name[64]; int sms;
    RIGHT(cuDeviceGet(&device, 1) == CUDA_ERROR_INVALID_DEVICE && cuDeviceGet(&device, 0) == 0);
    RIGHT(cuDeviceGetName(name, sizeof name, device) == 0 && strstr(name, "simulated"));
    RIGHT(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) == 0 && sms == 132);
    RIGHT(cuCtxCreate(&context, NULL, 0, device) == 0 && cuCtxGetCurrent(&now) == 0 && now == context);

    char log[256] = ""; CUjit_option kinds[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    RIGHT(cuModuleLoadDataEx(&module, text, 2, kinds, values) == 0);
    RIGHT(cuModuleGetFunction(&none, module, "scales") == CUDA_ERROR_NOT_FOUND);
    RIGHT(cuModuleGetFunction(&scale, module, "scale") == 0);

    RIGHT(values[1] == 0);

    // Arguments one by one, and in one buffer.
    unsigned host[100], count = 100; unsigned char add = 3;
    RIGHT(cuMemAlloc(&memory, sizeof host) == 0 && cuMemsetD32(memory, 10, 100) == 0);
    void *arguments[] = {&memory, &add, &count};
    RIGHT(cuLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, 0, arguments, 0) == 0 && cuCtxSynchronize() == 0);
    RIGHT(cuMemcpyDtoH(host, memory, sizeof host) == 0);
    expect(host, 23);
    struct { CUdeviceptr to; unsigned char add; unsigned count; } packed = {memory, 1, 100};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    RIGHT(cuLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, 0, 0, extra) == 0);
    RIGHT(cuMemcpyDtoH(host, memory, sizeof host) == 0);
    expect(host, 47);

    // Variables, constants among them, keep what was written.
    unsigned calls, factor = 5;
    RIGHT(cuModuleGetGlobal(&variable, &bytes, module, "calls") == 0 && bytes == 4);
    RIGHT(cuMemcpyDtoH(&calls, variable, 4) == 0 && calls == 207);
    RIGHT(cuModuleGetGlobal(&variable, 0, module, "factor") == 0 && cuMemcpyHtoD(variable, &factor, 4) == 0);
    RIGHT(cuModuleGetGlobal(&variable, 0, module, "factor") == 0);

    // A captured stream, and a function by its name.
    typedef CUresult (*Launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
    Launch launch; CUdriverProcAddressQueryResult result; void *found;
    RIGHT(cuGetProcAddress("cuLaunchKernel", &found, CUDA_VERSION, 0, &result) == 0 && result == 0);
    launch = (Launch)found;
    RIGHT(cuGetProcAddress("cuNoSuchFunction", &found, CUDA_VERSION, 0, &result) == CUDA_ERROR_NOT_FOUND && !found);
    CUstream stream; CUgraph graph; CUgraphExec ready; CUevent before, after; float ms;
    RIGHT(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == 0);
    RIGHT(cuEventCreate(&before, 0) == 0 && cuEventCreate(&after, 0) == 0 && cuEventRecord(before, stream) == 0);
    RIGHT(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == 0);
    RIGHT(launch(scale, 2, 1, 1, 64, 1, 1, 0, stream, arguments, 0) == 0);
    RIGHT(cuStreamEndCapture(stream, &graph) == 0 && cuGraphInstantiate(&ready, graph, 0) == 0);
    RIGHT(cuGraphLaunch(ready, stream) == 0 && cuEventRecord(after, stream) == 0 && cuStreamSynchronize(stream) == 0);
    RIGHT(cuEventElapsedTime(&ms, before, after) == 0 && ms > 0);
    RIGHT(cuMemcpyDtoH(host, memory, sizeof host) == 0);
    expect(host, 238);

    // Errors have names.
    const char *said;
    RIGHT(cuGetErrorName(CUDA_ERROR_INVALID_PTX, &said) == 0 && !strcmp(said, "CUDA_ERROR_INVALID_PTX"));
    RIGHT(cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &said) == 0 && !strcmp(said, "invalid argument"));
    int blocks, block;
    RIGHT(cuOccupancyMaxPotentialBlockSize(&blocks, &block, scale, 0, 0, 0) == 0 && block == 1024 && blocks == 264);
    RIGHT(cuModuleUnload(module) == 0 && cuModuleUnload(module) == CUDA_ERROR_INVALID_HANDLE);
    RIGHT(cuLaunchKernel(scale, 2, 1, 1, 64, 1, 1, 0, 0, arguments, 0) == CUDA_ERROR_INVALID_HANDLE);
    RIGHT(cuMemFree(memory) == 0 && cuStreamDestroy(stream) == 0 && cuCtxDestroy(context) == 0);
    RIGHT(cuCtxGetCurrent(&now) == 0 && !now);
    return 0;
}
