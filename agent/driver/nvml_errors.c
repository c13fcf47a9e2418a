/* NVML's error counters, and its events: Xid errors and uncorrected ECC errors. A waiting call polls the state. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <time.h>

enum { EVENT_XID_CRITICAL_ERROR = 0x8, EVENT_DOUBLE_BIT_ECC_ERROR = 0x2 };
enum { EVENT_POLL_MS = 20 };

/* ---- error counters ---- */
EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t handle, unsigned *current, unsigned *pending) {
    READ(handle, current);
    if (pending == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, int kind, int counter, unsigned long long *out) {
    READ(handle, out);
    if (kind < 0 || kind > 1 || counter < 0 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
    *out = kind == 1 ? gpu.faults.ecc_uncorrected : gpu.faults.ecc_corrected;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t handle, int cause, unsigned *count,
                                              unsigned long long *addresses) {
    READ(handle, count);
    (void)cause;
    (void)addresses;
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t handle, unsigned *out) {
    READ(handle, out);
    *out = gpu.faults.retired_pending;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t handle, unsigned *corrected, unsigned *uncorrected,
                                              unsigned *pending, unsigned *failed) {
    READ(handle, corrected);
    if (uncorrected == NULL || pending == NULL || failed == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *corrected = 0;
    *uncorrected = (unsigned)gpu.faults.ecc_uncorrected;
    *pending = gpu.faults.retired_pending;
    *failed = gpu.faults.remap_failed;
    return NVML_SUCCESS;
}

/* ---- events ---- */
struct nvmlEventData_st {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct nvmlEventSet_st {
    unsigned long long types[MAX_GPUS];
    uint32_t xid_seen[MAX_GPUS];
    uint64_t ecc_seen[MAX_GPUS];
};

EXPORT nvmlReturn_t nvmlEventSetCreate(struct nvmlEventSet_st **out) {
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    *out = calloc(1, sizeof **out);
    return nvml_leave(*out == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlEventSetFree(struct nvmlEventSet_st *set) {
    free(set);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, unsigned long long *out) {
    READ(handle, out);
    *out = EVENT_XID_CRITICAL_ERROR | EVENT_DOUBLE_BIT_ECC_ERROR;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types,
                                             struct nvmlEventSet_st *set) {
    READ(handle, set);
    if ((types & ~(unsigned long long)(EVENT_XID_CRITICAL_ERROR | EVENT_DOUBLE_BIT_ECC_ERROR)) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned index = (unsigned)(handle - HANDLES);
    set->types[index] |= types;
    set->xid_seen[index] = gpu.faults.xid_count;
    set->ecc_seen[index] = gpu.faults.ecc_uncorrected;
    return NVML_SUCCESS;
}

static int next_event(struct nvmlEventSet_st *set, struct nvmlEventData_st *out) {
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        struct gpu gpu;
        if (set->types[i] == 0) continue;
        nvmlReturn_t r = nvml_read_gpu(&HANDLES[i], &gpu);
        if (r != NVML_SUCCESS && r != NVML_ERROR_GPU_IS_LOST) return r; /* a lost GPU still reports its Xid */
        *out = (struct nvmlEventData_st){.device = &HANDLES[i], .gpu_instance = ~0u, .compute_instance = ~0u};
        if ((set->types[i] & EVENT_XID_CRITICAL_ERROR) && gpu.faults.xid_count != set->xid_seen[i]) {
            set->xid_seen[i] = gpu.faults.xid_count;
            out->type = EVENT_XID_CRITICAL_ERROR;
            out->data = gpu.faults.xid;
            return NVML_SUCCESS;
        }
        if ((set->types[i] & EVENT_DOUBLE_BIT_ECC_ERROR) && gpu.faults.ecc_uncorrected != set->ecc_seen[i]) {
            int increased = gpu.faults.ecc_uncorrected > set->ecc_seen[i];
            set->ecc_seen[i] = gpu.faults.ecc_uncorrected;
            out->type = EVENT_DOUBLE_BIT_ECC_ERROR;
            if (increased) return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_TIMEOUT;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(struct nvmlEventSet_st *set, struct nvmlEventData_st *out,
                                        unsigned timeout_ms) {
    if (set == NULL || out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned waited = 0;; waited += EVENT_POLL_MS) {
        nvmlReturn_t r = next_event(set, out);
        if (r != NVML_ERROR_TIMEOUT || waited >= timeout_ms) return r;
        struct timespec pause = {.tv_nsec = EVENT_POLL_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait(struct nvmlEventSet_st *set, struct nvmlEventData_st *out, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}
