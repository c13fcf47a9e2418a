/* NVML's error counters, and its events: an xid, and memory errors that ECC could not mend. A waiting call polls. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <time.h>

enum { EVENT_XID = 0x8, EVENT_DOUBLE_BIT = 0x2 };
enum { EVENT_POLL_MS = 20 };

/* ---- its errors ---- */
EXPORT result nvmlDeviceGetEccMode(device handle, unsigned *current, unsigned *pending) {
    READ(handle, current);
    if (pending == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetTotalEccErrors(device handle, int kind, int counter, unsigned long long *out) {
    READ(handle, out);
    if (kind < 0 || kind > 1 || counter < 0 || counter > 1) return NVML_ERROR_INVALID_ARGUMENT;
    *out = kind == 1 ? gpu.faults.ecc_uncorrected : gpu.faults.ecc_corrected;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetRetiredPages(device handle, int cause, unsigned *count, unsigned long long *addresses) {
    READ(handle, count);
    (void)cause;
    (void)addresses;
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetRetiredPagesPendingStatus(device handle, unsigned *out) {
    READ(handle, out);
    *out = gpu.faults.retired_pending;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetRemappedRows(device handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                        unsigned *failed) {
    READ(handle, corrected);
    if (uncorrected == NULL || pending == NULL || failed == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    *corrected = 0;
    *uncorrected = (unsigned)gpu.faults.ecc_uncorrected;
    *pending = gpu.faults.retired_pending;
    *failed = gpu.faults.remap_failed;
    return NVML_SUCCESS;
}

/* ---- events ---- */
struct event {
    device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct event_set {
    unsigned long long wanted[MAX_GPUS];
    uint32_t xid_seen[MAX_GPUS];
    uint64_t ecc_seen[MAX_GPUS];
};

EXPORT result nvmlEventSetCreate(struct event_set **out) {
    if (out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    result r = nvml_enter();
    if (r != NVML_SUCCESS) return r;
    *out = calloc(1, sizeof **out);
    return nvml_leave(*out == NULL ? NVML_ERROR_MEMORY : NVML_SUCCESS);
}

EXPORT result nvmlEventSetFree(struct event_set *set) {
    free(set);
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceGetSupportedEventTypes(device handle, unsigned long long *out) {
    READ(handle, out);
    *out = EVENT_XID | EVENT_DOUBLE_BIT;
    return NVML_SUCCESS;
}

EXPORT result nvmlDeviceRegisterEvents(device handle, unsigned long long types, struct event_set *set) {
    READ(handle, set);
    if ((types & ~(unsigned long long)(EVENT_XID | EVENT_DOUBLE_BIT)) != 0) return NVML_ERROR_NOT_SUPPORTED;
    unsigned index = (unsigned)(handle - HANDLES);
    set->wanted[index] |= types;
    set->xid_seen[index] = gpu.faults.xid_count;
    set->ecc_seen[index] = gpu.faults.ecc_uncorrected;
    return NVML_SUCCESS;
}

static int next_event(struct event_set *set, struct event *out) {
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        struct gpu gpu;
        if (set->wanted[i] == 0) continue;
        result r = nvml_read_gpu(&HANDLES[i], &gpu);
        if (r != NVML_SUCCESS && r != NVML_ERROR_GPU_IS_LOST) return r; /* a lost GPU still tells its xid, as a real one */
        *out = (struct event){.device = &HANDLES[i], .gpu_instance = ~0u, .compute_instance = ~0u};
        if ((set->wanted[i] & EVENT_XID) && gpu.faults.xid_count != set->xid_seen[i]) {
            set->xid_seen[i] = gpu.faults.xid_count;
            out->type = EVENT_XID;
            out->data = gpu.faults.xid;
            return NVML_SUCCESS;
        }
        if ((set->wanted[i] & EVENT_DOUBLE_BIT) && gpu.faults.ecc_uncorrected != set->ecc_seen[i]) {
            int more = gpu.faults.ecc_uncorrected > set->ecc_seen[i];
            set->ecc_seen[i] = gpu.faults.ecc_uncorrected;
            out->type = EVENT_DOUBLE_BIT;
            if (more) return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_TIMEOUT;
}

EXPORT result nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned timeout_ms) {
    if (set == NULL || out == NULL) return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned waited = 0;; waited += EVENT_POLL_MS) {
        result r = next_event(set, out);
        if (r != NVML_ERROR_TIMEOUT || waited >= timeout_ms) return r;
        struct timespec pause = {.tv_nsec = EVENT_POLL_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
}

EXPORT result nvmlEventSetWait(struct event_set *set, struct event *out, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, out, timeout_ms);
}
