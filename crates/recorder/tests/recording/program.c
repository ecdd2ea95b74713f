/* A program on the driver's interface, for the stand-in of the driver: three kernels, then one that
 * faults. The first word says how it comes to the functions that a recorder must see: they are
 * linked, asked of the loader, or asked of the driver. The second is a file of PTX. With a third word,
 * a folder, it asks for another record in the midst of its launches. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuDeviceGet(int *, int);
int cuStreamCreateWithPriority(void **, unsigned, int), cuStreamSynchronize(void *);
int cuMemAlloc_v2(uint64_t *, size_t), cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, void *);
int cuModuleGetFunction(void **, void *, const char *);

/* The functions that are looked for. */
int cuModuleLoadDataEx(void **, const void *, unsigned, int *, void **);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuTensorMapEncodeTiled(void *, unsigned, unsigned, void *, const uint64_t *, const uint64_t *,
                           const unsigned *, const unsigned *, unsigned, unsigned, unsigned, unsigned);
int cuTensorMapReplaceAddress(void *, void *);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);

static const char *way;

static void *function(const char *name, void *linked) {
    if (!strcmp(way, "linked")) return linked;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *found = NULL;
    if (!strcmp(way, "loader")) return dlsym(library, name);
    int (*ask)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");
    /* As the runtime does: it asks for the function to ask with, first. */
    if (ask("cuGetProcAddress", (void **)&ask, 12000, 0, NULL) || ask(name, &found, 12000, 0, NULL)) abort();
    return found;
}

static void check(int status) {
    if (status) {
        printf("status %d\n", status);
        exit(3);
    }
}

int main(int argc, char **argv) {
    way = argv[1];
    int (*load)() = function("cuModuleLoadDataEx", cuModuleLoadDataEx);
    int (*launch)() = function("cuLaunchKernel", cuLaunchKernel);
    int (*encode)() = function("cuTensorMapEncodeTiled", cuTensorMapEncodeTiled);
    int (*move)() = function("cuTensorMapReplaceAddress", cuTensorMapReplaceAddress);
    if (dlsym(RTLD_DEFAULT, "cuFuncGetName") == NULL || dlsym(RTLD_DEFAULT, "no such symbol")) abort();

    static char text[1 << 16];
    FILE *file = fopen(argv[2], "r");
    text[fread(text, 1, sizeof text - 1, file)] = 0;

    void *context, *stream, *module, *add, *copy, *far;
    int device;
    check(cuInit(0));
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context, device));
    check(cuCtxSetCurrent(context));
    check(cuStreamCreateWithPriority(&stream, 0, 0));
    check(load(&module, text, 0, NULL, NULL));
    memset(text, 0, sizeof text); /* The driver has its own. */
    check(cuModuleGetFunction(&add, module, "add_one"));
    check(cuModuleGetFunction(&copy, module, "copy_box"));
    check(cuModuleGetFunction(&far, module, "store_far"));

    static uint32_t numbers[64];
    static uint16_t box[64 * 128];
    for (int i = 0; i < 64; i++) numbers[i] = i;
    for (int i = 0; i < 64 * 128; i++) box[i] = i;
    uint64_t data, table, tensor, copied, unseen;
    check(cuMemAlloc_v2(&data, sizeof numbers));
    check(cuMemAlloc_v2(&table, 16));
    check(cuMemAlloc_v2(&tensor, sizeof box));
    check(cuMemAlloc_v2(&copied, 1024));
    check(cuMemAlloc_v2(&unseen, 4096));
    check(cuMemcpyHtoDAsync_v2(data, numbers, sizeof numbers, stream));
    /* Behind the numbers of the kernel's data: a pointer to another allocation. */
    check(cuMemcpyHtoDAsync_v2(data + 248, &table, 8, stream));
    check(cuMemcpyHtoDAsync_v2(tensor, box, sizeof box, stream));

    unsigned count = 10;
    void *first[] = {&data, &count};
    check(launch(add, 1, 1, 1, 32, 1, 1, 0, stream, first, NULL));
    count = 40;
    check(launch(add, 2, 1, 1, 32, 1, 1, 0, stream, first, NULL));
    count = 0; /* The driver has copied it. */

    static char map[128] __attribute__((aligned(64)));
    uint64_t dims[] = {128, 64}, strides[] = {256};
    unsigned extents[] = {64, 8}, steps[] = {1, 1}, x = 64, y = 3;
    /* Over other memory first. */
    check(encode(map, 6, 2, (void *)unseen, dims, strides, extents, steps, 0, 3, 0, 0));
    check(move(map, (void *)tensor));
    if (argc > 3) {
        static char to[4096];
        snprintf(to, sizeof to, "%s/again.heist", argv[3]);
        int (*next)(const char *, const char *, const char *, uint64_t) = dlsym(RTLD_DEFAULT, "heist_record_next");
        if (!next || next(NULL, to, NULL, 1) != 2 || next(argv[3], to, "copy_box", 1)) abort();
    }
    void *second[] = {map, &copied, &x, &y};
    check(launch(copy, 1, 1, 1, 128, 1, 1, 0, stream, second, NULL));
    check(cuStreamSynchronize(stream));
    check(cuMemcpyDtoHAsync_v2(numbers, data, sizeof numbers, stream));
    printf("%u %u %u\n", numbers[0], numbers[9], numbers[10]);
    fflush(stdout);

    void *third[] = {&data};
    check(launch(far, 1, 1, 1, 1, 1, 1, 0, stream, third, NULL));
    check(cuStreamSynchronize(stream));
    return 0;
}
