/* The thread of a process that serves the checkpoint requests of other processes. See cuda_checkpoint_thread.h. */
#define _GNU_SOURCE
#include "cuda_checkpoint_thread.h"

#include "cuda_device_map.h"
#include "cuda_entry.h"
#include "cuda_migration.h"
#include "cuda_wait.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RESTORE_SCRATCH (5ull << 20) /* extra bytes that a restore needs; between 4 and 6 MiB on an H100 */

static int restore_impossible; /* a restore ran out of memory, which is final */

static const struct transition {
    uint32_t from, to;
} TRANSITIONS[CALLS] = {
    [CALL_LOCK] = {CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED},
    [CALL_CHECKPOINT] = {CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED},
    [CALL_RESTORE] = {CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED},
    [CALL_UNLOCK] = {CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING},
};

static void set_state(uint32_t state, int resident) {
    if (state_write_begin(&cuda_view) != 0) return;
    cuda_self->state = state;
    cuda_self->resident = (uint32_t)resident;
    state_write_end(&cuda_view);
}

/* Waits as long as a copy of the memory takes: all GPUs, one after the other. */
static void wait_for_copy(void) {
    const struct checkpoint_faults *faults = &cuda_view.state->checkpoint_faults;
    uint64_t bytes = 0;
    for (int i = 0; i < MAX_GPUS; i++) bytes += cuda_self->bytes[i];
    double seconds = (double)faults->latency_ms / 1e3;
    if (faults->speed > 0) seconds += (double)bytes / (double)faults->speed;
    cuda_sleep_ns((long)(seconds * 1e9));
}

static CUresult lock(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        int busy = checkpoint_fault_applies(cuda_view.state, cuda_self, cuda_view.state->checkpoint_faults.busy);
        if (!busy && pthread_mutex_trylock(&cuda_gpu_lock) == 0) break;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long waited_ns = (now.tv_sec - begin.tv_sec) * 1000 * NS_PER_MS + (now.tv_nsec - begin.tv_nsec);
        if (cuda_self->timeout_ms > 0 && waited_ns >= cuda_self->timeout_ms * NS_PER_MS) return CUDA_ERROR_NOT_READY;
        cuda_sleep_ns(NS_PER_MS / 5);
    }
    set_state(TRANSITIONS[CALL_LOCK].to, 1);
    return CUDA_SUCCESS;
}

static CUresult checkpoint(void) {
    wait_for_copy();
    int resident = checkpoint_fault_applies(cuda_view.state, cuda_self, cuda_view.state->checkpoint_faults.lie);
    set_state(TRANSITIONS[CALL_CHECKPOINT].to, resident);
    return CUDA_SUCCESS;
}

/* Reserves the memory of a restore on the GPUs of the map: all of it or nothing. */
static CUresult reserve_memory(void) {
    uint64_t bytes[MAX_GPUS] = {0};
    uint32_t gpus = 0;
    if (cuda_self->resident) return CUDA_SUCCESS; /* the fault `lie`: the memory was not released */
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        bytes[cuda_self->map[i]] += cuda_self->bytes[i];
        if (cuda_self->gpus & (1u << i)) gpus |= 1u << cuda_self->map[i];
    }
    if (state_write_begin(&cuda_view) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    struct state *state = cuda_view.state;
    if (!cuda_device_map_fits(state, cuda_self->gpus, cuda_self->map)) {
        state_write_end(&cuda_view);
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fits = 1;
    for (unsigned i = 0; i < state->gpu_count; i++)
        fits = fits && (bytes[i] == 0 || bytes[i] + RESTORE_SCRATCH <= gpu_free_bytes(state, i));
    if (fits) {
        memcpy(cuda_self->bytes, bytes, sizeof bytes);
        for (unsigned i = 0; i < state->gpu_count; i++) cuda_uuid_bytes(state->gpus[i].uuid, cuda_self->uuids[i]);
        cuda_device_map_apply(state, cuda_self->map);
        cuda_self->gpus = gpus;
        cuda_self->resident = 1;
    } else {
        restore_impossible = 1;
    }
    state_write_end(&cuda_view);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult restore(void) {
    CUresult r = reserve_memory();
    if (r != CUDA_SUCCESS) return r;
    wait_for_copy();
    set_state(TRANSITIONS[CALL_RESTORE].to, 1);
    return CUDA_SUCCESS;
}

static CUresult unlock(void) {
    set_state(TRANSITIONS[CALL_UNLOCK].to, 1);
    pthread_mutex_unlock(&cuda_gpu_lock);
    return CUDA_SUCCESS;
}

static CUresult execute(uint32_t call) {
    static CUresult (*const ACTIONS[CALLS])(void) = {
        [CALL_LOCK] = lock, [CALL_CHECKPOINT] = checkpoint, [CALL_RESTORE] = restore, [CALL_UNLOCK] = unlock};
    const struct state *state = cuda_view.state;
    const struct checkpoint_faults *faults = &state->checkpoint_faults;
    if (call == 0 || call >= CALLS) return CUDA_ERROR_INVALID_VALUE;
    if (cuda_self->state != TRANSITIONS[call].from) return CUDA_ERROR_ILLEGAL_STATE;
    if (restore_impossible) return CUDA_ERROR_OPERATING_SYSTEM;
    if (checkpoint_fault_applies(state, cuda_self, faults->fail & (1u << call))) return CUDA_ERROR_OPERATING_SYSTEM;
    if (checkpoint_fault_applies(state, cuda_self, faults->breaks & (1u << call))) {
        set_state(CU_PROCESS_STATE_FAILED, (int)cuda_self->resident);
        return CUDA_ERROR_UNKNOWN;
    }
    return ACTIONS[call]();
}

static void *serve(void *started) {
    cuda_self->thread = (uint32_t)syscall(SYS_gettid);
    __atomic_store_n((int *)started, 1, __ATOMIC_RELEASE);
    for (;;) {
        cuda_migration_check();
        uint32_t requested = cuda_load(&cuda_self->requested);
        if (requested == cuda_self->completed) {
            cuda_futex_wait(&cuda_self->requested, requested, cuda_migration_check_interval());
            continue;
        }
        CUresult r = cuda_migration_open_state();
        cuda_self->code = r == CUDA_SUCCESS ? execute(cuda_self->call) : r;
        if (cuda_self->state == CU_PROCESS_STATE_CHECKPOINTED) cuda_migration_close_state();
        __atomic_store_n(&cuda_self->completed, requested, __ATOMIC_RELEASE);
        cuda_futex_wake(&cuda_self->completed);
    }
    return NULL;
}

static CUresult start_thread(void) {
    static int started;
    pthread_t thread;
    sigset_t all, before; /* the program's own threads handle its signals */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, serve, &started);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE)) cuda_sleep_ns(NS_PER_MS / 20);
    return CUDA_SUCCESS;
}

CUresult cuda_checkpoint_thread_start(void) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static int called;
    static CUresult outcome;
    pthread_mutex_lock(&once);
    if (!called) {
        called = 1;
        outcome = cuda_entry_create();
        if (outcome == CUDA_SUCCESS) outcome = start_thread();
        if (outcome != CUDA_SUCCESS) cuda_self = NULL;
    }
    pthread_mutex_unlock(&once);
    return outcome;
}
