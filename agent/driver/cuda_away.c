/*
 * A process that is checkpointed: it holds no file of the driver open, so CRIU can carry it to another node, and it looks
 * from time to time whether that has happened. There it makes a new entry, under which it can be restored.
 *
 * After NVIDIA's cuda-checkpoint README: "toggle, criu dump, criu restore, toggle". The libraries stay mapped.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MS 1000000l
#define LOOK_AGAIN_NS (20 * MS)

static int away;
static struct cuda_process kept; /* what is written here, the next node has not seen */

void cuda_let_go(void) {
    if (cuda_self->resident) return; /* a lie: it has it all still */
    kept = *cuda_self;
    away = 1;
    close(cuda_mine.fd);
    cuda_mine.fd = -1;
}

result cuda_take_up(void) {
    if (cuda_mine.fd < 0) cuda_mine.fd = open(state_path(), O_RDWR | O_CLOEXEC);
    if (cuda_mine.fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    away = 0;
    return CUDA_SUCCESS;
}

const struct timespec *cuda_look_again(void) {
    static const struct timespec most = {.tv_nsec = LOOK_AGAIN_NS};
    return away ? &most : NULL;
}

static void enter(uint64_t start) {
    if (state_write_begin(&cuda_mine) != 0) return;
    struct state *state = cuda_mine.state;
    struct cuda_process *entry = cuda_free_entry(state, kept.own_pid, start);
    if (entry != NULL) {
        *entry = kept;
        entry->moved = 1;
        entry->made_ns = state->updated_ns; /* by the node's clock */
        entry->pid = state->pid_namespace == own_pid_namespace() ? kept.own_pid : 0;
        entry->thread = (uint32_t)syscall(SYS_gettid);
        entry->asked = entry->answered = 0;
        entry->start_time = entry->own_start = start;
        cuda_self = entry;
    }
    state_write_end(&cuda_mine);
}

/* What is brought back is born anew, so the entry of before is not its own: another process may have it on this node. */
void cuda_settle(void) {
    while (away) {
        uint64_t start = process_start_time(kept.own_pid);
        int mine = cuda_self->start_time != 0 && cuda_self->own_start == start && cuda_self->own_pid == kept.own_pid;
        if (mine) return;
        view_close(&cuda_mine);
        if (view_refresh(&cuda_mine, state_path(), 1) == 0) {
            enter(start);
            close(cuda_mine.fd);
            cuda_mine.fd = -1;
        }
        cuda_pause_ns(MS);
    }
}
