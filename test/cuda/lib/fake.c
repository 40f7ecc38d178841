/*
 * A libcuda.so.1 without a driver: the eight H100 of test/nvml, each of which
 * reaches all others, but for what it is told. How that is done is in
 * test/standin/lib/answers.c; besides what is there it is told
 *
 *     return cuInit 802             and what any other function returns
 *     version 12080                 of CUDA
 *     gpus 7                        how many there are
 *     gpu 3 name NVIDIA H200
 *     gpu 3 uuid GPU-fa4e0003-0000-0000-0000-000000000000
 *     peer 0 1 0                    GPU 0 does not reach GPU 1
 *     gpu 3 free 1000000            bytes of its memory
 *     gpu 3 slow 4                  all that it does takes 4 times as long
 *     gpu 3 wrong 1                 that many elements of each product are wrong
 *     gpu 3 weak 5 4                copies between it and GPU 5 take 4 times as long
 *
 * Work takes no time: each stream has a clock of its own, which goes on by what
 * the work would have taken (copies to a GPU 25 GB/s, from it 24, to another
 * 100, products 2 TFLOP/s), and which its events tell. Of a product a few
 * elements are computed, from the matrices that were copied, and compared with
 * what they should be; the rest count as right.
 *
 * The types are those of NVIDIA's cuda.h.
 */
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_OUT_OF_MEMORY 2
#define CUDA_ERROR_INVALID_DEVICE 101
#define CUDA_ERROR_INVALID_IMAGE 200
#define CUDA_ERROR_INVALID_CONTEXT 201
#define CUDA_ERROR_PEER_ACCESS_UNSUPPORTED 217
#define CUDA_ERROR_NOT_FOUND 500

static int begun;

static CUdevice gpus(void) { return (CUdevice)number(WHOLE, "gpus", 8); }

/* As ENTER, for what must come after cuInit. */
#define BEGUN(gpu)                                                                                                     \
    ENTER(gpu);                                                                                                        \
    if (!begun)                                                                                                        \
        return CUDA_ERROR_NOT_INITIALIZED;                                                                             \
    if ((gpu) != WHOLE && (gpu) >= gpus())                                                                             \
    return CUDA_ERROR_INVALID_DEVICE

CUresult cuInit(unsigned int flags) {
    ENTER(WHOLE);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    begun = 1;
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER(WHOLE);
    *version = (int)number(WHOLE, "version", 12080);
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    if (code == 802)
        *name = "CUDA_ERROR_SYSTEM_NOT_READY";
    else if (code == 777) /* one that nobody knows yet */
        *name = "CUDA_ERROR_OF_TOMORROW";
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    BEGUN(WHOLE);
    *count = gpus();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    BEGUN(ordinal);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    char value[LINE] = "NVIDIA H100 80GB HBM3";
    BEGUN(device);
    told(device, "name", value);
    snprintf(name, (size_t)length, "%s", value);
    return CUDA_SUCCESS;
}

static CUresult uuid_of(CUuuid *uuid, CUdevice device) {
    char value[LINE], *digits = value + strlen("GPU-");
    snprintf(value, sizeof value, "GPU-%08x-0000-0000-0000-000000000000", 0xfa4e0000u + (unsigned)device);
    told(device, "uuid", value);
    for (int i = 0; i < 16; i++, digits += 2) {
        digits += *digits == '-';
        if (sscanf(digits, "%2hhx", &uuid->bytes[i]) != 1)
            abort(); /* a test that is wrong */
    }
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    BEGUN(device);
    return uuid_of(uuid, device);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    BEGUN(device);
    return uuid_of(uuid, device);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    char words[LINE];
    BEGUN(device);
    snprintf(words, sizeof words, "peer %d %d", device, peer);
    *can = (int)number(WHOLE, words, device != peer);
    return CUDA_SUCCESS;
}

/*
 * The work.
 */

/* A device with its one context; the one of a thread is current there. */
typedef struct context {
    CUdevice device;
    int held;
    size_t taken; /* bytes of its memory */
} *CUcontext;

typedef struct stream {
    CUcontext on;
    double clock; /* ms */
} *CUstream;

typedef struct event {
    double at; /* ms of the stream's clock; the stream is done when it is asked */
} *CUevent;

typedef struct block {
    CUcontext on;
    size_t size;
    const void *filled; /* by a copy from there */
    struct block *next;
    char bytes[];
} block;

typedef uint64_t CUdeviceptr;
typedef struct module {
    const char *source;
} *CUmodule;
typedef const char *CUfunction;

static struct context contexts[GPUS];
static __thread CUcontext current;
static block *blocks;
static volatile int lock; /* of blocks */

static CUdevice here(void) { return current ? current->device : WHOLE; }

/* As ENTER, for what needs a context. */
#define WORK                                                                                                           \
    ENTER(here());                                                                                                     \
    if (!current)                                                                                                      \
    return CUDA_ERROR_INVALID_CONTEXT

static void hold(void) {
    while (__sync_lock_test_and_set(&lock, 1))
        usleep(10);
}

static void let(void) { __sync_lock_release(&lock); }

/* The block that all those bytes are in; NULL where there is none. */
static block *block_of(CUdeviceptr at, size_t size) {
    block *b;
    hold();
    for (b = blocks; b; b = b->next)
        if (at >= (CUdeviceptr)b->bytes && at + size <= (CUdeviceptr)b->bytes + b->size)
            break;
    let();
    return b;
}

static double slowly(CUdevice device, double ms) { return ms * (double)number(device, "slow", 1); }

static double copying(size_t size, double gigabytes) { return (double)size / gigabytes / 1e6; }

CUresult cuDeviceGetPCIBusId(char *bus, int length, CUdevice device) {
    BEGUN(device);
    snprintf(bus, (size_t)length, "0000:%02X:00.0", 0x10 + 0x10 * device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    BEGUN(device);
    *context = &contexts[device];
    (*context)->device = device;
    (*context)->held++;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    BEGUN(device);
    if (--contexts[device].held == 0 && contexts[device].taken)
        fprintf(stderr, "GPU %d: %zu bytes were not given back\n", device, contexts[device].taken);
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER(context->device);
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
    int can;
    WORK;
    (void)flags;
    if (cuDeviceCanAccessPeer(&can, here(), peer->device) || !can)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
    WORK;
    *left = number(here(), "free", 79ull << 30);
    *total = 80ull << 30;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size) {
    block *b;
    WORK;
    if (current->taken + size > number(here(), "free", 79ull << 30))
        return CUDA_ERROR_OUT_OF_MEMORY;
    b = malloc(sizeof *b + size);
    *b = (block){.on = current, .size = size};
    current->taken += size;
    hold();
    b->next = blocks;
    blocks = b;
    let();
    *at = (CUdeviceptr)b->bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr at) {
    block **b, *freed;
    WORK;
    hold();
    for (b = &blocks; *b && (CUdeviceptr)(*b)->bytes != at; b = &(*b)->next)
        ;
    if ((freed = *b))
        *b = freed->next;
    let();
    if (!freed)
        return CUDA_ERROR_INVALID_VALUE;
    current->taken -= freed->size;
    free(freed);
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **at, size_t size, unsigned int flags) {
    WORK;
    (void)flags;
    *at = malloc(size);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *at) {
    WORK;
    free(at);
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags) {
    WORK;
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    (*stream)->on = current;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    WORK;
    free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    WORK;
    return stream->on == current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
    WORK;
    (void)flags;
    *event = calloc(1, sizeof **event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    WORK;
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    WORK;
    event->at = stream->clock;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event) {
    WORK;
    (void)event;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
    WORK;
    *ms = (float)(to->at - from->at);
    return CUDA_SUCCESS;
}

/* The bytes are copied the first time only: they are the same each time. */
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    block *b = block_of(to, size);
    WORK;
    if (!b || b->on != current || stream->on != current)
        return CUDA_ERROR_INVALID_VALUE;
    if (b->filled != from)
        memcpy((void *)to, from, size);
    b->filled = from;
    stream->clock += slowly(here(), copying(size, 25));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    block *b = block_of(from, size);
    WORK;
    if (!b || b->on != current || b->filled != to)
        return CUDA_ERROR_INVALID_VALUE;
    stream->clock += slowly(here(), copying(size, 24));
    return CUDA_SUCCESS;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext mine, size_t size, CUstream stream) {
    block *target = block_of(to, size), *source = block_of(from, size);
    char words[LINE];
    unsigned long long weak = 1;
    WORK;
    if (!target || target->on != there || !source || source->on != mine || stream->on != current || there == mine)
        return CUDA_ERROR_INVALID_VALUE;
    if (mentioned("weak")) {
        snprintf(words, sizeof words, "weak %d", there->device);
        weak = number(mine->device, words, 1);
        snprintf(words, sizeof words, "weak %d", mine->device);
        weak *= number(there->device, words, 1);
    }
    stream->clock += slowly(mine->device, slowly(there->device, (double)weak * copying(size, 100)));
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8_v2(CUdeviceptr at, unsigned char value, size_t size) {
    WORK;
    if (!block_of(at, size))
        return CUDA_ERROR_INVALID_VALUE;
    memset((void *)at, value, size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    WORK;
    if (!block_of(from, size))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, (const void *)from, size);
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    WORK;
    if (!strstr(image, ".version 6.0\n.target sm_50\n"))
        return CUDA_ERROR_INVALID_IMAGE;
    *module = malloc(sizeof **module);
    (*module)->source = image;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    WORK;
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    char entry[LINE];
    WORK;
    snprintf(entry, sizeof entry, ".visible .entry %s(", name);
    if (!(*function = strstr(module->source, entry)))
        return CUDA_ERROR_NOT_FOUND;
    *function += strlen(".visible .entry ");
    return CUDA_SUCCESS;
}

/* The elements that are looked at: a few all over the matrix. */
static uint32_t sample(int i, uint32_t n) { return (uint32_t)(i * 977 + i * i * 31) % n; }

#define SAMPLES 7

/* What product.ptx says of its kernel of that name. */
static CUresult multiply(CUstream stream, void **given) {
    CUdeviceptr a = *(CUdeviceptr *)given[0], b = *(CUdeviceptr *)given[1], c = *(CUdeviceptr *)given[2];
    uint32_t n = *(uint32_t *)given[3];
    size_t size = (size_t)n * n * sizeof(float);
    const float *left = (const float *)a, *right = (const float *)b;
    if (!block_of(a, size) || !block_of(b, size) || !block_of(c, size))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < SAMPLES; i++) {
        uint32_t row = sample(i, n), column = sample(2 * i + 1, n);
        float sum = 0;
        for (uint32_t k = 0; k < n; k++)
            sum += left[(size_t)row * n + k] * right[(size_t)k * n + column];
        ((float *)c)[(size_t)row * n + column] = sum;
    }
    stream->clock += slowly(here(), 2e-9 * n * n * n / 2); /* 2 TFLOP/s */
    return CUDA_SUCCESS;
}

static CUresult count(void **given) {
    CUdeviceptr c = *(CUdeviceptr *)given[0], counter = *(CUdeviceptr *)given[1];
    uint32_t n = *(uint32_t *)given[2];
    uint64_t right = (uint64_t)n * n - number(here(), "wrong", 0);
    if (!block_of(c, (size_t)n * n * sizeof(float)) || !block_of(counter, sizeof right))
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < SAMPLES; i++) {
        uint32_t row = sample(i, n), column = sample(2 * i + 1, n), d = (11 * column - 5 * row) % 64;
        float *element = &((float *)c)[(size_t)row * n + column];
        right -= *element != (float)(n / 64 * (85344 - 32 * d * (64 - d)));
    }
    for (int i = 0; i < SAMPLES; i++)
        ((float *)c)[(size_t)sample(i, n) * n + sample(2 * i + 1, n)] = __builtin_nanf("");
    *(uint64_t *)counter += right;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int x, unsigned int y, unsigned int z, unsigned int bx, unsigned int by,
                        unsigned int bz, unsigned int shared, CUstream stream, void **given, void **extra) {
    int product = !strncmp(function, "product(", 8);
    WORK;
    if (stream->on != current || shared || extra || bx != 16 || by != 16 || bz != 1 || x != y || z != 1 ||
        x != *(uint32_t *)given[product ? 3 : 2] / 16)
        return CUDA_ERROR_INVALID_VALUE;
    return product ? multiply(stream, given) : count(given);
}
