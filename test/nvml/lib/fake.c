/*
 * A libnvidia-ml.so.1 that needs no NVIDIA driver: by default a healthy node of
 * eight H100. For the file with other answers see test/standin/lib/answers.c.
 * Further words of this library are the arguments in this file, and:
 *
 *     init 9                        return value of nvmlInit
 *     gpu 3 handle 15               return value of the query for its handle
 *     gpu * attach 4                seconds that a process must wait for it at
 *                                   first, for one GPU after the other
 *     event 3 xid 79                delivered once to processes that wait
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <nvml.h>
#include <pthread.h>
#include <time.h>

#define INSTANCES 7

/* The types that nvml.h leaves undefined. */
struct nvmlDevice_st {
    int gpu, instance;
};
struct nvmlEventSet_st {
    unsigned int seen; /* lines that were delivered, or existed before */
    unsigned long long types[GPUS];
};

/* The first entry of each GPU is the GPU itself, the others are its instances. */
static struct nvmlDevice_st devices[GPUS][1 + INSTANCES];

static nvmlReturn_t text(int gpu, const char *word, const char *otherwise, char *to, unsigned int length) {
    char value[LINE];
    if (!told(gpu, word, value))
        snprintf(value, sizeof value, "%s", otherwise);
    if (strlen(value) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, value);
    return NVML_SUCCESS;
}

/* Defines a query about a GPU that is answered by the value of one word. */
#define ONE(function, type, word, otherwise)                                                                           \
    nvmlReturn_t function(nvmlDevice_t device, type *value) {                                                          \
        ENTER(device.handle->gpu);                                                                                            \
        *value = (type)number(device.handle->gpu, word, otherwise);                                                           \
        return NVML_SUCCESS;                                                                                           \
    }

#define TEXT(function, word, otherwise)                                                                                \
    nvmlReturn_t function(nvmlDevice_t device, char *value, unsigned int length) {                                     \
        ENTER(device.handle->gpu);                                                                                            \
        return text(device.handle->gpu, word, otherwise, value, length);                                                      \
    }

/* The library and the node */

nvmlReturn_t nvmlInit_v2(void) {
    ENTER(WHOLE);
    return number(WHOLE, "init", 0);
}

nvmlReturn_t nvmlShutdown(void) {
    ENTER(WHOLE);
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) { return result ? "an error of the fake" : "Success"; }

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    ENTER(WHOLE);
    return text(WHOLE, "driver", "570.86.15", version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(WHOLE);
    *version = (int)number(WHOLE, "cuda", 12080);
    return NVML_SUCCESS;
}

static unsigned int gpus(void) { return (unsigned int)number(WHOLE, "gpus", 8); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    ENTER(WHOLE);
    *count = gpus();
    return NVML_SUCCESS;
}

/* Without persistence mode, the NVIDIA driver attaches a GPU for the first process that uses it. */
static void attach(unsigned int index) {
    static pthread_mutex_t driver = PTHREAD_MUTEX_INITIALIZER;
    static int attached[GPUS];
    pthread_mutex_lock(&driver);
    if (!attached[index])
        sleep((unsigned)number((int)index, "attach", 0));
    attached[index] = 1;
    pthread_mutex_unlock(&driver);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    ENTER((int)index);
    if (index >= gpus() || index >= GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    attach(index);
    device->handle = devices[index];
    device->handle->gpu = (int)index;
    return number((int)index, "handle", 0);
}

/* Identity of a GPU */

TEXT(nvmlDeviceGetName, "name", "NVIDIA H100 80GB HBM3")
TEXT(nvmlDeviceGetVbiosVersion, "vbios", "96.00.89.00.01")

/* Supported only if the GPU's memory is a NUMA node, as on Grace. */
nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
    ENTER(device.handle->gpu);
    *node = (unsigned)number(device.handle->gpu, "numa", ~0u);
    return *node == ~0u ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    ENTER(device.handle->gpu);
    return text(device.handle->gpu, "gsp", "570.86.15", version, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    char otherwise[64];
    ENTER(device.handle->gpu);
    snprintf(otherwise, sizeof otherwise, "%s-%08x-0000-0000-0000-%012x", device.handle->instance ? "MIG" : "GPU",
             0xfa4e0000u + (unsigned)device.handle->gpu, (unsigned)device.handle->instance);
    return text(device.handle->gpu, device.handle->instance ? "mig_uuid" : "uuid", otherwise, uuid, length);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    static const unsigned int buses[] = {0x1b, 0x43, 0x52, 0x61, 0x9d, 0xc3, 0xd1, 0xdf};
    ENTER(device.handle->gpu);
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)number(device.handle->gpu, "bus", buses[device.handle->gpu % 8]);
    pci->domain = (unsigned)device.handle->gpu / 8;
    pci->pciDeviceId = 0x233010de;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:00.0", pci->domain, pci->bus & 0xff);
    return NVML_SUCCESS;
}

/* Configuration */

ONE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, "persistence", 1)
ONE(nvmlDeviceGetComputeMode, nvmlComputeMode_t, "compute_mode", 0)

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
    ENTER(device.handle->gpu);
    *current = (unsigned)number(device.handle->gpu, "mig", 0);
    *pending = (unsigned)number(device.handle->gpu, "mig_pending", *current);
    return NVML_SUCCESS;
}

ONE(nvmlDeviceGetMaxMigDeviceCount, unsigned int, "mig_most", INSTANCES)

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance) {
    ENTER(device.handle->gpu);
    if (index >= number(device.handle->gpu, "mig_instances", 0) || index >= INSTANCES)
        return NVML_ERROR_NOT_FOUND;
    instance->handle = &devices[device.handle->gpu][1 + index];
    instance->handle->gpu = device.handle->gpu;
    instance->handle->instance = 1 + (int)index;
    return NVML_SUCCESS;
}

/* Load */

static unsigned long long memory(nvmlDevice_t device, unsigned long long *used) {
    *used = number(device.handle->gpu, "memory_used", 4 << 20);
    return number(device.handle->gpu, "memory_total", 85520809984ULL);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info) {
    ENTER(device.handle->gpu);
    info->total = memory(device, &info->used);
    info->free = info->total - info->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info) {
    ENTER(device.handle->gpu);
    if (info->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    info->total = memory(device, &info->used);
    info->reserved = number(device.handle->gpu, "memory_reserved", 550 << 20);
    info->free = info->total - info->used - info->reserved;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    unsigned int room = *count;
    ENTER(device.handle->gpu);
    *count = !!number(device.handle->gpu, "pid", 0);
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*count) {
        memset(infos, 0, sizeof *infos);
        infos->pid = (unsigned)number(device.handle->gpu, "pid", 0);
        infos->usedGpuMemory = number(device.handle->gpu, "memory_used", 4 << 20);
        infos->gpuInstanceId = infos->computeInstanceId = ~0u;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) {
    ENTER(device.handle->gpu);
    (void)infos;
    *count = 0;
    return NVML_SUCCESS;
}

/* Health */

/* Returns the word of a field and its default, or NULL if the GPU does not have the field. */
static const char *field(unsigned int id, unsigned int *otherwise) {
    *otherwise = 0;
    switch (id) {
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
        return "recovery";
    case NVML_FI_DEV_C2C_LINK_COUNT:
        return "c2c";
    case NVML_FI_DEV_C2C_LINK_GET_STATUS:
        *otherwise = 1;
        return "c2c_active";
    default:
        return NULL;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER(device.handle->gpu);
    for (int i = 0; i < count; i++) {
        unsigned int otherwise;
        const char *word = field(values[i].fieldId, &otherwise);
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (!word)
            continue;
        values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
        values[i].value.uiVal = (unsigned)number(device.handle->gpu, word, otherwise);
        values[i].nvmlReturn = values[i].fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
                                   ? (nvmlReturn_t)number(device.handle->gpu, "recovery_return", 0)
                                   : NVML_SUCCESS;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                       unsigned int *pending, unsigned int *failed) {
    ENTER(device.handle->gpu);
    *corrected = (unsigned)number(device.handle->gpu, "remap_corrected", 0);
    *uncorrected = (unsigned)number(device.handle->gpu, "remap_uncorrected", 0);
    *pending = (unsigned)number(device.handle->gpu, "remap_pending", 0);
    *failed = (unsigned)number(device.handle->gpu, "remap_failed", 0);
    return NVML_SUCCESS;
}

/* Since Ampere, GPUs remap rows instead of retiring pages. */
nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause, unsigned int *count,
                                       unsigned long long *addresses) {
    unsigned int room = *count;
    const char *word = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? "retired_double" : "retired_single";
    ENTER(device.handle->gpu);
    if ((*count = (unsigned)number(device.handle->gpu, word, ~0u)) == ~0u)
        return NVML_ERROR_NOT_SUPPORTED;
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < *count; i++)
        addresses[i] = 4096ULL * i;
    return NVML_SUCCESS;
}

ONE(nvmlDeviceGetRetiredPagesPendingStatus, nvmlEnableState_t, "retired_pending", 0)

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t span,
                                             nvmlMemoryLocation_t location, unsigned long long *count) {
    ENTER(device.handle->gpu);
    if (span != NVML_VOLATILE_ECC || type != NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        return NVML_ERROR_NOT_SUPPORTED;
    if (location != NVML_MEMORY_LOCATION_DRAM && location != NVML_MEMORY_LOCATION_SRAM)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = number(device.handle->gpu, location == NVML_MEMORY_LOCATION_DRAM ? "dram_uncorrected" : "sram_uncorrected", 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type, nvmlEccCounterType_t span,
                                         unsigned long long *count) {
    ENTER(device.handle->gpu);
    if (span != NVML_VOLATILE_ECC || type != NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = number(device.handle->gpu, "dram_uncorrected", 0) + number(device.handle->gpu, "sram_uncorrected", 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_t *status) {
    ENTER(device.handle->gpu);
    if (status->version != nvmlEccSramErrorStatus_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memset(status, 0, sizeof *status);
    status->version = nvmlEccSramErrorStatus_v1;
    status->volatileUncParity = number(device.handle->gpu, "sram_uncorrected", 0);
    status->bThresholdExceeded = (unsigned)number(device.handle->gpu, "sram_threshold", 0);
    return NVML_SUCCESS;
}

/* Connections */

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info) {
    int gpu = device.handle->gpu;
    ENTER(gpu);
    if (info->version != nvmlGpuFabricInfo_v2 && (info->version != nvmlGpuFabricInfo_v3 || number(gpu, "fabric_form", 3) < 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memset(info->clusterUuid, (int)number(gpu, "fabric_cluster", 0), sizeof info->clusterUuid);
    info->status = (nvmlReturn_t)number(gpu, "fabric_status", 0);
    info->cliqueId = (unsigned)number(gpu, "fabric_clique", 0);
    info->state = (nvmlGpuFabricState_t)number(gpu, "fabric_state", NVML_GPU_FABRIC_STATE_COMPLETED);
    info->healthMask = (unsigned)number(gpu, "fabric_mask", 0x1aa); /* all healthy */
    if (info->version == nvmlGpuFabricInfo_v3)
        info->healthSummary = (unsigned char)number(gpu, "fabric_summary", NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    nvmlGpuFabricInfoV_t newer = {.version = nvmlGpuFabricInfo_v2};
    ENTER(device.handle->gpu);
    nvmlDeviceGetGpuFabricInfoV(device, &newer);
    memcpy(info->clusterUuid, newer.clusterUuid, sizeof info->clusterUuid);
    info->status = newer.status;
    info->cliqueId = newer.cliqueId;
    info->state = newer.state;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    ENTER(device.handle->gpu);
    if (link >= number(device.handle->gpu, "links", 18))
        return NVML_ERROR_NOT_SUPPORTED;
    *active = link == number(device.handle->gpu, "link_down", ~0u) ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t what,
                                    nvmlGpuP2PStatus_t *status) {
    ENTER(a.handle->gpu);
    (void)what;
    *status = (nvmlGpuP2PStatus_t)(number(a.handle->gpu, "p2p", 0) ?: number(b.handle->gpu, "p2p", 0));
    return NVML_SUCCESS;
}

/* Events */

ONE(nvmlDeviceGetSupportedEventTypes, unsigned long long, "events",
    nvmlEventTypeXidCriticalError | nvmlEventTypeGpuRecoveryAction)

/* Reads the event of that number in the file. Returns 0 if there are fewer. */
static int event(unsigned int wanted, nvmlEventData_t *data) {
    char line[LINE], kind[LINE], *rest;
    unsigned int seen = 0, gpu;
    int found = 0;
    FILE *file = answers();
    while (file && !found && fgets(line, sizeof line, file)) {
        if (!(rest = after(line, "event")) || seen++ != wanted)
            continue;
        memset(data, 0, sizeof *data);
        data->gpuInstanceId = data->computeInstanceId = ~0u;
        if (sscanf(rest, "%u %255s %llu", &gpu, kind, &data->eventData) < 2 || gpu >= GPUS)
            abort(); /* an error in the test */
        data->device.handle = devices[gpu];
        data->eventType = strcmp(kind, "xid") ? nvmlEventTypeGpuRecoveryAction : nvmlEventTypeXidCriticalError;
        found = 1;
    }
    if (file)
        fclose(file);
    return found;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    nvmlEventData_t before;
    ENTER(WHOLE);
    if (!(set->handle = calloc(1, sizeof *set->handle)))
        return NVML_ERROR_MEMORY;
    while (event(set->handle->seen, &before))
        set->handle->seen++;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ENTER(device.handle->gpu);
    set.handle->types[device.handle->gpu] |= types;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout) {
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    ENTER(WHOLE);
    for (unsigned int waited = 0;; waited += 10) {
        while (event(set.handle->seen, data)) {
            set.handle->seen++;
            if (set.handle->types[data->device.handle->gpu] & data->eventType)
                return NVML_SUCCESS;
        }
        if (waited >= timeout)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER(WHOLE);
    free(set.handle);
    return NVML_SUCCESS;
}
