/*
 * A libcuda.so.1 that needs no NVIDIA driver: by default the eight H100 of
 * test/nvml, all of which have peer access to each other. For the file with
 * other answers see test/standin/lib/answers.c. The words of this library are:
 *
 *     return cuInit 802             return value; also of any other function
 *     version 12080                 version of CUDA
 *     gpus 7                        number of GPUs
 *     gpu 3 name NVIDIA H200
 *     gpu 3 uuid GPU-fa4e0003-0000-0000-0000-000000000000
 *     peer 0 1 0                    GPU 0 has no access to GPU 1
 *
 * The types agree with NVIDIA's cuda.h.
 */
typedef int CUresult;
typedef int CUdevice;
typedef struct {
    unsigned char bytes[16];
} CUuuid;

#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_INVALID_DEVICE 101

static int begun;

static CUdevice gpus(void) { return (CUdevice)number(WHOLE, "gpus", 8); }

/* Like ENTER, for functions that must be called after cuInit. */
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
    else if (code == 777) /* a code of a future version */
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
            abort(); /* an error in the test */
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
