/* Launches what `heist emit KERNEL --json` prints. It needs the NVIDIA driver alone: no
 * toolkit, no headers, nothing of Heist.
 *
 *     heist emit gemm m=256 n=256 k=128 --json > gemm.json
 *     cc launch.c -o launch -l:libcuda.so.1
 *     ./launch gemm.json a=a.bin b=b.bin d=d.bin
 *
 * A buffer that is read begins with the bytes of its file, and with zeros where none is
 * named; one that is written is put into its file at the end. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver, as cuda.h declares it. */

typedef uint64_t CUdeviceptr;
typedef struct { _Alignas(64) uint64_t opaque[16]; } CUtensorMap;
typedef struct { int id; char pad[4]; union { char room[64]; unsigned dim[3]; } value; } CUlaunchAttribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    CUlaunchAttribute *attributes;
    unsigned count;
} CUlaunchConfig;
enum { CLUSTER_DIMENSION = 4, MAX_DYNAMIC_SHARED = 8, NON_PORTABLE_CLUSTER = 14 };

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuGetErrorName(int status, const char **name);
int cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, void *stream);
int cuStreamCreateWithPriority(void **stream, unsigned flags, int priority);
int cuStreamSynchronize(void *stream);
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuFuncSetAttribute(void *function, int attribute, int value);
int cuLaunchKernelEx(const CUlaunchConfig *config, void *function, void **parameters, void **extra);
int cuTensorMapEncodeTiled(CUtensorMap *map, int type, unsigned rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                           int interleave, int swizzle, int l2, int fill);

static void stop(const char *what, const char *why) {
    fprintf(stderr, "launch: %s: %s\n", what, why);
    exit(1);
}

#define DRIVER(call) do { \
    int status = (call); \
    const char *name = "an error without a name"; \
    if (status) { cuGetErrorName(status, &name); stop(#call, name); } \
} while (0)

/* JSON: a value is where it begins in the text. Numbers, strings, lists and objects are
 * all that is needed. */

static const char *space(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *after(const char *at) {
    if (*at == '"') {
        for (at++; *at != '"'; at++) {
            if (*at == '\\') at++;
            if (!*at) stop("JSON", "a string does not end");
        }
        return at + 1;
    }
    if (*at != '[' && *at != '{') return at + strcspn(at, ",]} \t\r\n");
    for (at = space(at + 1); *at != ']' && *at != '}';) {
        if (!*at) stop("JSON", "a list does not end");
        at = space(after(at));
        if (*at == ',' || *at == ':') at = space(at + 1);
    }
    return at + 1;
}

/* The first of a list's values, and the next one; NULL behind the last. */
static const char *within(const char *at) {
    at = space(at + 1);
    return *at == ']' || *at == '}' ? NULL : at;
}
static const char *next(const char *at) {
    at = space(after(at));
    return *at == ',' ? space(at + 1) : NULL;
}

static const char *get(const char *object, const char *name) {
    size_t length = strlen(name);
    for (const char *at = within(object); at; at = next(at)) {
        const char *value = space(space(after(at)) + 1);
        if (at[length + 1] == '"' && !strncmp(at + 1, name, length)) return value;
        at = value;
    }
    stop("JSON: there is no field", name);
    return NULL;
}

static uint64_t number(const char *at) { return strtoull(at, NULL, 10); }

/* A string of its own, with the escapes that PTX and names have. */
static char *text(const char *at) {
    char *copy = malloc(after(at) - at), *to = copy;
    for (at++; *at != '"'; at++) {
        if (*at != '\\') { *to++ = *at; continue; }
        at++;
        *to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at == 'r' ? '\r' : *at;
    }
    *to = 0;
    return copy;
}

/* Which of the words a string is. */
static int word(const char *at, const char *const *words) {
    for (int i = 0; words[i]; i++)
        if (strlen(words[i]) == (size_t)(after(at) - at - 2) && !strncmp(at + 1, words[i], strlen(words[i]))) return i;
    stop("JSON: an unknown word", text(at));
    return -1;
}

static unsigned list64(const char *at, uint64_t *to) {
    unsigned count = 0;
    for (at = within(at); at && count < 5; at = next(at)) to[count++] = number(at);
    return count;
}
static void list32(const char *at, uint32_t *to) {
    uint64_t wide[5] = {0};
    unsigned count = list64(at, wide);
    for (unsigned i = 0; i < count; i++) to[i] = (uint32_t)wide[i];
}

static void extent(const char *at, unsigned *to) {
    to[0] = (unsigned)number(get(at, "x"));
    to[1] = (unsigned)number(get(at, "y"));
    to[2] = (unsigned)number(get(at, "z"));
}

/* Buffers */

static struct buffer { char *name; CUdeviceptr address; size_t bytes; int written; } buffers[64];
static int buffer_count;
static void *stream;

static CUdeviceptr upload(const void *bytes, size_t count) {
    CUdeviceptr address = 0;
    if (count == 0) return 0;
    DRIVER(cuMemAlloc_v2(&address, count));
    DRIVER(cuMemcpyHtoDAsync_v2(address, bytes, count, stream));
    DRIVER(cuStreamSynchronize(stream));
    return address;
}

static CUdeviceptr address_of(const char *argument) {
    char *name = text(get(argument, "buffer"));
    for (int i = 0; i < buffer_count; i++)
        if (!strcmp(buffers[i].name, name)) return buffers[i].address + number(get(argument, "offset"));
    stop("there is no buffer", name);
    return 0;
}

static const char *file_of(const char *name, int words, char **given) {
    for (int i = 0; i < words; i++)
        if (!strncmp(given[i], name, strlen(name)) && given[i][strlen(name)] == '=') return given[i] + strlen(name) + 1;
    return NULL;
}

static void allocate(const char *json, int words, char **given) {
    for (const char *at = within(json); at; at = next(at)) {
        static const char *const ROLES[] = {"in", "out", "inout", NULL};
        if (buffer_count == 64) stop("buffers", "there are more than 64");
        struct buffer *b = &buffers[buffer_count++];
        b->name = text(get(at, "name"));
        b->bytes = number(get(at, "bytes"));
        b->written = word(get(at, "role"), ROLES) > 0;
        char *contents = calloc(1, b->bytes + 1);
        const char *path = file_of(b->name, words, given);
        FILE *file = path && !b->written ? fopen(path, "rb") : NULL;
        if (path && !b->written && (!file || fread(contents, 1, b->bytes, file) != b->bytes))
            stop(path, "can't be read, or is too short for its buffer");
        if (file) fclose(file);
        b->address = upload(contents, b->bytes);
        free(contents);
    }
}

/* Arguments: the bytes that a parameter takes. */

static void encode(const char *argument, CUtensorMap *map) {
    static const char *const TYPES[] = {"u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16",
                                        "f32_ftz", "tf32", "tf32_ftz", "b4x16", "b4x16_p64", "b6x16_p32", NULL};
    static const char *const INTERLEAVES[] = {"none", "16", "32", NULL};
    static const char *const SWIZZLES[] = {"none", "32", "64", "128", NULL};
    static const char *const FETCHES[] = {"none", "64", "128", "256", NULL};
    static const char *const FILLS[] = {"zeros", "nan", NULL};
    uint64_t dims[5] = {0}, strides[5] = {0};
    uint32_t box[5] = {0}, every[5] = {0};
    unsigned rank = list64(get(argument, "dims"), dims);
    list64(get(argument, "strides"), strides);
    list32(get(argument, "box"), box);
    list32(get(argument, "element_strides"), every);
    DRIVER(cuTensorMapEncodeTiled(map, word(get(argument, "type"), TYPES), rank, (void *)address_of(argument), dims,
                                  strides, box, every, word(get(argument, "interleave"), INTERLEAVES),
                                  word(get(argument, "swizzle"), SWIZZLES), word(get(argument, "l2"), FETCHES),
                                  word(get(argument, "fill"), FILLS)));
}

static void *parameter(const char *argument) {
    static const char *const KINDS[] = {"scalar", "pointer", "tensor_map", "bytes", "constant", "counters", NULL};
    int kind = word(get(argument, "kind"), KINDS);
    size_t size = kind == 2 ? sizeof(CUtensorMap) : number(get(argument, "bytes")) + 8;
    uint64_t *to = aligned_alloc(64, (size + 63) / 64 * 64);
    memset(to, 0, size);
    if (kind == 0) {
        *to = number(get(argument, "bits"));
    } else if (kind == 1) {
        *to = address_of(argument);
    } else if (kind == 2) {
        encode(argument, (CUtensorMap *)to);
    } else {
        /* Bytes by value, or the address of memory that holds them. */
        const char *list = get(argument, kind == 3 ? "value" : "contents");
        size_t count = 0;
        for (const char *at = within(list); at; at = next(at)) count++;
        unsigned char *bytes = calloc(1, count + 1);
        count = 0;
        for (const char *at = within(list); at; at = next(at)) bytes[count++] = (unsigned char)number(at);
        if (kind == 3) memcpy(to, bytes, count); else *to = upload(bytes, count);
        free(bytes);
    }
    return to;
}

static void launch(const char *step) {
    void *module, *function, *parameters[64];
    int count = 0;
    for (const char *at = within(get(step, "arguments")); at; at = next(at)) {
        if (count == 64) stop("arguments", "there are more than 64");
        parameters[count++] = parameter(at);
    }
    DRIVER(cuModuleLoadDataEx(&module, text(get(step, "ptx")), 0, NULL, NULL));
    DRIVER(cuModuleGetFunction(&function, module, text(get(step, "entry"))));
    CUlaunchAttribute cluster = {.id = CLUSTER_DIMENSION};
    CUlaunchConfig config = {.shared = (unsigned)number(get(step, "dynamic_shared")), .stream = stream,
                             .attributes = &cluster, .count = 0};
    extent(get(step, "grid"), config.grid);
    extent(get(step, "block"), config.block);
    if (*get(step, "cluster") == '{') {
        extent(get(step, "cluster"), cluster.value.dim);
        /* A kernel that says its cluster itself is not told a second time. */
        config.count = strstr(get(step, "ptx"), ".reqnctapercluster") ? 0 : 1;
        if (cluster.value.dim[0] * cluster.value.dim[1] * cluster.value.dim[2] > 8)
            DRIVER(cuFuncSetAttribute(function, NON_PORTABLE_CLUSTER, 1));
    }
    if (config.shared > 48 * 1024) DRIVER(cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, (int)config.shared));
    DRIVER(cuLaunchKernelEx(&config, function, parameters, NULL));
    for (int i = 0; i < count; i++) free(parameters[i]);
}

int main(int words, char **given) {
    if (words < 2) stop("usage", "launch EMITTED.json [BUFFER=FILE]...");
    FILE *file = fopen(given[1], "rb");
    if (!file) stop(given[1], "can't be read");
    fseek(file, 0, SEEK_END);
    long length = ftell(file);
    char *json = calloc(1, length + 1);
    rewind(file);
    if (fread(json, 1, length, file) != (size_t)length) stop(given[1], "can't be read");
    fclose(file);

    int device;
    void *context;
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDevicePrimaryCtxRetain(&context, device));
    DRIVER(cuCtxSetCurrent(context));
    DRIVER(cuStreamCreateWithPriority(&stream, 1, 0));

    const char *emitted = space(json);
    allocate(get(emitted, "buffers"), words - 2, given + 2);
    for (const char *step = within(get(emitted, "steps")); step; step = next(step)) launch(step);
    DRIVER(cuStreamSynchronize(stream));

    for (int i = 0; i < buffer_count; i++) {
        const char *path = file_of(buffers[i].name, words - 2, given + 2);
        if (!path || !buffers[i].written) continue;
        char *contents = malloc(buffers[i].bytes + 1);
        DRIVER(cuMemcpyDtoHAsync_v2(contents, buffers[i].address, buffers[i].bytes, stream));
        DRIVER(cuStreamSynchronize(stream));
        file = fopen(path, "wb");
        if (!file || fwrite(contents, 1, buffers[i].bytes, file) != buffers[i].bytes || fclose(file)) stop(path, "can't be written");
        free(contents);
    }
    return 0;
}
