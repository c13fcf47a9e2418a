/* The entry of this process in the shared state. See cuda_entry.h. */
#define _GNU_SOURCE
#include "cuda_entry.h"

#include "cuda_device_map.h"
#include "cuda_wait.h"

#include <unistd.h>

#define PID_TIMEOUT_NS 5000000000ull

struct cuda_process *cuda_self;
struct view cuda_view;
pthread_mutex_t cuda_gpu_lock = PTHREAD_MUTEX_INITIALIZER;

struct cuda_process *cuda_entry_allocate(struct state *state, uint32_t own_pid, uint64_t start) {
    struct cuda_process *unused = NULL;
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        struct cuda_process *entry = &state->cuda[i];
        int own = entry->start_time != 0 && entry->own_pid == own_pid && entry->own_start == start;
        if (own) return entry; /* from before exec, which keeps PID and start time */
        if (unused == NULL && entry->start_time == 0) unused = entry;
    }
    if (unused == NULL && state->cuda_used < MAX_CUDA_PROCESSES) unused = &state->cuda[state->cuda_used++];
    return unused;
}

/* Waits for the PID by which other processes know this one. In a container only the daemon can find it. Then waits for
 * the daemon's next sample: until it is published, the memory that the container declared counts as used. */
static CUresult wait_for_pid(void) {
    const uint64_t *published = &cuda_view.state->updated_ns;
    uint64_t begin = monotonic_ns(), before = 0;
    while (cuda_load(&cuda_self->pid) == 0 || __atomic_load_n(published, __ATOMIC_ACQUIRE) == before) {
        if (cuda_load(&cuda_self->pid) == 0) before = __atomic_load_n(published, __ATOMIC_ACQUIRE);
        if (monotonic_ns() - begin > PID_TIMEOUT_NS) return CUDA_ERROR_NO_DEVICE;
        cuda_sleep_ns(NS_PER_MS);
    }
    return CUDA_SUCCESS;
}

CUresult cuda_entry_create(void) {
    uint32_t pid = (uint32_t)getpid();
    uint64_t start = process_start_time(pid);
    CUresult r = cuda_result_from_errno(view_refresh(&cuda_view, state_path(), 1));
    if (r == CUDA_SUCCESS) r = cuda_result_from_errno(state_write_begin(&cuda_view));
    if (r != CUDA_SUCCESS) return r;
    struct state *state = cuda_view.state;
    cuda_self = cuda_entry_allocate(state, pid, start);
    if (cuda_self != NULL) {
        *cuda_self = (struct cuda_process){.created_ns = monotonic_ns(), .own_pid = pid, .resident = 1};
        for (unsigned i = 0; i < state->gpu_count; i++) cuda_uuid_bytes(state->gpus[i].uuid, cuda_self->uuids[i]);
        cuda_device_map_init(state);
        if (state->pid_namespace == own_pid_namespace()) cuda_self->pid = pid;
        cuda_self->start_time = cuda_self->own_start = start;
    }
    state_write_end(&cuda_view);
    return cuda_self == NULL ? CUDA_ERROR_OUT_OF_MEMORY : wait_for_pid();
}
