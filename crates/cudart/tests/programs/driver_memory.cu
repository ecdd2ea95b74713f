// The driver's memory beside the runtime's kernels: boxes, arrays, addresses that are mapped later.
// nvcc: -lcuda
#include "common.h"
#include <cuda.h>
#include <string.h>

__global__ void copy(float *to, const float *from, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) to[at] = from[at] + 1;
}

__global__ void sample(float *to, CUtexObject from) {
    to[threadIdx.y * 8 + threadIdx.x] = tex2D<float>(from, threadIdx.x + 0.5f, threadIdx.y + 0.5f);
}

int main() {
    CUcontext context;
    RIGHT(cudaFree(0) == cudaSuccess && cuCtxGetCurrent(&context) == 0 && context);

    // Two pieces at adjoining addresses are one range.
    CUmemAllocationProp kind = {}; kind.type = CU_MEM_ALLOCATION_TYPE_PINNED; kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t piece; CUdeviceptr at; CUmemGenericAllocationHandle pieces[2]; CUmemAccessDesc access = {};
    RIGHT(cuMemGetAllocationGranularity(&piece, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == 0);
    RIGHT(cuMemAddressReserve(&at, 2 * piece, 0, 0, 0) == 0);
    access.location = kind.location; access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    for (int i = 0; i < 2; i++) {
        RIGHT(cuMemCreate(&pieces[i], piece, &kind, 0) == 0 && cuMemMap(at + i * piece, piece, 0, pieces[i], 0) == 0);
        RIGHT(cuMemRelease(pieces[i]) == 0);
    }
    RIGHT(cuMemSetAccess(at, 2 * piece, &access, 1) == 0);
    float host[64], back[64];
    for (int i = 0; i < 64; i++) host[i] = i;
    CUdeviceptr middle = at + piece - 128;
    RIGHT(cuMemcpyHtoD(middle, host, sizeof host) == 0);
    copy<<<1, 64>>>((float *)middle, (float *)middle, 64);
    RIGHT(cuMemcpyDtoH(back, middle, sizeof back) == 0);
    for (int i = 0; i < 64; i++) RIGHT(back[i] == i + 1);
    RIGHT(cuMemUnmap(at, 2 * piece) == 0 && cuMemAddressFree(at, 2 * piece) == 0);

    // A box from the host into pitched memory, into an array, and through a texture.
    CUdeviceptr pitched, result; size_t pitch; CUarray array; CUtexObject texture;
    RIGHT(cuMemAllocPitch(&pitched, &pitch, 32, 8, 4) == 0 && cuMemAlloc(&result, sizeof host) == 0);
    CUDA_MEMCPY2D box = {}; box.srcMemoryType = CU_MEMORYTYPE_HOST; box.srcHost = host; box.srcPitch = 32;
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE; box.dstDevice = pitched; box.dstPitch = pitch; box.WidthInBytes = 32; box.Height = 8;
    RIGHT(cuMemcpy2D(&box) == 0);
    CUDA_ARRAY_DESCRIPTOR shape = {8, 8, CU_AD_FORMAT_FLOAT, 1};
    RIGHT(cuArrayCreate(&array, &shape) == 0);
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE; box.srcDevice = pitched; box.srcPitch = pitch;
    box.dstMemoryType = CU_MEMORYTYPE_ARRAY; box.dstArray = array;
    RIGHT(cuMemcpy2D(&box) == 0);
    CUDA_RESOURCE_DESC resource = {}; resource.resType = CU_RESOURCE_TYPE_ARRAY; resource.res.array.hArray = array;
    CUDA_TEXTURE_DESC sampling = {};
    RIGHT(cuTexObjectCreate(&texture, &resource, &sampling, 0) == 0);
    sample<<<1, dim3(8, 8)>>>((float *)result, texture);
    RIGHT(cuMemcpyDtoH(back, result, sizeof back) == 0 && !memcmp(host, back, sizeof host));

    // What a pointer is.
    int *pinned, *managed; unsigned kind_of; cudaPointerAttributes about;
    RIGHT(cuMemHostAlloc((void **)&pinned, 64, 0) == 0 && cuMemAllocManaged((CUdeviceptr *)&managed, 64, CU_MEM_ATTACH_GLOBAL) == 0);
    RIGHT(cuPointerGetAttribute(&kind_of, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pinned) == 0 && kind_of == CU_MEMORYTYPE_HOST);
    RIGHT(cuPointerGetAttribute(&kind_of, CU_POINTER_ATTRIBUTE_IS_MANAGED, (CUdeviceptr)managed) == 0 && kind_of == 1);
    RIGHT(cudaPointerGetAttributes(&about, pinned) == 0 && about.type == cudaMemoryTypeHost);
    RIGHT(cudaPointerGetAttributes(&about, managed) == 0 && about.type == cudaMemoryTypeManaged);
    RIGHT(cudaPointerGetAttributes(&about, host) == 0 && about.type == cudaMemoryTypeUnregistered);
    // A failed call of the driver is no last error of the runtime.
    RIGHT(cuMemFree(12345) != 0 && cudaGetLastError() == cudaSuccess);
    RIGHT(cuTexObjectDestroy(texture) == 0 && cuArrayDestroy(array) == 0 && cuMemFree(pitched) == 0 && cuMemFree(result) == 0);
    RIGHT(cuMemFreeHost(pinned) == 0 && cuMemFree((CUdeviceptr)managed) == 0);
    return 0;
}
