/*
 * libnvidia-ml.so.1 of the fake driver: what Podium's agent reads through pynvml, answered from the shared state.
 *
 * It only reads. A function that is not here is FunctionNotFound in pynvml, as with an old driver. Without the state file
 * every call answers DRIVER_NOT_LOADED; a GPU that was told to be lost answers GPU_IS_LOST.
 */
#define _GNU_SOURCE
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEM, CLOCK_VIDEO, CLOCK_KINDS };
enum { THROTTLE_IDLE = 0x1, THROTTLE_ALL = 0x1ff };
enum { IDLE_CELSIUS = 34, BUSY_CELSIUS = 34, IDLE_MILLIWATT = 72000, LIMIT_MILLIWATT = 700000, SHUTDOWN_CELSIUS = 95 };

static const unsigned CLOCK_MAX[CLOCK_KINDS] = {1980, 1980, 2619, 1545};
static const unsigned CLOCK_IDLE[CLOCK_KINDS] = {345, 345, 1593, 765};

struct device HANDLES[MAX_GPUS];
static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct view view;
static int users;

/* Maps the state (it may be a new file since the last call); on success the caller must unlock `guard`. */
result nvml_enter(void) {
    pthread_mutex_lock(&guard);
    result r = users <= 0                                      ? NVML_ERROR_UNINITIALIZED
               : view_refresh(&view, state_path(), 0) != 0 ? NVML_ERROR_DRIVER_NOT_LOADED
                                                               : NVML_SUCCESS;
    if (r != NVML_SUCCESS) pthread_mutex_unlock(&guard);
    return r;
}

result nvml_leave(result r) {
    pthread_mutex_unlock(&guard);
    return r;
}

/* Copies one GPU out of the state. */
result nvml_read_gpu(device handle, struct gpu *gpu) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)HANDLES;
    if (handle == NULL || offset >= sizeof HANDLES) return NVML_ERROR_INVALID_ARGUMENT;
    result r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    unsigned index = (unsigned)(offset / sizeof *HANDLES);
    if (index >= view.state->gpu_count) return nvml_leave(NVML_ERROR_NOT_FOUND); /* a new state with fewer GPUs */
    state_read_gpu(view.state, index, gpu);
    cuda_processes_count(view.state, index, &gpu->measured);
    return nvml_leave(gpu->faults.lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS);
}

static result put_text(char *out, unsigned length, const char *text) {
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) + 1 > length) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, text);
    return NVML_SUCCESS;
}

/* ---- library and system ---- */
EXPORT result nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&guard);
    result r = view_refresh(&view, state_path(), 0) == 0 ? NVML_SUCCESS : NVML_ERROR_DRIVER_NOT_LOADED;
    if (r == NVML_SUCCESS) users++;
    return nvml_leave(r);
}

EXPORT result nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT result nvmlInit(void) { return nvmlInitWithFlags(0); }

EXPORT result nvmlShutdown(void) {
    pthread_mutex_lock(&guard);
    if (users <= 0) return nvml_leave(NVML_ERROR_UNINITIALIZED);
    if (--users == 0) view_close(&view);
    return nvml_leave(NVML_SUCCESS);
}

EXPORT const char *nvmlErrorString(result r) {
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
    case NVML_ERROR_MEMORY: return "Insufficient Memory";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument version mismatch";
    default: return "Unknown Error";
    }
}

static result system_text(char *out, unsigned length, const char *text) {
    result r = nvml_enter();
    return r != NVML_SUCCESS ? r : nvml_leave(put_text(out, length, text));
}

EXPORT result nvmlSystemGetDriverVersion(char *out, unsigned length) { return system_text(out, length, DRIVER_VERSION); }
EXPORT result nvmlSystemGetNVMLVersion(char *out, unsigned length) { return system_text(out, length, "13." DRIVER_VERSION); }

EXPORT result nvmlSystemGetCudaDriverVersion_v2(int *version) {
    if (version == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    result r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    *version = CUDA_VERSION;
    return nvml_leave(NVML_SUCCESS);
}

EXPORT result nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

EXPORT result nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    char path[32], text[4096];
    if (name == NULL || length == 0) return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) return NVML_ERROR_NOT_FOUND;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0'; /* the arguments are separated by NUL: the text ends after the program's name */
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}

/* ---- which GPUs there are ---- */
EXPORT result nvmlDeviceGetCount_v2(unsigned *count) {
    if (count == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    result r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    *count = view.state->gpu_count;
    return nvml_leave(NVML_SUCCESS);
}

EXPORT result nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT result nvmlDeviceGetHandleByIndex_v2(unsigned index, device *handle) {
    if (handle == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    result r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    if (index >= view.state->gpu_count) return nvml_leave(NVML_ERROR_INVALID_ARGUMENT);
    *handle = &HANDLES[index];
    return nvml_leave(NVML_SUCCESS);
}

EXPORT result nvmlDeviceGetHandleByIndex(unsigned index, device *handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

static void bus_id(const struct gpu *gpu, char out[32]) { snprintf(out, 32, "00000000:%02X:00.0", gpu->pci_bus); }

static result handle_where(const char *text, int by_bus, device *handle) {
    if (text == NULL || handle == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    result r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    for (unsigned i = 0; i < view.state->gpu_count; i++) {
        char bus[32];
        bus_id(&view.state->gpus[i], bus);
        /* a bus id may also be given with the short domain, 0000:0A:00.0 */
        int same = by_bus ? strcasecmp(text, bus) == 0 || strcasecmp(text, bus + 4) == 0
                          : strcmp(text, view.state->gpus[i].uuid) == 0;
        if (!same) continue;
        *handle = &HANDLES[i];
        return nvml_leave(NVML_SUCCESS);
    }
    return nvml_leave(NVML_ERROR_NOT_FOUND);
}

EXPORT result nvmlDeviceGetHandleByUUID(const char *uuid, device *handle) { return handle_where(uuid, 0, handle); }
EXPORT result nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device *handle) { return handle_where(bus, 1, handle); }

/* ---- what a GPU is ---- */
EXPORT result nvmlDeviceGetIndex(device handle, unsigned *index) {
    READ(handle, index);
    *index = (unsigned)(handle - HANDLES);
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetMinorNumber(device handle, unsigned *minor) { return nvmlDeviceGetIndex(handle, minor); }

EXPORT result nvmlDeviceGetUUID(device handle, char *out, unsigned length) {
    READ(handle, out);
    return put_text(out, length, gpu.uuid);
}

EXPORT result nvmlDeviceGetName(device handle, char *out, unsigned length) {
    READ(handle, out);
    return put_text(out, length, gpu.product);
}

struct pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

EXPORT result nvmlDeviceGetPciInfo_v3(device handle, struct pci *out) {
    READ(handle, out);
    *out = (struct pci){.bus = gpu.pci_bus, .device_id = 0x233010DE, .subsystem_id = 0x16C110DE};
    bus_id(&gpu, out->bus_id);
    snprintf(out->bus_id_legacy, sizeof out->bus_id_legacy, "%s", out->bus_id + 4);
    return NVML_SUCCESS;
}

static result constant(device handle, unsigned *out, unsigned value) {
    READ(handle, out);
    *out = value;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetPersistenceMode(device handle, unsigned *mode) { return constant(handle, mode, 1); }
EXPORT result nvmlDeviceGetComputeMode(device handle, unsigned *mode) { return constant(handle, mode, 0); }

EXPORT result nvmlDeviceGetCudaComputeCapability(device handle, int *major, int *minor) {
    READ(handle, major);
    if (minor == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *major = 9;
    *minor = 0;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetMigMode(device handle, unsigned *current, unsigned *pending) {
    READ(handle, current);
    (void)pending;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* ---- how it does ---- */
static uint64_t memory_used(const struct gpu *gpu) {
    uint64_t used = gpu->measured.memory_used + gpu->faults.memory;
    return used < gpu->memory_total ? used : gpu->memory_total;
}

static unsigned utilization(const struct gpu *gpu) {
    return gpu->faults.set & FAULT_UTILIZATION ? gpu->faults.utilization : gpu->measured.utilization;
}

struct memory_v1 {
    unsigned long long total, free, used;
};
struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

EXPORT result nvmlDeviceGetMemoryInfo(device handle, struct memory_v1 *out) {
    READ(handle, out);
    out->total = gpu.memory_total;
    out->used = memory_used(&gpu);
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetMemoryInfo_v2(device handle, struct memory_v2 *out) {
    READ(handle, out);
    if (out->version != (sizeof *out | 2u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->total = gpu.memory_total;
    out->reserved = 0;
    out->used = memory_used(&gpu);
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

struct rates {
    unsigned gpu, memory;
};

EXPORT result nvmlDeviceGetUtilizationRates(device handle, struct rates *out) {
    READ(handle, out);
    out->gpu = utilization(&gpu);
    out->memory = out->gpu / 2;
    return NVML_SUCCESS;
}

static unsigned temperature(const struct gpu *gpu) {
    if (gpu->faults.set & FAULT_TEMPERATURE) return gpu->faults.temperature;
    return IDLE_CELSIUS + utilization(gpu) * BUSY_CELSIUS / 100;
}

EXPORT result nvmlDeviceGetTemperature(device handle, int sensor, unsigned *out) {
    READ(handle, out);
    if (sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
    *out = temperature(&gpu);
    return NVML_SUCCESS;
}

struct temperature_v1 {
    unsigned version;
    int sensor;
    int celsius;
};

EXPORT result nvmlDeviceGetTemperatureV(device handle, struct temperature_v1 *out) {
    READ(handle, out);
    if (out->version != (sizeof *out | 1u << 24)) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (out->sensor != 0) return NVML_ERROR_INVALID_ARGUMENT;
    out->celsius = (int)temperature(&gpu);
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetTemperatureThreshold(device handle, int kind, unsigned *out) {
    if (kind < 0 || kind > 3) return NVML_ERROR_NOT_SUPPORTED;
    return constant(handle, out, SHUTDOWN_CELSIUS - 5u * (unsigned)kind);
}

EXPORT result nvmlDeviceGetClockInfo(device handle, unsigned kind, unsigned *out) {
    READ(handle, out);
    if (kind >= CLOCK_KINDS) return NVML_ERROR_INVALID_ARGUMENT;
    *out = utilization(&gpu) > 0 ? CLOCK_MAX[kind] : CLOCK_IDLE[kind];
    if ((gpu.faults.set & FAULT_SM_CLOCK) && (kind == CLOCK_SM || kind == CLOCK_GRAPHICS)) *out = gpu.faults.sm_clock;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetMaxClockInfo(device handle, unsigned kind, unsigned *out) {
    if (kind >= CLOCK_KINDS) return NVML_ERROR_INVALID_ARGUMENT;
    return constant(handle, out, CLOCK_MAX[kind]);
}

EXPORT result nvmlDeviceGetClock(device handle, unsigned kind, unsigned which, unsigned *out) {
    if (which == 0) return nvmlDeviceGetClockInfo(handle, kind, out);
    return which == 3 ? nvmlDeviceGetMaxClockInfo(handle, kind, out) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT result nvmlDeviceGetCurrentClocksEventReasons(device handle, unsigned long long *out) {
    READ(handle, out);
    if (gpu.faults.set & FAULT_THROTTLE) *out = gpu.faults.throttle;
    else *out = utilization(&gpu) > 0 ? 0 : THROTTLE_IDLE;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetCurrentClocksThrottleReasons(device handle, unsigned long long *out) {
    return nvmlDeviceGetCurrentClocksEventReasons(handle, out);
}

EXPORT result nvmlDeviceGetSupportedClocksEventReasons(device handle, unsigned long long *out) {
    READ(handle, out);
    *out = THROTTLE_ALL;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetSupportedClocksThrottleReasons(device handle, unsigned long long *out) {
    return nvmlDeviceGetSupportedClocksEventReasons(handle, out);
}

EXPORT result nvmlDeviceGetPerformanceState(device handle, unsigned *out) {
    READ(handle, out);
    *out = utilization(&gpu) > 0 ? 0 : 8;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetPowerUsage(device handle, unsigned *out) {
    READ(handle, out);
    *out = IDLE_MILLIWATT + utilization(&gpu) * ((LIMIT_MILLIWATT - IDLE_MILLIWATT) / 100);
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetPowerManagementLimit(device handle, unsigned *out) {
    return constant(handle, out, LIMIT_MILLIWATT);
}

EXPORT result nvmlDeviceGetEnforcedPowerLimit(device handle, unsigned *out) {
    return constant(handle, out, LIMIT_MILLIWATT);
}

/* ---- who is on it ---- */
struct process_v2 {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

static void put_process(struct process_v2 *list, unsigned at, unsigned room, uint32_t pid, uint64_t memory) {
    if (list != NULL && at < room) list[at] = (struct process_v2){pid, memory, ~0u, ~0u};
}

EXPORT result nvmlDeviceGetComputeRunningProcesses_v3(device handle, unsigned *count, struct process_v2 *list) {
    READ(handle, count);
    unsigned room = *count, there = 0;
    for (; there < gpu.measured.process_count && there < MAX_PROCESSES; there++)
        put_process(list, there, room, gpu.measured.processes[there].pid, gpu.measured.processes[there].memory);
    if (gpu.faults.memory > 0 && gpu.faults.memory_pid != 0)
        put_process(list, there++, room, gpu.faults.memory_pid, gpu.faults.memory);
    *count = there;
    return there > 0 && (list == NULL || there > room) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetComputeRunningProcesses_v2(device handle, unsigned *count, struct process_v2 *list) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, list);
}

EXPORT result nvmlDeviceGetGraphicsRunningProcesses_v3(device handle, unsigned *count, struct process_v2 *list) {
    (void)list;
    return constant(handle, count, 0);
}
