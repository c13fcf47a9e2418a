/*
 * cuCheckpointProcess*: what a program asks of another process. The process itself carries it out (cuda_moves.c), as with
 * the real driver, so that one that is frozen gives no answer and one that dies leaves none.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <string.h>
#include <time.h>

#define MS 1000000l
#define LOOK_AGAIN_NS (20 * MS) /* whether the process that was asked still lives */

struct gpu_pair {
    unsigned char from[16], to[16];
};

struct lock_arguments {
    unsigned timeout_ms, reserved0;
    uint64_t reserved1[7];
};

struct restore_arguments {
    const struct gpu_pair *pairs;
    unsigned count;
    char reserved[44];
    uint64_t reserved1;
};

struct request {
    uint32_t call, timeout_ms;
    const struct gpu_pair *pairs;
    unsigned count;
};

static int zeroed(const void *bytes, size_t size) {
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

/* Where the process left it: on its old node, if it came from another. */
static int gpu_left(const struct cuda_process *process, const unsigned char uuid[16]) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (memcmp(process->uuids[gpu], uuid, sizeof process->uuids[gpu]) == 0) return gpu;
    return -1;
}

/* Every GPU that the process was on must be named, if any is; each new one once. Without a map they must be here. Of
 * what product they are the process itself knows. */
static int read_map(const struct state *state, const struct cuda_process *process, const struct request *request,
                    uint8_t map[MAX_GPUS]) {
    uint32_t named = 0, taken = 0;
    for (uint8_t i = 0; i < MAX_GPUS; i++) {
        int used = (process->gpus & (1u << i)) != 0, here = used ? gpu_with_uuid(state, process->uuids[i]) : i;
        if (here < 0 && request->call == CALL_RESTORE && request->count == 0) return 0;
        map[i] = (uint8_t)(here < 0 ? i : here);
    }
    for (unsigned i = 0; i < request->count; i++) {
        int from = gpu_left(process, request->pairs[i].from), to = gpu_with_uuid(state, request->pairs[i].to);
        if (from < 0 || to < 0 || (taken & (1u << to)) != 0) return 0;
        map[from] = (uint8_t)to;
        named |= 1u << from;
        taken |= 1u << to;
    }
    return request->count == 0 || (process->gpus & ~named) == 0;
}

static int lives(const struct cuda_process *process, uint32_t pid, uint64_t start) {
    return process->pid == pid && process->start_time == start && process_start_time(pid) == start;
}

static result post(struct view *view, struct cuda_process *process, const struct request *request) {
    uint32_t pid = process->pid, ticket = 0;
    uint64_t start = process->start_time;
    while (ticket == 0) {
        int hangs = cuda_has_fault(view->state, process, view->state->checkpoint_faults.hang & (1u << request->call));
        result r = hangs ? CUDA_SUCCESS : cuda_of_errno(state_write_begin(view));
        if (r != CUDA_SUCCESS) return r;
        if (!hangs && process->asked == process->answered) {
            uint8_t map[MAX_GPUS];
            int known = read_map(view->state, process, request, map);
            if (known) {
                memcpy(process->map, map, sizeof map);
                process->call = request->call;
                process->timeout_ms = request->timeout_ms;
                ticket = ++process->asked;
            }
            state_write_end(view);
            if (!known) return CUDA_ERROR_INVALID_VALUE;
        } else if (!hangs) {
            state_write_end(view); /* somebody else's request is under way */
        }
        if (ticket == 0) cuda_pause_ns(MS);
        if (!lives(process, pid, start)) return CUDA_ERROR_OPERATING_SYSTEM;
    }
    cuda_futex_wake(&process->asked);
    const struct timespec most = {.tv_nsec = LOOK_AGAIN_NS};
    for (uint32_t answered; (int32_t)((answered = cuda_load(&process->answered)) - ticket) < 0;) {
        cuda_futex_wait(&process->answered, answered, &most);
        if (!lives(process, pid, start)) return CUDA_ERROR_OPERATING_SYSTEM; /* it died over it */
    }
    return process->code;
}

static result find(struct view *view, int pid, struct cuda_process **out) {
    uint64_t start = pid > 0 ? process_start_time((uint32_t)pid) : 0;
    result r = cuda_initialized();
    if (r == CUDA_SUCCESS && start == 0) r = CUDA_ERROR_OPERATING_SYSTEM; /* no such process */
    if (r == CUDA_SUCCESS) r = cuda_of_errno(view_refresh(view, state_path(), 1));
    if (r == CUDA_SUCCESS) *out = cuda_process_find(view->state, (uint32_t)pid, start);
    return r;
}

static result ask(int pid, const struct request *request) {
    struct view view = {0}; /* one each: a call may take long, and the file may be made anew meanwhile */
    struct cuda_process *process = NULL;
    result r = find(&view, pid, &process);
    if (r == CUDA_SUCCESS) r = process == NULL ? CUDA_ERROR_NOT_INITIALIZED : post(&view, process, request);
    view_close(&view);
    return r;
}

EXPORT result cuCheckpointProcessGetState(int pid, int *state) {
    struct view view = {0};
    struct cuda_process *process = NULL;
    if (state == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = find(&view, pid, &process);
    if (r == CUDA_SUCCESS && process == NULL) r = CUDA_ERROR_NOT_INITIALIZED;
    if (r == CUDA_SUCCESS) *state = (int)process->state;
    view_close(&view);
    return r;
}

EXPORT result cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    struct view view = {0};
    struct cuda_process *process = NULL;
    if (thread == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = find(&view, pid, &process);
    if (r == CUDA_SUCCESS && process == NULL) r = CUDA_ERROR_NOT_INITIALIZED;
    if (r == CUDA_SUCCESS) *thread = (int)process->thread;
    view_close(&view);
    return r;
}

EXPORT result cuCheckpointProcessLock(int pid, const struct lock_arguments *arguments) {
    struct request request = {.call = CALL_LOCK};
    if (arguments != NULL) {
        if (!zeroed(&arguments->reserved0, sizeof *arguments - sizeof arguments->timeout_ms))
            return CUDA_ERROR_INVALID_VALUE;
        request.timeout_ms = arguments->timeout_ms;
    }
    return ask(pid, &request);
}

EXPORT result cuCheckpointProcessCheckpoint(int pid, const void *arguments) {
    if (arguments != NULL && !zeroed(arguments, 64)) return CUDA_ERROR_INVALID_VALUE;
    return ask(pid, &(struct request){.call = CALL_CHECKPOINT});
}

EXPORT result cuCheckpointProcessRestore(int pid, const struct restore_arguments *arguments) {
    struct request request = {.call = CALL_RESTORE};
    if (arguments != NULL) {
        if (!zeroed(arguments->reserved, sizeof *arguments - offsetof(struct restore_arguments, reserved))) return CUDA_ERROR_INVALID_VALUE;
        if (arguments->count > 0 && arguments->pairs == NULL) return CUDA_ERROR_INVALID_VALUE;
        request.pairs = arguments->pairs;
        request.count = arguments->count;
    }
    return ask(pid, &request);
}

EXPORT result cuCheckpointProcessUnlock(int pid, const void *arguments) {
    if (arguments != NULL && !zeroed(arguments, 64)) return CUDA_ERROR_INVALID_VALUE;
    return ask(pid, &(struct request){.call = CALL_UNLOCK});
}

void *cuda_checkpoint_symbol(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } SYMBOLS[] = {
        {"cuCheckpointProcessGetRestoreThreadId", (void *)cuCheckpointProcessGetRestoreThreadId},
        {"cuCheckpointProcessGetState", (void *)cuCheckpointProcessGetState},
        {"cuCheckpointProcessLock", (void *)cuCheckpointProcessLock},
        {"cuCheckpointProcessCheckpoint", (void *)cuCheckpointProcessCheckpoint},
        {"cuCheckpointProcessRestore", (void *)cuCheckpointProcessRestore},
        {"cuCheckpointProcessUnlock", (void *)cuCheckpointProcessUnlock},
    };
    for (unsigned i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (strcmp(SYMBOLS[i].name, name) == 0) return SYMBOLS[i].function;
    return NULL;
}
