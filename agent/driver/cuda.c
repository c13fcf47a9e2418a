/*
 * libcuda.so.1 of the fake driver: the checkpoint state machine of each process, and enough devices to be asked for.
 *
 * The agent's cuda-bindings load it; they need only cuGetProcAddress_v2 and what is looked up through it. The state of a
 * process lies in the shared file, so that a process that comes back after a restart of the agent is still checkpointed,
 * and so that the daemon gives a checkpointed process's memory back.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef int result;
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_PERMITTED = 800,
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct view reading, writing;
static int initialized;

static result of_errno(int why) {
    if (why == 0) return CUDA_SUCCESS;
    if (why == ENOENT || why == EPROTO) return CUDA_ERROR_NO_DEVICE;
    return why == EACCES || why == EPERM || why == EROFS ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Locks and maps for reading; on success the caller unlocks. */
static result enter(void) {
    pthread_mutex_lock(&guard);
    result r = initialized ? of_errno(view_refresh(&reading, state_path(), 0)) : CUDA_ERROR_NOT_INITIALIZED;
    if (r != CUDA_SUCCESS) pthread_mutex_unlock(&guard);
    return r;
}

static result leave(result r) {
    pthread_mutex_unlock(&guard);
    return r;
}

EXPORT result cuInit(unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&guard);
    result r = of_errno(view_refresh(&reading, state_path(), 0));
    initialized = r == CUDA_SUCCESS;
    return leave(r);
}

EXPORT result cuDriverGetVersion(int *version) {
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT result cuDeviceGetCount(int *count) {
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    *count = (int)reading.state->gpu_count;
    return leave(CUDA_SUCCESS);
}

static result known_device(int device) {
    return device >= 0 && device < (int)reading.state->gpu_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT result cuDeviceGet(int *device, int ordinal) {
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    r = known_device(ordinal);
    if (r == CUDA_SUCCESS) *device = ordinal;
    return leave(r);
}

EXPORT result cuDeviceGetName(char *name, int length, int device) {
    if (name == NULL || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    r = known_device(device);
    if (r == CUDA_SUCCESS) snprintf(name, (size_t)length, "%s", reading.state->gpus[device].product);
    return leave(r);
}

EXPORT result cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    r = known_device(device);
    if (r == CUDA_SUCCESS) {
        const char *text = reading.state->gpus[device].uuid + 4; /* after "GPU-" */
        for (int i = 0; i < 16 && *text != '\0'; i++, text += 2) {
            unsigned byte = 0;
            if (*text == '-') text++;
            sscanf(text, "%2x", &byte);
            uuid[i] = (unsigned char)byte;
        }
    }
    return leave(r);
}

EXPORT result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    r = known_device(device);
    if (r == CUDA_SUCCESS) *bytes = reading.state->gpus[device].memory_total;
    return leave(r);
}

static struct checkpoint *find(struct state *state, uint32_t pid, uint64_t start) {
    for (int i = 0; i < MAX_CHECKPOINTS; i++)
        if (state->checkpoints[i].pid == pid && state->checkpoints[i].start_time == start) return &state->checkpoints[i];
    return NULL;
}

/* A place for a process: its own, a free one, or that of a process that is gone. */
static struct checkpoint *place(struct state *state, uint32_t pid, uint64_t start) {
    struct checkpoint *slot = find(state, pid, start);
    for (int i = 0; slot == NULL && i < MAX_CHECKPOINTS; i++) {
        struct checkpoint *candidate = &state->checkpoints[i];
        if (candidate->pid != 0 && process_start_time(candidate->pid) == candidate->start_time) continue;
        *candidate = (struct checkpoint){.pid = 0, .state = CHECKPOINT_RUNNING, .start_time = start};
        candidate->pid = pid;
        slot = candidate;
    }
    return slot;
}

static result move(int pid, uint32_t from, uint32_t to) {
    uint64_t start = pid > 0 ? process_start_time((uint32_t)pid) : 0;
    if (start == 0) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    r = of_errno(view_refresh(&writing, state_path(), 1));
    if (r == CUDA_SUCCESS) r = of_errno(state_write_begin(&writing));
    if (r != CUDA_SUCCESS) return leave(r);
    struct checkpoint *slot = place(writing.state, (uint32_t)pid, start);
    if (slot == NULL) r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (slot->state != from) r = CUDA_ERROR_ILLEGAL_STATE;
    else slot->state = to;
    state_write_end(&writing);
    return leave(r);
}

EXPORT result cuCheckpointProcessGetState(int pid, int *state) {
    uint64_t start = pid > 0 ? process_start_time((uint32_t)pid) : 0;
    if (state == NULL || start == 0) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    struct checkpoint *slot = find(reading.state, (uint32_t)pid, start);
    *state = slot == NULL ? CHECKPOINT_RUNNING : (int)slot->state;
    return leave(CUDA_SUCCESS);
}

EXPORT result cuCheckpointProcessLock(int pid, void *arguments) {
    (void)arguments;
    return move(pid, CHECKPOINT_RUNNING, CHECKPOINT_LOCKED);
}

EXPORT result cuCheckpointProcessCheckpoint(int pid, void *arguments) {
    (void)arguments;
    return move(pid, CHECKPOINT_LOCKED, CHECKPOINT_CHECKPOINTED);
}

EXPORT result cuCheckpointProcessRestore(int pid, void *arguments) {
    (void)arguments;
    return move(pid, CHECKPOINT_CHECKPOINTED, CHECKPOINT_LOCKED);
}

EXPORT result cuCheckpointProcessUnlock(int pid, void *arguments) {
    (void)arguments;
    return move(pid, CHECKPOINT_LOCKED, CHECKPOINT_RUNNING);
}

static const struct {
    result code;
    const char *name;
    const char *text;
} ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
};

static result describe(result code, const char **out, int name) {
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (unsigned i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) *out = name ? ERRORS[i].name : ERRORS[i].text;
    return *out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT result cuGetErrorName(result code, const char **out) { return describe(code, out, 1); }
EXPORT result cuGetErrorString(result code, const char **out) { return describe(code, out, 0); }

EXPORT result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

#define ENTRY(name) {#name, (void *)name}
static const struct {
    const char *name;
    void *function;
} SYMBOLS[] = {
    ENTRY(cuInit),
    ENTRY(cuDriverGetVersion),
    ENTRY(cuDeviceGetCount),
    ENTRY(cuDeviceGet),
    ENTRY(cuDeviceGetName),
    {"cuDeviceGetUuid", (void *)cuDeviceGetUuid_v2},
    {"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2},
    ENTRY(cuCheckpointProcessGetState),
    ENTRY(cuCheckpointProcessLock),
    ENTRY(cuCheckpointProcessCheckpoint),
    ENTRY(cuCheckpointProcessRestore),
    ENTRY(cuCheckpointProcessUnlock),
    ENTRY(cuGetErrorName),
    ENTRY(cuGetErrorString),
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
    {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2},
};

EXPORT result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    if (symbol == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
    *function = NULL;
    for (unsigned i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (strcmp(SYMBOLS[i].name, symbol) == 0) *function = SYMBOLS[i].function;
    if (status != NULL) *status = *function != NULL ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
