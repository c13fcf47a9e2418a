/* Migration of a checkpointed process by CRIU. See cuda_migration.h. */
#define _GNU_SOURCE
#include "cuda_migration.h"

#include "cuda_entry.h"
#include "cuda_wait.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK_INTERVAL_NS (20 * NS_PER_MS)

static int state_closed;
static struct cuda_process saved_entry; /* the other node's state has no entry of this process to copy */

static void close_descriptor(void) {
    close(cuda_view.fd);
    cuda_view.fd = -1;
}

void cuda_migration_close_state(void) {
    if (cuda_self->resident) return; /* the fault `lie`: the memory is still on the GPU */
    saved_entry = *cuda_self;
    state_closed = 1;
    close_descriptor();
}

CUresult cuda_migration_open_state(void) {
    if (cuda_view.fd < 0) cuda_view.fd = open(state_path(), O_RDWR | O_CLOEXEC);
    if (cuda_view.fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    state_closed = 0;
    return CUDA_SUCCESS;
}

const struct timespec *cuda_migration_check_interval(void) {
    static const struct timespec interval = {.tv_nsec = CHECK_INTERVAL_NS};
    return state_closed ? &interval : NULL;
}

static void create_entry(uint64_t start) {
    if (state_write_begin(&cuda_view) != 0) return;
    struct state *state = cuda_view.state;
    struct cuda_process *entry = cuda_entry_allocate(state, saved_entry.own_pid, start);
    if (entry != NULL) {
        *entry = saved_entry;
        entry->migrated = 1;
        entry->created_ns = state->updated_ns; /* the clock of this node: CRIU shifts the clock of the process */
        entry->pid = state->pid_namespace == own_pid_namespace() ? saved_entry.own_pid : 0;
        entry->thread = (uint32_t)syscall(SYS_gettid);
        entry->requested = entry->completed = 0;
        entry->start_time = entry->own_start = start;
        cuda_self = entry;
    }
    state_write_end(&cuda_view);
}

/* A restored process has a new start time. Its old entry is then another process's, or of another node. */
void cuda_migration_check(void) {
    while (state_closed) {
        uint64_t start = process_start_time(saved_entry.own_pid);
        int unchanged =
            cuda_self->start_time != 0 && cuda_self->own_start == start && cuda_self->own_pid == saved_entry.own_pid;
        if (unchanged) return;
        view_close(&cuda_view);
        cuda_self = &saved_entry; /* the mapping with the entry is gone, and the next one may fail */
        if (view_refresh(&cuda_view, state_path(), 1) == 0) {
            create_entry(start);
            close_descriptor();
        }
        cuda_sleep_ns(NS_PER_MS);
    }
}
