/*
 * A libcuda.so.1 that needs no NVIDIA driver: by default the eight H100 of
 * test/nvml. For the file with other answers see test/standin/lib/answers.c. The
 * words of this library are:
 *
 *     return cuInit 802             return value; also of any other function
 *     gpus 7                        number of GPUs
 *
 * The types agree with NVIDIA's cuda.h.
 */
typedef int CUresult;

#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_NOT_INITIALIZED 3

static int begun;

CUresult cuInit(unsigned int flags) {
    ENTER(WHOLE);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    begun = 1;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
    if (code == 802)
        *name = "CUDA_ERROR_SYSTEM_NOT_READY";
    else if (code == 214)
        *name = "CUDA_ERROR_ECC_UNCORRECTABLE";
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(WHOLE);
    if (!begun)
        return CUDA_ERROR_NOT_INITIALIZED;
    *count = (int)number(WHOLE, "gpus", 8);
    return CUDA_SUCCESS;
}
