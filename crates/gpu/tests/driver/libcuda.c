/* A stand-in for the NVIDIA driver, for tests on machines without one.
 *
 * It has the calls that this crate makes and keeps the promises that matter to
 * it: work in a stream runs later, in order; a fault surfaces in a later call and
 * sticks until the context is reset; a launch copies as many parameter bytes as
 * the kernel takes; what goes beyond the ordinary must be asked for first. A launch
 * with blocks of 13 threads is refused with the number of its blocks, and with 950 and
 * a bit for each of its attributes if it is one block. Device memory is host memory, and
 * the kernels of `tests/hardware/kernels.ptx` are known by name. Of any other kernel it writes
 * down how it was launched, into the file that STAND_IN_RECORD names. STAND_IN_CAPABILITY says
 * which GPU it stands for, and STAND_IN_SMS how many multiprocessors it has.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_BINARY = 209, INVALID_PTX = 218,
    NO_CONTEXT = 201, UNSUPPORTED_PTX = 222, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700,
    MISALIGNED = 716
};

static int fault; /* What the context died of. */
static int told;  /* Whether a call has said so. */
static int answer(int result) {
    if (fault && result == fault) told = 1;
    return result;
}
static _Thread_local void *current; /* The context of this thread. */
#define ALIVE do { if (!current) return NO_CONTEXT; if (fault) return answer(fault); } while (0)
/* Nothing is given back in a context that is known to be lost. */
#define GIVEN_BACK do { if (told) broken("something of a lost context is given back"); \
                        if (fault) return fault; } while (0)

/* The device's time, in seconds. It passes only while somebody waits for the device,
 * so no test depends on how busy the host is. It starts after 0, which in an event
 * means "not yet". */
static double now = 1;

/* A promise that this crate broke ends the process, loudly. */
static void broken(const char *what) {
    fprintf(stderr, "driver stand-in: %s\n", what);
    abort();
}

/* Devices */

int cuInit(unsigned flags) { return OK; }
int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
int cuDeviceGetCount(int *count) { *count = 1; return OK; }
/* Handles are not ordinals. */
enum { DEVICE = 100 };
#define KNOWN do { if (device != DEVICE) return 101; } while (0)
int cuDeviceGet(int *device, int ordinal) { *device = DEVICE + ordinal; return OK; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { KNOWN; *bytes = 141ull << 30; return OK; }
int cuDeviceGetUuid_v2(char *uuid, int device) { KNOWN; memset(uuid, 7, 16); return OK; }

int cuDeviceGetName(char *name, int length, int device) {
    KNOWN;
    snprintf(name, length, "Stand-in");
    return OK;
}

/* A number that the environment says, or another. */
static int asked_for(const char *name, int otherwise) {
    const char *asked = getenv(name);
    return asked ? atoi(asked) : otherwise;
}

/* The compute capability without its dot. */
static int capability(void) { return asked_for("STAND_IN_CAPABILITY", 90); }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    KNOWN;
    switch (attribute) {
    case 1: case 2: case 3: *value = 1024; break;      /* threads a block, x, y */
    case 4: *value = 64; break;                        /* z */
    case 5: *value = 0x7fffffff; break;                /* grid x */
    case 6: case 7: *value = 65535; break;             /* grid y, z */
    case 16: *value = asked_for("STAND_IN_SMS", 132); break; /* SMs */
    case 39: *value = 2048; break;                     /* threads an SM */
    case 75: *value = capability() / 10; break;
    case 76: *value = capability() % 10; break;
    case 97: *value = 232448; break;                   /* shared memory a block */
    default: *value = 1;
    }
    return OK;
}

int cuGetErrorName(unsigned code, const char **name) {
    *name = code == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : code == MISALIGNED ? "CUDA_ERROR_MISALIGNED_ADDRESS" : "CUDA_ERROR_OTHER";
    return OK;
}

int cuGetErrorString(unsigned code, const char **text) { *text = "a sentence"; return OK; }

/* Contexts */

static int forget_memory(void);
int cuDevicePrimaryCtxRetain(void **context, int device) { KNOWN; *context = &fault; return OK; }
int cuDevicePrimaryCtxRelease_v2(int device) { KNOWN; return OK; }
int cuDevicePrimaryCtxReset_v2(int device) { KNOWN; fault = told = 0; return forget_memory(); }
int cuCtxSetCurrent(void *context) { current = context; return OK; }
int cuCtxGetCurrent(void **context) { *context = current; return OK; }

/* Kernels */

enum { MOST = 48 };

struct kernel {
    const char *name;
    int parameters;
    int sizes[MOST];
    unsigned cluster;
    int recorded;
    unsigned high; /* Blocks of the cluster along y, where it has several. */
    unsigned opted_in; /* Shared memory beyond what every block has. */
    int non_portable;
    void *module;
};

static struct kernel kernels[] = {
    {"add_one", 2, {8, 4}, 0},       {"store_far", 1, {8}, 0},
    {"load_odd", 1, {8}, 0},         {"linger", 1, {8}, 0},
    {"cluster_ranks", 1, {8}, 0},    {"cluster_of_two", 1, {8}, 2},
    {"last_shared_word", 1, {8}, 0}, {"copy_box", 4, {128, 8, 4, 4}, 0},
    {"count_runs", 1, {8}, 0},
};

struct launch {
    struct kernel *kernel;
    unsigned blocks, threads, shared, cluster;
    unsigned char parameters[MOST][128];
    int priority; /* Of a kernel in a graph. */
};

/* A module is its text, with a variable behind it. */
static uint32_t *counted(char *module) { return (uint32_t *)(module + strlen(module) / 4 * 4 + 4); }

static uint64_t word(const struct launch *l, int i) {
    uint64_t value = 0;
    memcpy(&value, l->parameters[i], l->kernel->sizes[i] == 4 ? 4 : 8);
    return value;
}

/* Where memory was allocated, for records. */
static struct { uint64_t address; size_t bytes; int live; } allocated[256];
static int allocations;
static size_t used;

static int forget_memory(void) {
    for (int i = 0; i < allocations; i++) allocated[i].live = 0;
    used = 0;
    return OK;
}

/* An address as the number of its allocation, the bytes from its start, and the first
 * bytes that are there. */
static void record_address(FILE *to, uint64_t address) {
    for (int i = 0; i < allocations && i < 256; i++) {
        uint64_t offset = address - allocated[i].address;
        if (address < allocated[i].address || offset >= allocated[i].bytes) continue;
        fprintf(to, " #%d+%llu", i, (unsigned long long)offset);
        for (uint64_t b = 0; b < 8 && offset + b < allocated[i].bytes; b++)
            fprintf(to, "%s%02x", b ? "" : " ", ((unsigned char *)address)[b]);
        return;
    }
}

/* Tensor maps for kernels that are recorded: 8 bytes of an address, and these words. */
struct recorded_map {
    uint64_t base;
    uint32_t swizzle, mark, type, rank, interleave, l2, fill;
    uint32_t box[5], steps[5];
    uint32_t strides[4], dims[5];
};
enum { MAP_MARK = 0x70616d };

static void record(const struct launch *l) {
    FILE *to = fopen(getenv("STAND_IN_RECORD"), "a");
    if (!to) broken("the record can't be written");
    fprintf(to, "launch %s blocks %u threads %u shared %u cluster %u\n", l->kernel->name, l->blocks,
            l->threads, l->shared, l->cluster);
    for (int i = 0; i < l->kernel->parameters; i++) {
        const unsigned char *bytes = l->parameters[i];
        struct recorded_map map;
        memcpy(&map, bytes, sizeof map);
        fprintf(to, "%d", i);
        if (l->kernel->sizes[i] == 128 && map.mark == MAP_MARK) {
            fprintf(to, " map type %u interleave %u swizzle %u l2 %u fill %u", map.type, map.interleave,
                    map.swizzle, map.l2, map.fill);
            for (unsigned d = 0; d < map.rank; d++) fprintf(to, "%s%u", d ? "," : " dims ", map.dims[d]);
            for (unsigned d = 0; d + 1 < map.rank; d++)
                fprintf(to, "%s%u", d ? "," : " strides ", map.strides[d]);
            for (unsigned d = 0; d < map.rank; d++) fprintf(to, "%s%u", d ? "," : " box ", map.box[d]);
            for (unsigned d = 0; d < map.rank; d++) fprintf(to, "%s%u", d ? "," : " steps ", map.steps[d]);
            record_address(to, map.base);
        } else {
            fprintf(to, " bytes ");
            for (int b = l->kernel->sizes[i]; b-- > 0;) fprintf(to, "%02x", bytes[b]);
            if (l->kernel->sizes[i] == 8) record_address(to, word(l, i));
        }
        fprintf(to, "\n");
    }
    fclose(to);
}

/* Runs a launch; the seconds that it takes. */
static double run(const struct launch *l) {
    const char *name = l->kernel->name;
    if (l->kernel->recorded) {
        record(l);
        return 0;
    }
    uint32_t *data = (uint32_t *)word(l, 0);
    if (!strcmp(name, "add_one")) {
        for (unsigned i = 0; i < word(l, 1) && i < l->blocks * l->threads; i++) data[i]++;
    } else if (!strcmp(name, "store_far")) {
        fault = ILLEGAL_ADDRESS;
    } else if (!strcmp(name, "load_odd")) {
        fault = MISALIGNED;
    } else if (!strcmp(name, "linger")) {
        return word(l, 0) * 1e-9;
    } else if (!strcmp(name, "last_shared_word")) {
        data[0] = 42;
        data[1] = l->shared;
    } else if (!strcmp(name, "count_runs")) {
        data[0] = ++*counted(l->kernel->module);
    } else if (!strcmp(name, "copy_box")) {
        /* The stand-in's tensor map is the address and the swizzle. */
        uint32_t swizzle;
        memcpy(&swizzle, l->parameters[0] + 8, 4);
        uint16_t *from = (uint16_t *)word(l, 0), *to = (uint16_t *)word(l, 1);
        for (int at = 0; at < 512; at++) {
            int row = at / 64, chunk = at % 64 / 8, half = at % 8;
            chunk = swizzle ? chunk ^ row : chunk;
            to[at] = from[(word(l, 3) + row) * 128 + word(l, 2) + chunk * 8 + half];
        }
    } else {
        for (unsigned i = 0; i < l->blocks; i++) data[i] = l->cluster * 100 + i % l->cluster;
    }
    return 0;
}

/* Streams: work waits in a queue until somebody asks. */

struct graph {
    int count;
    struct launch launches[16];
    int of_nodes;          /* Made of nodes, not captured. */
    struct stream *stream; /* Where it was launched. */
    void *setter;          /* The thread that set its parameters and has not launched it yet. */
};

struct operation {
    enum { LAUNCH, WRITE, RECORD, WAIT } what;
    struct launch launch;
    volatile uint32_t *address;
    uint32_t value;
    struct event *event;
};

struct stream;

struct event {
    double at; /* 0 until it happened */
    struct stream *stream;
};

struct stream {
    struct operation queue[512];
    int first, last;
    double busy_until;
    struct graph *capture;
    int priority;
    unsigned long long id;
};

static int work(struct stream *s) {
    while (!fault) {
        if (now < s->busy_until) return NOT_READY;
        if (s->first == s->last) {
            s->first = s->last = 0;
            return OK;
        }
        struct operation *op = &s->queue[s->first++];
        switch (op->what) {
        case LAUNCH: s->busy_until = now + run(&op->launch); break;
        case WRITE: *op->address = op->value; break;
        case RECORD: op->event->at = now; break;
        case WAIT:
            if (!op->event->stream) break;
            if (!op->event->at) work(op->event->stream);
            if (op->event->at || fault) break;
            s->first--;
            s->busy_until = op->event->stream->busy_until;
            return NOT_READY;
        }
    }
    return fault;
}

static int finish(struct stream *s) {
    int result;
    while ((result = work(s)) == NOT_READY) now = s->busy_until;
    return result;
}

static struct operation *put(struct stream *s) {
    if (s->last == 512) broken("a queue is full");
    return &s->queue[s->last++];
}

/* What is not given back runs out. */
enum { MOST_STREAMS = 128, MOST_EVENTS = 256, MOST_GRAPHS = 64 };
static int streams, events, graphs;
static struct stream *made[MOST_STREAMS];

int cuStreamCreateWithPriority(struct stream **s, unsigned flags, int priority) {
    ALIVE;
    if (streams++ == MOST_STREAMS) return OUT_OF_MEMORY;
    static unsigned long long ids;
    *s = calloc(1, sizeof **s);
    (*s)->priority = priority;
    (*s)->id = ++ids;
    for (int i = 0; i < MOST_STREAMS; i++) {
        if (made[i]) continue;
        made[i] = *s;
        break;
    }
    return OK;
}

int cuStreamDestroy_v2(struct stream *s) {
    GIVEN_BACK;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (made[i] == s) made[i] = NULL;
    streams--;
    free(s);
    return OK;
}
int cuStreamGetId(struct stream *s, unsigned long long *id) { *id = s ? s->id : 0; return OK; }
int cuStreamGetPriority(struct stream *s, int *priority) { *priority = s ? s->priority : 0; return OK; }
/* A stream of priority -13 is one of a green context. */
int cuStreamGetGreenCtx(struct stream *s, void **context) {
    *context = s && s->priority == -13 ? s : NULL;
    return OK;
}
int cuStreamSynchronize(struct stream *s) { ALIVE; return answer(finish(s)); }
int cuStreamQuery(struct stream *s) {
    ALIVE;
    now += 1e-6;
    return answer(work(s));
}
int cuStreamIsCapturing(struct stream *s, int *status) {
    ALIVE;
    *status = s && s->capture;
    return OK;
}
static struct operation *put(struct stream *s);
int cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags) {
    ALIVE;
    struct operation *op = put(s);
    op->what = WAIT;
    op->event = e;
    return OK;
}

int cuStreamWriteValue32_v2(struct stream *s, uint64_t address, uint32_t value, unsigned flags) {
    ALIVE;
    if (s->capture) broken("a counter is written inside a graph");
    struct operation *op = put(s);
    op->what = WRITE;
    op->address = (volatile uint32_t *)address;
    op->value = value;
    return OK;
}

int cuCtxSynchronize(void) {
    ALIVE;
    for (int i = 0; i < MOST_STREAMS; i++)
        if (made[i]) finish(made[i]);
    return answer(fault);
}

int cuEventCreate(struct event **e, unsigned flags) {
    ALIVE;
    if (events++ == MOST_EVENTS) return OUT_OF_MEMORY;
    *e = calloc(1, sizeof **e);
    return OK;
}

/* A stream may still refer to it, so it is kept. */
int cuEventDestroy_v2(struct event *e) { GIVEN_BACK; events--; return OK; }

int cuEventRecord(struct event *e, struct stream *s) {
    ALIVE;
    struct operation *op = put(s);
    op->what = RECORD;
    op->event = e;
    e->at = 0;
    e->stream = s;
    work(s);
    return OK;
}

int cuEventSynchronize(struct event *e) {
    while (!fault && e->at == 0)
        if (work(e->stream) == NOT_READY) now = e->stream->busy_until;
    return answer(fault);
}

int cuEventQuery(struct event *e) {
    ALIVE;
    if (e->stream) work(e->stream);
    return answer(fault ? fault : e->stream && !e->at ? NOT_READY : OK);
}

int cuEventElapsedTime_v2(float *milliseconds, struct event *from, struct event *to) {
    ALIVE;
    if (from->at == 0 || to->at == 0) return NOT_READY;
    *milliseconds = (to->at - from->at) * 1e3;
    return OK;
}

/* Launches and graphs */

struct attribute { unsigned id; char pad[4]; unsigned value[16]; };
struct config {
    unsigned grid[3], block[3], shared;
    struct stream *stream;
    struct attribute *attributes;
    unsigned count;
};

int cuLaunchKernelEx(const struct config *c, struct kernel *k, void **parameters, void **extra) {
    ALIVE;
    struct launch l = {k, c->grid[0], c->block[0], c->shared, k->cluster ? k->cluster : 1};
    unsigned asked = 0;
    for (unsigned i = 0; i < c->count; i++) {
        switch (c->attributes[i].id) {
        case 2: asked |= 1; break;                     /* all blocks at once */
        case 4:                                        /* a cluster */
            if (k->cluster) broken("a required cluster is said a second time");
            l.cluster = c->attributes[i].value[0];
            asked |= 2;
            break;
        case 6: asked |= 4; break;                     /* before the end of the one before */
        case 8: asked |= 8; break;                     /* a priority */
        default: broken("an attribute that nobody asked for");
        }
    }
    if (l.threads == 13) return l.blocks == 1 ? 950 + asked : l.blocks;
    if ((asked & 1) && l.blocks > 132 * (2048 / l.threads)) return 720;
    if (l.shared > 48 << 10 && l.shared > k->opted_in) return INVALID_VALUE;
    if (l.cluster > 8 && !k->non_portable) return 912;
    for (int i = 0; i < k->parameters; i++) memcpy(l.parameters[i], parameters[i], k->sizes[i]);
    if (c->stream->capture) {
        c->stream->capture->launches[c->stream->capture->count++] = l;
    } else {
        struct operation *op = put(c->stream);
        op->what = LAUNCH;
        op->launch = l;
    }
    return OK;
}

int cuLaunchKernel(struct kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, struct stream *s, void **parameters, void **extra) {
    struct config c = {{gx, gy, gz}, {bx, by, bz}, shared, s, NULL, 0};
    return cuLaunchKernelEx(&c, k, parameters, extra);
}

/* Captures that forbid other threads what is unsafe, and what this thread says of that. */
static int captures;
static _Thread_local unsigned capture_mode;

int cuThreadExchangeStreamCaptureMode(unsigned *mode) {
    unsigned before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return OK;
}

int cuStreamBeginCapture_v2(struct stream *s, unsigned mode) {
    ALIVE;
    captures++;
    s->capture = calloc(1, sizeof *s->capture);
    return OK;
}

int cuStreamEndCapture(struct stream *s, struct graph **g) {
    ALIVE;
    captures--;
    *g = s->capture;
    s->capture = NULL;
    return OK;
}

int cuGraphGetNodes(struct graph *g, void **nodes, size_t *count) { *count = g->count; return OK; }

int cuGraphInstantiateWithFlags(struct graph **exec, struct graph *g, uint64_t flags) {
    if (captures && capture_mode != 2) broken("a graph is made while another is captured, which ends the capture");
    if (graphs++ == MOST_GRAPHS) return OUT_OF_MEMORY;
    *exec = malloc(sizeof **exec);
    **exec = *g;
    return OK;
}

int cuGraphDestroy(struct graph *g) { free(g); return OK; }
int cuGraphExecDestroy(struct graph *g) { GIVEN_BACK; graphs--; free(g); return OK; }

/* A kernel in a graph: the node is its launch, which the executable form has at the same place. */
struct node { struct kernel *kernel; unsigned grid[3], block[3], shared; void **parameters, **extra, *kern, *context; };

static struct launch of_node(const struct node *n) {
    struct launch l = {n->kernel, n->grid[0], n->block[0], n->shared, n->kernel->cluster ? n->kernel->cluster : 1};
    for (int i = 0; i < l.kernel->parameters; i++) memcpy(l.parameters[i], n->parameters[i], l.kernel->sizes[i]);
    return l;
}

int cuGraphCreate(struct graph **g, unsigned flags) {
    *g = calloc(1, sizeof **g);
    (*g)->of_nodes = 1;
    return OK;
}

int cuGraphAddKernelNode_v2(struct launch **made, struct graph *g, void *before, size_t count, const struct node *n) {
    ALIVE;
    *made = &g->launches[g->count++];
    **made = of_node(n);
    return OK;
}

int cuGraphKernelNodeSetAttribute(struct launch *node, unsigned id, const int *value) {
    if (id != 8) broken("an attribute of a node that nobody asked for");
    node->priority = *value;
    return OK;
}

int cuGraphExecKernelNodeSetParams_v2(struct graph *exec, struct launch *node, const struct node *n) {
    ALIVE;
    if (exec->setter) broken("two threads set parameters of one graph");
    exec->setter = &current;
    int priority = exec->launches[0].priority;
    exec->launches[0] = of_node(n);
    exec->launches[0].priority = priority;
    sched_yield(); /* Whoever else has the graph comes now. */
    return OK;
}

int cuGraphLaunch(struct graph *g, struct stream *s) {
    ALIVE;
    if (g->of_nodes) {
        if (s->capture) broken("a graph is launched into a stream that is captured");
        if (g->stream && g->stream != s) broken("launches of one graph in two streams wait for each other");
        if (g->setter && g->setter != &current) broken("a thread launches with another's parameters");
        if (g->launches[0].priority != s->priority) broken("a graph's kernel has not its stream's priority");
        g->stream = s;
        g->setter = NULL;
    }
    for (int i = 0; i < g->count; i++) {
        struct operation *op = put(s);
        op->what = LAUNCH;
        op->launch = g->launches[i];
    }
    return OK;
}

/* Memory */

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ALIVE;
    *free_bytes = (140ull << 30) - used;
    *total = 141ull << 30;
    return OK;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    ALIVE;
    if (bytes == 0) return INVALID_VALUE;
    if (bytes > 100ull << 30) return OUT_OF_MEMORY;
    *address = (uint64_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (allocations < 256) {
        allocated[allocations].address = *address;
        allocated[allocations].live = 1;
        allocated[allocations++].bytes = bytes;
        used += bytes;
    }
    return OK;
}

int cuMemFree_v2(uint64_t address) {
    GIVEN_BACK;
    for (int i = allocations; i-- > 0;) {
        if (!allocated[i].live || allocated[i].address != address) continue;
        allocated[i].live = 0;
        used -= allocated[i].bytes;
        free((void *)address);
        return OK;
    }
    if (allocations < 256) broken("memory is freed that nobody has");
    free((void *)address);
    return OK;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct stream *s) {
    ALIVE;
    memcpy((void *)to, from, bytes);
    return OK;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct stream *s) {
    ALIVE;
    memcpy(to, (void *)from, bytes);
    return OK;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes) {
    ALIVE;
    memcpy(to, (void *)from, bytes);
    return OK;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct stream *s) {
    ALIVE;
    memcpy((void *)to, (void *)from, bytes);
    return OK;
}

int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, struct stream *s) {
    ALIVE;
    memset((void *)to, byte, bytes);
    return OK;
}

int cuMemHostAlloc(void **p, size_t bytes, unsigned flags) { *p = malloc(bytes); return OK; }
int cuMemFreeHost(void *p) { GIVEN_BACK; free(p); return OK; }

int cuMemHostGetDevicePointer_v2(uint64_t *address, void *p, unsigned flags) {
    *address = (uint64_t)p;
    return OK;
}

/* Modules */

/* Of the one array that a text of the tests has. */
static size_t variable_bytes(const char *image) {
    const char *large = strstr(image, ".global .b8 large[");
    return large ? atol(strchr(large, '[') + 1) : 0;
}

int cuModuleLoadDataEx(void **module, const char *image, unsigned count, unsigned *options,
                       void **values) {
    ALIVE;
    char *error = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == 3) strcpy(values[i], "ptxas info    : Used 16 registers");
        if (options[i] == 5) error = values[i];
    }
    if (strstr(image, ".version 99")) return UNSUPPORTED_PTX;
    if (strstr(image, ".u33")) {
        strcpy(error, "ptxas application ptx input, line 31; error   : Unknown modifier '.u33'");
        return INVALID_PTX;
    }
    if (strstr(image, "sm_121a") || strstr(image, "sm_80a")) return NO_BINARY;
    *module = calloc(1, strlen(image) + 8);
    strcpy(*module, image);
    used += variable_bytes(image);
    return OK;
}

/* A kernel that the stand-in does not know, as its text says it. */
static struct kernel *described(const char *image, const char *name) {
    char entry[256];
    snprintf(entry, sizeof entry, ".entry %s(", name);
    const char *at = strstr(image, entry);
    if (!at || !getenv("STAND_IN_RECORD")) return NULL;
    struct kernel *k = calloc(1, sizeof *k);
    k->name = strdup(name);
    k->recorded = 1;
    const char *end = strchr(at, ')'), *cluster = strstr(at, ".reqnctapercluster ");
    const char *body = strchr(at, '{');
    if (cluster && cluster < body) {
        int wide = 1, high = 1;
        sscanf(cluster, ".reqnctapercluster %d, %d", &wide, &high);
        k->cluster = wide * high;
        k->high = high;
    }
    for (at = strstr(at, ".param "); at && at < end; at = strstr(at + 1, ".param ")) {
        const char *next = strpbrk(at, ",)"), *array = memchr(at, '[', next - at);
        const char *type = at + strlen(".param ");
        while (strncmp(type, ".b", 2) && strncmp(type, ".u", 2) && strncmp(type, ".s", 2) &&
               strncmp(type, ".f", 2))
            type = strchr(type, ' ') + 1;
        int bytes = atoi(type + 2) / 8;
        if (k->parameters == MOST) broken("a kernel has too many parameters");
        k->sizes[k->parameters++] = array ? bytes * atoi(array + 1) : bytes;
    }
    return k;
}

int cuModuleUnload(void *module) {
    GIVEN_BACK;
    used -= variable_bytes(module);
    free(module);
    return OK;
}

int cuModuleGetFunction(struct kernel **k, void *module, const char *name) {
    ALIVE;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        if (!strcmp(kernels[i].name, name)) {
            *k = &kernels[i];
            (*k)->module = module;
            return OK;
        }
    }
    *k = described(module, name);
    if (*k) (*k)->module = module;
    return *k ? OK : NOT_FOUND;
}

/* What tools ask, which know a launch by its function alone. A module has one variable, `kept`. */

static uint32_t kept = 5;

int cuFuncGetName(const char **name, struct kernel *k) { *name = k->name; return OK; }
int cuFuncGetModule(void **module, struct kernel *k) { *module = k->module; return OK; }
int cuKernelGetName(const char **name, void *kernel) { return 400; }
int cuCtxGetDevice(int *device) { ALIVE; *device = DEVICE; return OK; }

int cuModuleGetGlobal_v2(uint64_t *address, size_t *bytes, void *module, const char *name) {
    ALIVE;
    if (strcmp(name, "kept")) return NOT_FOUND;
    *address = (uint64_t)&kept;
    *bytes = sizeof kept;
    return OK;
}

int cuPointerGetAttribute(void *to, int attribute, uint64_t address) {
    for (int i = 0; i < allocations && i < 256; i++) {
        if (!allocated[i].live || address - allocated[i].address >= allocated[i].bytes) continue;
        switch (attribute) {
        case 2: *(unsigned *)to = 2; break;                    /* of the device */
        case 11: *(uint64_t *)to = allocated[i].address; break;
        case 12: *(size_t *)to = allocated[i].bytes; break;
        default: return INVALID_VALUE;
        }
        return OK;
    }
    return INVALID_VALUE;
}

int cuFuncGetAttribute(int *value, int attribute, struct kernel *k) {
    ALIVE;
    switch (attribute) {
    case 0: *value = 1024; break;                              /* threads a block */
    case 4: *value = 16; break;                                /* registers */
    case 11: *value = k->cluster / (k->high ? k->high : 1); break; /* required cluster */
    case 12: *value = k->high ? k->high : k->cluster ? 1 : 0; break;
    case 13: *value = k->cluster ? 1 : 0; break;
    default: *value = 0;
    }
    return OK;
}

int cuFuncSetAttribute(struct kernel *k, int attribute, int value) {
    ALIVE;
    switch (attribute) {
    case 8: k->opted_in = value; break;
    case 14: k->non_portable = value; break;
    default: broken("an attribute of a kernel that nobody asked for");
    }
    return OK;
}

int cuFuncGetParamInfo(struct kernel *k, size_t index, size_t *offset, size_t *size) {
    /* The text says how many there are; a sanitizer reports the question. */
    if ((int)index >= k->parameters) broken("a parameter is asked for that is not there");
    *offset = 0;
    *size = k->sizes[index];
    return OK;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct kernel *k, int threads,
                                                size_t shared) {
    *blocks = 2048 / threads;
    return OK;
}

int cuOccupancyMaxActiveClusters(int *clusters, struct kernel *k, const struct config *c) {
    *clusters = c->count ? 132 / c->attributes[0].value[0] : -1;
    return OK;
}

int cuTensorMapEncodeTiled(char *map, unsigned type, unsigned rank, void *base,
                           const uint64_t *dims, const uint64_t *strides, const unsigned *box,
                           const unsigned *steps, unsigned interleave, unsigned swizzle,
                           unsigned l2, unsigned fill) {
    if ((uintptr_t)map % 64) broken("a tensor map is not aligned to 64 bytes");
    if (getenv("STAND_IN_RECORD")) {
        struct recorded_map r = {(uint64_t)base, swizzle, MAP_MARK, type, rank, interleave, l2, fill};
        for (unsigned d = 0; d < rank; d++) {
            r.dims[d] = dims[d];
            r.box[d] = box[d];
            r.steps[d] = steps[d];
            if (d + 1 < rank) r.strides[d] = strides[d];
        }
        memset(map, 0, 128);
        memcpy(map, &r, sizeof r);
        return OK;
    }
    if (type != 6 || rank != 2 || dims[0] != 128 || dims[1] != 64 || strides[0] != 256 ||
        box[0] != 64 || box[1] != 8 || steps[0] != 1 || steps[1] != 1)
        broken("a tensor map says something else than was meant");
    memset(map, 0, 128);
    memcpy(map, &base, 8);
    memcpy(map + 8, &swizzle, 4);
    return OK;
}

int cuTensorMapReplaceAddress(char *map, void *base) {
    if ((uintptr_t)map % 64) broken("a tensor map is not aligned to 64 bytes");
    if ((uintptr_t)base % 16) return INVALID_VALUE;
    memcpy(map, &base, 8);
    return OK;
}

/* Functions by their names, as the runtime asks for them. */

int cuGetProcAddress_v2(const char *name, void **to, int version, uint64_t flags, int *status) {
    static const struct { const char *name; void *at; } all[] = {
        {"cuModuleLoadDataEx", cuModuleLoadDataEx},
        {"cuLaunchKernel", cuLaunchKernel},
        {"cuLaunchKernelEx", cuLaunchKernelEx},
        {"cuTensorMapEncodeTiled", cuTensorMapEncodeTiled},
        {"cuTensorMapReplaceAddress", cuTensorMapReplaceAddress},
        {"cuGetProcAddress", cuGetProcAddress_v2},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name)) continue;
        *to = all[i].at;
        return OK;
    }
    return NOT_FOUND;
}
