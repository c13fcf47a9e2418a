/*
 * libnvidia-ml.so.1 of the fake driver: the functions that the agent calls through pynvml.
 *
 * The library reads the shared state and never writes it. nvml_unsupported.c has the functions that mean nothing for a
 * fake GPU. Without the state file every call returns DRIVER_NOT_LOADED. Calls for a GPU with `health=lost` return
 * GPU_IS_LOST.
 */
#define _GNU_SOURCE
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM, CLOCK_VIDEO, CLOCK_COUNT };
enum { THROTTLE_IDLE = 0x1, THROTTLE_ALL = 0x1ff };
enum { IDLE_CELSIUS = 34, BUSY_CELSIUS = 34, IDLE_MILLIWATT = 72000, LIMIT_MILLIWATT = 700000, SHUTDOWN_CELSIUS = 95 };

static const unsigned CLOCK_MAX[CLOCK_COUNT] = {1980, 1980, 2619, 1545};
static const unsigned CLOCK_IDLE[CLOCK_COUNT] = {345, 345, 1593, 765};

struct nvmlDevice_st HANDLES[MAX_GPUS];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct view view;
static int init_count;

nvmlReturn_t nvml_enter(void) {
    pthread_mutex_lock(&guard);
    nvmlReturn_t r = NVML_ERROR_UNINITIALIZED;
    if (init_count > 0) r = view_refresh(&view, state_path(), 0) == 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
    if (r != NVML_SUCCESS) pthread_mutex_unlock(&guard);
    return r;
}

nvmlReturn_t nvml_leave(nvmlReturn_t r) {
    pthread_mutex_unlock(&guard);
    return r;
}

nvmlReturn_t nvml_read_gpu(nvmlDevice_t handle, struct gpu *gpu) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)HANDLES;
    if (handle == NULL || offset >= sizeof HANDLES) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    unsigned index = (unsigned)(offset / sizeof *HANDLES);
    if (index >= view.state->gpu_count) return nvml_leave(NVML_ERROR_NOT_FOUND); /* the new state has fewer GPUs */
    state_read_gpu(view.state, index, gpu);
    cuda_processes_count(view.state, index, &gpu->measurements);
    return nvml_leave(gpu->faults.lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
}

static nvmlReturn_t put_text(char *out, unsigned length, const char *text) {
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

/* ---- library and system ---- */
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&guard);
    nvmlReturn_t r = view_refresh(&view, state_path(), 0) == 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
    if (r == NVML_SUCCESS) init_count++;
    return nvml_leave(r);
}

EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&guard);
    if (init_count <= 0) return nvml_leave(NVML_ERROR_UNINITIALIZED);
    if (--init_count == 0) view_close(&view);
    return nvml_leave(NVML_SUCCESS);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t r) {
    switch (r) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_OPERATING_SYSTEM: return "The operating system refused";
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t system_text(char *out, unsigned length, const char *text) {
    nvmlReturn_t r = nvml_enter();
    return r != NVML_SUCCESS ? r : nvml_leave(put_text(out, length, text));
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) {
    return system_text(out, length, DRIVER_VERSION);
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length) {
    return system_text(out, length, "13." DRIVER_VERSION);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    *version = CUDA_VERSION;
    return nvml_leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char path[32], text[4096];
    if (name == NULL || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return NVML_ERROR_NOT_FOUND;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0'; /* NUL separates the arguments, so the string ends after the program's name */
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}

/* ---- device handles ---- */
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    *count = view.state->gpu_count;
    return nvml_leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle) {
    if (handle == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    if (index >= view.state->gpu_count) return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
    *handle = &HANDLES[index];
    return nvml_leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

static void bus_id(const struct gpu *gpu, char out[32]) { snprintf(out, 32, "00000000:%02X:00.0", gpu->pci_bus); }

static nvmlReturn_t find_handle(const char *text, int by_bus_id, nvmlDevice_t *handle) {
    if (text == NULL || handle == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    for (unsigned i = 0; i < view.state->gpu_count; i++) {
        char bus[32];
        bus_id(&view.state->gpus[i], bus);
        /* a caller may give a bus ID with the short domain, 0000:0A:00.0 */
        int same = by_bus_id ? strcasecmp(text, bus) == 0 || strcasecmp(text, bus + 4) == 0
                             : strcmp(text, view.state->gpus[i].uuid) == 0;
        if (!same) continue;
        *handle = &HANDLES[i];
        return nvml_leave(NVML_SUCCESS);
    }
    return nvml_leave(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle) {
    return find_handle(uuid, 0, handle);
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *handle) {
    return find_handle(bus, 1, handle);
}

/* ---- properties ---- */
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index) {
    READ(handle, index);
    *index = (unsigned)(handle - HANDLES);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned *minor) {
    return nvmlDeviceGetIndex(handle, minor);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *out, unsigned length) {
    READ(handle, out);
    return put_text(out, length, gpu.uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *out, unsigned length) {
    READ(handle, out);
    return put_text(out, length, gpu.product);
}

struct nvmlPciInfo_st {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, struct nvmlPciInfo_st *out) {
    READ(handle, out);
    *out = (struct nvmlPciInfo_st){.bus = gpu.pci_bus, .device_id = 0x233010DE, .subsystem_id = 0x16C110DE};
    bus_id(&gpu, out->bus_id);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%s", out->bus_id + 4);
    return NVML_SUCCESS;
}

static nvmlReturn_t constant(nvmlDevice_t handle, unsigned *out, unsigned value) {
    READ(handle, out);
    *out = value;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, unsigned *mode) {
    return constant(handle, mode, 1);
}
EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t handle, unsigned *mode) { return constant(handle, mode, 0); }

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor) {
    READ(handle, major);
    if (minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending) {
    READ(handle, current);
    (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- readings ---- */
static uint64_t memory_used(const struct gpu *gpu) {
    uint64_t used = gpu->measurements.memory_used + gpu->faults.memory;
    return used < gpu->memory_total ? used : gpu->memory_total;
}

static unsigned utilization(const struct gpu *gpu) {
    return gpu->faults.set & FAULT_UTILIZATION ? gpu->faults.utilization : gpu->measurements.utilization;
}

struct nvmlMemory_st {
    unsigned long long total, free, used;
};
struct nvmlMemory_v2_st {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, struct nvmlMemory_st *out) {
    READ(handle, out);
    out->total = gpu.memory_total;
    out->used = memory_used(&gpu);
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, struct nvmlMemory_v2_st *out) {
    READ(handle, out);
    if (out->version != (sizeof *out | 2u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->total = gpu.memory_total;
    out->reserved = 0;
    out->used = memory_used(&gpu);
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

struct nvmlUtilization_st {
    unsigned gpu, memory;
};

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, struct nvmlUtilization_st *out) {
    READ(handle, out);
    out->gpu = utilization(&gpu);
    out->memory = out->gpu / 2;
    return NVML_SUCCESS;
}

static unsigned temperature(const struct gpu *gpu) {
    if (gpu->faults.set & FAULT_TEMPERATURE) return gpu->faults.temperature;
    return IDLE_CELSIUS + utilization(gpu) * BUSY_CELSIUS / 100;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, int sensor, unsigned *out) {
    READ(handle, out);
    if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
    *out = temperature(&gpu);
    return NVML_SUCCESS;
}

struct nvmlTemperature_v1_st {
    unsigned version;
    int sensor;
    int celsius;
};

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, struct nvmlTemperature_v1_st *out) {
    READ(handle, out);
    if (out->version != (sizeof *out | 1u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
    out->celsius = (int)temperature(&gpu);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, int kind, unsigned *out) {
    if (kind < 0 || kind > 3) return NVML_ERROR_NOT_SUPPORTED;
    return constant(handle, out, SHUTDOWN_CELSIUS - 5u * (unsigned)kind);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned kind, unsigned *out) {
    READ(handle, out);
    if (kind >= CLOCK_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    *out = utilization(&gpu) > 0 ? CLOCK_MAX[kind] : CLOCK_IDLE[kind];
    if ((gpu.faults.set & FAULT_SM_CLOCK) && (kind == CLOCK_SM || kind == CLOCK_GRAPHICS)) *out = gpu.faults.sm_clock;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, unsigned kind, unsigned *out) {
    if (kind >= CLOCK_COUNT) return NVML_ERROR_INVALID_ARGUMENT;
    return constant(handle, out, CLOCK_MAX[kind]);
}

EXPORT nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t handle, unsigned kind, unsigned which, unsigned *out) {
    if (which == 0) return nvmlDeviceGetClockInfo(handle, kind, out);
    return which == 3 ? nvmlDeviceGetMaxClockInfo(handle, kind, out) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, unsigned long long *out) {
    READ(handle, out);
    if (gpu.faults.set & FAULT_THROTTLE) *out = gpu.faults.throttle;
    else *out = utilization(&gpu) > 0 ? 0 : THROTTLE_IDLE;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, unsigned long long *out) {
    return nvmlDeviceGetCurrentClocksEventReasons(handle, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(nvmlDevice_t handle, unsigned long long *out) {
    READ(handle, out);
    *out = THROTTLE_ALL;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(nvmlDevice_t handle, unsigned long long *out) {
    return nvmlDeviceGetSupportedClocksEventReasons(handle, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t handle, unsigned *out) {
    READ(handle, out);
    *out = utilization(&gpu) > 0 ? 0 : 8;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned *out) {
    READ(handle, out);
    *out = IDLE_MILLIWATT + utilization(&gpu) * ((LIMIT_MILLIWATT - IDLE_MILLIWATT) / 100);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t handle, unsigned *out) {
    return constant(handle, out, LIMIT_MILLIWATT);
}

EXPORT nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t handle, unsigned *out) {
    return constant(handle, out, LIMIT_MILLIWATT);
}

/* ---- processes ---- */
struct nvmlProcessInfo_st {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static void put_process(struct nvmlProcessInfo_st *list, unsigned index, unsigned capacity, uint32_t pid,
                        uint64_t memory) {
    if (list != NULL && index < capacity) list[index] = (struct nvmlProcessInfo_st){pid, memory, ~0u, ~0u};
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                            struct nvmlProcessInfo_st *list) {
    READ(handle, count);
    unsigned capacity = *count, written = 0;
    const struct gpu_measurements *measurements = &gpu.measurements;
    for (; written < measurements->process_count && written < MAX_PROCESSES; written++) {
        const struct gpu_process *process = &measurements->processes[written];
        put_process(list, written, capacity, process->pid, process->memory);
    }
    if (gpu.faults.memory > 0 && gpu.faults.memory_pid != 0)
        put_process(list, written++, capacity, gpu.faults.memory_pid, gpu.faults.memory);
    *count = written;
    return written > 0 && (list == NULL || written > capacity) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned *count,
                                                            struct nvmlProcessInfo_st *list) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, list);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned *count,
                                                             struct nvmlProcessInfo_st *list) {
    (void)list;
    return constant(handle, count, 0);
}
