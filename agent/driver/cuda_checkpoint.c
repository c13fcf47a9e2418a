/* cuCheckpointProcess*: requests to another process. See cuda_checkpoint.h. */
#define _GNU_SOURCE
#include "cuda_checkpoint.h"

#include "cuda_device_map.h"
#include "cuda_devices.h"
#include "cuda_wait.h"
#include "state.h"

#include <string.h>
#include <time.h>

#define ALIVE_CHECK_NS (20 * NS_PER_MS) /* how often a caller checks that the other process is alive */

typedef struct {
    unsigned char from[16], to[16];
} CUcheckpointGpuPair;

typedef struct {
    unsigned timeout_ms, reserved0;
    uint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct {
    const CUcheckpointGpuPair *pairs;
    unsigned count;
    char reserved[44];
    uint64_t reserved1;
} CUcheckpointRestoreArgs;

struct request {
    uint32_t call, timeout_ms;
    const CUcheckpointGpuPair *pairs;
    unsigned count;
};

static int is_zero(const void *bytes, size_t size) {
    const char *at = bytes;
    for (size_t i = 0; i < size; i++)
        if (at[i] != 0) return 0;
    return 1;
}

static int gpu_with_uuid(const struct state *state, const unsigned char uuid[16]) {
    for (unsigned gpu = 0; gpu < state->gpu_count; gpu++) {
        unsigned char own[16];
        cuda_uuid_bytes(state->gpus[gpu].uuid, own);
        if (memcmp(own, uuid, sizeof own) == 0) return (int)gpu;
    }
    return -1;
}

/* Returns the index of the GPU on which the process was: of the old node, if CRIU moved the process. */
static int previous_gpu(const struct cuda_process *process, const unsigned char uuid[16]) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (memcmp(process->uuids[gpu], uuid, sizeof process->uuids[gpu]) == 0) return gpu;
    return -1;
}

/* Converts the pairs to indices of GPUs; returns 0 if they are invalid. A map must name every GPU that the process was
 * on, and each new GPU once. Without a map these GPUs must be on this node. The process checks the products itself. */
static int read_map(const struct state *state, const struct cuda_process *process, const struct request *request,
                    uint8_t map[MAX_GPUS]) {
    uint32_t named = 0, taken = 0;
    for (uint8_t i = 0; i < MAX_GPUS; i++) {
        int used = (process->gpus & (1u << i)) != 0, here = used ? gpu_with_uuid(state, process->uuids[i]) : i;
        if (here < 0 && request->call == CALL_RESTORE && request->count == 0) return 0;
        map[i] = (uint8_t)(here < 0 ? i : here);
    }
    for (unsigned i = 0; i < request->count; i++) {
        int from = previous_gpu(process, request->pairs[i].from), to = gpu_with_uuid(state, request->pairs[i].to);
        if (from < 0 || to < 0 || (taken & (1u << to)) != 0) return 0;
        map[from] = (uint8_t)to;
        named |= 1u << from;
        taken |= 1u << to;
    }
    return request->count == 0 || (process->gpus & ~named) == 0;
}

static int is_alive(const struct cuda_process *process, uint32_t pid, uint64_t start) {
    return process->pid == pid && process->start_time == start && process_start_time(pid) == start;
}

/* Posts the request as soon as the process has no other one, and waits for the answer. */
static CUresult post(struct view *view, struct cuda_process *process, const struct request *request) {
    uint32_t pid = process->pid, number = 0;
    uint64_t start = process->start_time;
    while (number == 0) {
        uint32_t hang = view->state->checkpoint_faults.hang & (1u << request->call);
        int hangs = checkpoint_fault_applies(view->state, process, hang);
        CUresult r = hangs ? CUDA_SUCCESS : cuda_result_from_errno(state_write_begin(view));
        if (r != CUDA_SUCCESS) return r;
        if (!hangs && process->requested == process->completed) {
            uint8_t map[MAX_GPUS];
            int valid = read_map(view->state, process, request, map);
            if (valid) {
                memcpy(process->map, map, sizeof map);
                process->call = request->call;
                process->timeout_ms = request->timeout_ms;
                number = ++process->requested;
            }
            state_write_end(view);
            if (!valid) return CUDA_ERROR_INVALID_VALUE;
        } else if (!hangs) {
            state_write_end(view); /* the process serves another request */
        }
        if (number == 0) cuda_sleep_ns(NS_PER_MS);
        if (!is_alive(process, pid, start)) return CUDA_ERROR_OPERATING_SYSTEM;
    }
    cuda_futex_wake(&process->requested);
    const struct timespec interval = {.tv_nsec = ALIVE_CHECK_NS};
    for (uint32_t completed; (int32_t)((completed = cuda_load(&process->completed)) - number) < 0;) {
        cuda_futex_wait(&process->completed, completed, &interval);
        if (!is_alive(process, pid, start)) return CUDA_ERROR_OPERATING_SYSTEM; /* the process died meanwhile */
    }
    return process->code;
}

/* Finds the entry of a process; `*out` is NULL if the process has created no context. */
static CUresult find(struct view *view, int pid, struct cuda_process **out) {
    uint64_t start = pid > 0 ? process_start_time((uint32_t)pid) : 0;
    CUresult r = cuda_initialized();
    if (r == CUDA_SUCCESS && start == 0) r = CUDA_ERROR_OPERATING_SYSTEM; /* no such process */
    if (r == CUDA_SUCCESS) r = cuda_result_from_errno(view_refresh(view, state_path(), 1));
    if (r == CUDA_SUCCESS) *out = cuda_process_find(view->state, (uint32_t)pid, start);
    return r;
}

static CUresult request_from(int pid, const struct request *request) {
    struct view view = {0}; /* one for each call: a call may take long, and the daemon may replace the file meanwhile */
    struct cuda_process *process = NULL;
    CUresult r = find(&view, pid, &process);
    if (r == CUDA_SUCCESS) r = process == NULL ? CUDA_ERROR_NOT_INITIALIZED : post(&view, process, request);
    view_close(&view);
    return r;
}

EXPORT CUresult cuCheckpointProcessGetState(int pid, int *state) {
    struct view view = {0};
    struct cuda_process *process = NULL;
    if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = find(&view, pid, &process);
    if (r == CUDA_SUCCESS && process == NULL) r = CUDA_ERROR_NOT_INITIALIZED;
    if (r == CUDA_SUCCESS) *state = (int)process->state;
    view_close(&view);
    return r;
}

EXPORT CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    struct view view = {0};
    struct cuda_process *process = NULL;
    if (thread == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = find(&view, pid, &process);
    if (r == CUDA_SUCCESS && process == NULL) r = CUDA_ERROR_NOT_INITIALIZED;
    if (r == CUDA_SUCCESS) *thread = (int)process->thread;
    view_close(&view);
    return r;
}

EXPORT CUresult cuCheckpointProcessLock(int pid, const CUcheckpointLockArgs *arguments) {
    struct request request = {.call = CALL_LOCK};
    if (arguments != NULL) {
        if (!is_zero(&arguments->reserved0, sizeof *arguments - sizeof arguments->timeout_ms))
            return CUDA_ERROR_INVALID_VALUE;
        request.timeout_ms = arguments->timeout_ms;
    }
    return request_from(pid, &request);
}

EXPORT CUresult cuCheckpointProcessCheckpoint(int pid, const void *arguments) {
    if (arguments != NULL && !is_zero(arguments, 64)) return CUDA_ERROR_INVALID_VALUE;
    return request_from(pid, &(struct request){.call = CALL_CHECKPOINT});
}

EXPORT CUresult cuCheckpointProcessRestore(int pid, const CUcheckpointRestoreArgs *arguments) {
    struct request request = {.call = CALL_RESTORE};
    if (arguments != NULL) {
        if (!is_zero(arguments->reserved, sizeof *arguments - offsetof(CUcheckpointRestoreArgs, reserved)))
            return CUDA_ERROR_INVALID_VALUE;
        if (arguments->count > 0 && arguments->pairs == NULL) return CUDA_ERROR_INVALID_VALUE;
        request.pairs = arguments->pairs;
        request.count = arguments->count;
    }
    return request_from(pid, &request);
}

EXPORT CUresult cuCheckpointProcessUnlock(int pid, const void *arguments) {
    if (arguments != NULL && !is_zero(arguments, 64)) return CUDA_ERROR_INVALID_VALUE;
    return request_from(pid, &(struct request){.call = CALL_UNLOCK});
}

const struct cuda_symbol cuda_checkpoint_symbols[] = {
    {"cuCheckpointProcessGetRestoreThreadId", (void *)cuCheckpointProcessGetRestoreThreadId},
    {"cuCheckpointProcessGetState", (void *)cuCheckpointProcessGetState},
    {"cuCheckpointProcessLock", (void *)cuCheckpointProcessLock},
    {"cuCheckpointProcessCheckpoint", (void *)cuCheckpointProcessCheckpoint},
    {"cuCheckpointProcessRestore", (void *)cuCheckpointProcessRestore},
    {"cuCheckpointProcessUnlock", (void *)cuCheckpointProcessUnlock},
    {NULL, NULL},
};
