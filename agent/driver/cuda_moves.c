/*
 * Inside a process that holds CUDA: its entry in the state, and the thread that carries out the moves asked of it.
 *
 * The moves are a table, MOVES. As with the real driver: a lock waits for the process's work, a frozen process answers
 * nobody, a checkpoint takes the process and its bytes off NVML, and a restore without the memory is the end of it: it
 * stays CHECKPOINTED for ever. So it was seen with driver 580.159 on an H100, and that it takes some MiB more than it brings.
 * After NVIDIA's CUDA driver API reference 13.x, section "CUDA Checkpointing", and cuda-checkpoint issue 44.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000l
#define PID_WAIT_NS 5000000000ull
#define RESTORE_SCRATCH (5ull << 20) /* bytes that must be free beside what comes back: it lay between 4 and 6 MiB */

static int lost; /* a restore had no room: no other will have it */

static const struct move {
    uint32_t from, to;
} MOVES[CALLS] = {
    [CALL_LOCK] = {CHECKPOINT_RUNNING, CHECKPOINT_LOCKED},
    [CALL_CHECKPOINT] = {CHECKPOINT_LOCKED, CHECKPOINT_CHECKPOINTED},
    [CALL_RESTORE] = {CHECKPOINT_CHECKPOINTED, CHECKPOINT_LOCKED},
    [CALL_UNLOCK] = {CHECKPOINT_LOCKED, CHECKPOINT_RUNNING},
};

struct view cuda_mine;
struct cuda_process *cuda_self;
pthread_mutex_t cuda_gpu_calls = PTHREAD_MUTEX_INITIALIZER;

void cuda_pause_ns(long ns) {
    struct timespec time = {.tv_sec = ns / 1000000000l, .tv_nsec = ns % 1000000000l};
    while (nanosleep(&time, &time) != 0 && errno == EINTR) continue;
}

/* The words lie in a shared file: other processes wait on them too. */
void cuda_futex_wait(uint32_t *word, uint32_t seen, const struct timespec *most) {
    syscall(SYS_futex, word, FUTEX_WAIT, seen, most, NULL, 0);
}

void cuda_futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }

uint32_t cuda_load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

int cuda_has_fault(const struct state *state, const struct cuda_process *process, uint32_t bits) {
    const struct checkpoint_faults *faults = &state->checkpoint_faults;
    return bits != 0 && (faults->pid == 0 || faults->pid == process->pid);
}

static void become(uint32_t state, int resident) {
    if (state_write_begin(&cuda_mine) != 0) return;
    cuda_self->state = state;
    cuda_self->resident = (uint32_t)resident;
    state_write_end(&cuda_mine);
}

/* As long as the copy takes: of all GPUs together, one after the other. */
static void copy(void) {
    const struct checkpoint_faults *faults = &cuda_mine.state->checkpoint_faults;
    uint64_t bytes = 0;
    for (int i = 0; i < MAX_GPUS; i++) bytes += cuda_self->bytes[i];
    double seconds = (double)faults->latency_ms / 1e3;
    if (faults->speed > 0) seconds += (double)bytes / (double)faults->speed;
    cuda_pause_ns((long)(seconds * 1e9));
}

static result lock(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        int busy = cuda_has_fault(cuda_mine.state, cuda_self, cuda_mine.state->checkpoint_faults.busy);
        if (!busy && pthread_mutex_trylock(&cuda_gpu_calls) == 0) break;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long waited = (now.tv_sec - begin.tv_sec) * 1000 * MS + (now.tv_nsec - begin.tv_nsec); /* ns */
        if (cuda_self->timeout_ms > 0 && waited >= cuda_self->timeout_ms * MS) return CUDA_ERROR_NOT_READY;
        cuda_pause_ns(MS / 5);
    }
    become(CHECKPOINT_LOCKED, 1);
    return CUDA_SUCCESS;
}

static result checkpoint(void) {
    copy();
    become(CHECKPOINT_CHECKPOINTED, cuda_has_fault(cuda_mine.state, cuda_self, cuda_mine.state->checkpoint_faults.lie));
    return CUDA_SUCCESS;
}

/* Takes the memory first: all of it, on the GPUs that the map gives, of the same product, or none. */
static result claim(void) {
    uint64_t bytes[MAX_GPUS] = {0};
    uint32_t gpus = 0;
    if (cuda_self->resident) return CUDA_SUCCESS; /* a lie: it never gave it back */
    for (unsigned i = 0; i < MAX_GPUS; i++) {
        bytes[cuda_self->map[i]] += cuda_self->bytes[i];
        if (cuda_self->gpus & (1u << i)) gpus |= 1u << cuda_self->map[i];
    }
    if (state_write_begin(&cuda_mine) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (!cuda_homes_fit(cuda_mine.state, cuda_self->gpus, cuda_self->map)) {
        state_write_end(&cuda_mine);
        return CUDA_ERROR_INVALID_VALUE;
    }
    int fits = 1;
    for (unsigned i = 0; i < cuda_mine.state->gpu_count; i++)
        fits = fits && (bytes[i] == 0 || bytes[i] + RESTORE_SCRATCH <= gpu_free(cuda_mine.state, i));
    if (fits) {
        memcpy(cuda_self->bytes, bytes, sizeof bytes);
        for (unsigned i = 0; i < cuda_mine.state->gpu_count; i++)
            cuda_uuid_bytes(cuda_mine.state->gpus[i].uuid, cuda_self->uuids[i]);
        cuda_homes_map(cuda_mine.state, cuda_self->map);
        cuda_self->gpus = gpus;
        cuda_self->resident = 1;
    } else {
        lost = 1;
    }
    state_write_end(&cuda_mine);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static result restore(void) {
    result r = claim();
    if (r != CUDA_SUCCESS) return r;
    copy();
    become(CHECKPOINT_LOCKED, 1);
    return CUDA_SUCCESS;
}

static result unlock(void) {
    become(CHECKPOINT_RUNNING, 1);
    pthread_mutex_unlock(&cuda_gpu_calls);
    return CUDA_SUCCESS;
}

static result carry_out(uint32_t call) {
    static result (*const ACTS[CALLS])(void) = {
        [CALL_LOCK] = lock, [CALL_CHECKPOINT] = checkpoint, [CALL_RESTORE] = restore, [CALL_UNLOCK] = unlock};
    const struct checkpoint_faults *faults = &cuda_mine.state->checkpoint_faults;
    if (call == 0 || call >= CALLS) return CUDA_ERROR_INVALID_VALUE;
    if (cuda_self->state != MOVES[call].from) return CUDA_ERROR_ILLEGAL_STATE;
    if (lost) return CUDA_ERROR_OPERATING_SYSTEM;
    if (cuda_has_fault(cuda_mine.state, cuda_self, faults->fail & (1u << call))) return CUDA_ERROR_OPERATING_SYSTEM;
    if (cuda_has_fault(cuda_mine.state, cuda_self, faults->breaks & (1u << call))) {
        become(CHECKPOINT_FAILED, (int)cuda_self->resident);
        return CUDA_ERROR_UNKNOWN;
    }
    return ACTS[call]();
}

static void *serve(void *nothing) {
    for (;;) {
        cuda_settle();
        uint32_t asked = cuda_load(&cuda_self->asked);
        if (asked == cuda_self->answered) {
            cuda_futex_wait(&cuda_self->asked, asked, cuda_look_again());
            continue;
        }
        result r = cuda_take_up();
        cuda_self->code = r == CUDA_SUCCESS ? carry_out(cuda_self->call) : r;
        if (cuda_self->state == CHECKPOINT_CHECKPOINTED) cuda_let_go();
        __atomic_store_n(&cuda_self->answered, asked, __ATOMIC_RELEASE);
        cuda_futex_wake(&cuda_self->answered);
    }
    return nothing;
}

struct cuda_process *cuda_free_entry(struct state *state, uint32_t own_pid, uint64_t start) {
    struct cuda_process *unused = NULL;
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        struct cuda_process *entry = &state->cuda[i];
        int own = entry->start_time != 0 && entry->own_pid == own_pid && entry->own_start == start;
        if (own) return entry; /* of before it called exec */
        if (unused == NULL && entry->start_time == 0) unused = entry;
    }
    if (unused == NULL && state->cuda_used < MAX_CUDA_PROCESSES) unused = &state->cuda[state->cuda_used++];
    return unused;
}

/* In a container only the daemon can tell the pid by which others know this process. Its sample must be published as
 * well: until then what the container declared counts as taken, and this process could not have it. */
static result wait_for_pid(void) {
    const uint64_t *published = &cuda_mine.state->updated_ns;
    uint64_t begin = monotonic_ns(), before = 0;
    while (cuda_load(&cuda_self->pid) == 0 || __atomic_load_n(published, __ATOMIC_ACQUIRE) == before) {
        if (cuda_load(&cuda_self->pid) == 0) before = __atomic_load_n(published, __ATOMIC_ACQUIRE);
        if (monotonic_ns() - begin > PID_WAIT_NS) return CUDA_ERROR_NO_DEVICE;
        cuda_pause_ns(MS);
    }
    return CUDA_SUCCESS;
}

static void *begin(void *registered) {
    cuda_self->thread = (uint32_t)syscall(SYS_gettid);
    __atomic_store_n((int *)registered, 1, __ATOMIC_RELEASE);
    return serve(NULL);
}

static result make_entry(void) {
    uint32_t pid = (uint32_t)getpid();
    uint64_t start = process_start_time(pid);
    result r = cuda_of_errno(view_refresh(&cuda_mine, state_path(), 1));
    if (r == CUDA_SUCCESS) r = cuda_of_errno(state_write_begin(&cuda_mine));
    if (r != CUDA_SUCCESS) return r;
    struct state *state = cuda_mine.state;
    cuda_self = cuda_free_entry(state, pid, start);
    if (cuda_self != NULL) {
        *cuda_self = (struct cuda_process){.made_ns = monotonic_ns(), .own_pid = pid, .resident = 1};
        for (unsigned i = 0; i < state->gpu_count; i++) cuda_uuid_bytes(state->gpus[i].uuid, cuda_self->uuids[i]);
        cuda_homes_begin(state);
        if (state->pid_namespace == own_pid_namespace()) cuda_self->pid = pid;
        cuda_self->start_time = cuda_self->own_start = start;
    }
    state_write_end(&cuda_mine);
    return cuda_self == NULL ? CUDA_ERROR_OUT_OF_MEMORY : wait_for_pid();
}

static result start_thread(void) {
    static int started;
    pthread_t thread;
    sigset_t all, before; /* the program's signals are for its own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int why = pthread_create(&thread, NULL, begin, &started);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE)) cuda_pause_ns(MS / 20);
    return CUDA_SUCCESS;
}

result cuda_register(void) {
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static int registered;
    static result outcome;
    pthread_mutex_lock(&once);
    if (!registered) {
        registered = 1;
        outcome = make_entry();
        if (outcome == CUDA_SUCCESS) outcome = start_thread();
        if (outcome != CUDA_SUCCESS) cuda_self = NULL;
    }
    pthread_mutex_unlock(&once);
    return outcome;
}
