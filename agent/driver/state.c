/* Map, lock and read the shared state. Linked into both libraries and the daemon; see state.h. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READ_TRIES 100
#define READ_PAUSE_NS 500000 /* READ_TRIES times: a reader gives up after 50 ms */

const char *state_path(void) {
    const char *path = getenv(STATE_PATH_ENV);
    return path != NULL && *path != '\0' ? path : STATE_PATH_DEFAULT;
}

void view_close(struct view *view) {
    if (view->state != NULL) munmap(view->state, sizeof *view->state);
    if (view->state != NULL && view->fd >= 0) close(view->fd);
    view->state = NULL;
}

static int map_file(struct view *view, const char *path, int writable) {
    int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd < 0) return errno;
    struct stat file;
    int error = fstat(fd, &file) != 0 ? errno : file.st_size < (off_t)sizeof(struct state) ? EPROTO : 0;
    struct state *state = MAP_FAILED;
    if (error == 0) {
        state = mmap(NULL, sizeof *state, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (state == MAP_FAILED) error = errno;
    }
    if (error == 0 && (memcmp(state->magic, STATE_MAGIC, sizeof state->magic) != 0 || state->version != STATE_VERSION ||
                       state->size != sizeof *state || state->gpu_count > MAX_GPUS)) {
        munmap(state, sizeof *state);
        error = EPROTO;
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    if (!writable) { /* only a writer's lock needs the descriptor, and a checkpointed process must hold no file open */
        close(fd);
        fd = -1;
    }
    *view = (struct view){.fd = fd, .writable = writable, .inode = file.st_ino, .device = file.st_dev, .state = state};
    return 0;
}

int view_refresh(struct view *view, const char *path, int writable) {
    struct stat file;
    if (stat(path, &file) != 0) {
        int error = errno;
        view_close(view);
        return error;
    }
    if (view->state != NULL && file.st_ino == view->inode && file.st_dev == view->device) return 0;
    view_close(view);
    return map_file(view, path, writable);
}

void state_read_gpu(const struct state *state, unsigned index, struct gpu *out) {
    const struct timespec pause = {.tv_nsec = READ_PAUSE_NS};
    for (int try = 0; try < READ_TRIES; try++) {
        uint32_t before = __atomic_load_n(&state->sequence, __ATOMIC_ACQUIRE);
        if ((before & 1) == 0) {
            memcpy(out, &state->gpus[index], sizeof *out);
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (__atomic_load_n(&state->sequence, __ATOMIC_RELAXED) == before) return;
        }
        if (try > 3) nanosleep(&pause, NULL);
    }
    memcpy(out, &state->gpus[index], sizeof *out);
}

int state_write_begin(struct view *view) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    while (fcntl(view->fd, F_OFD_SETLKW, &lock) != 0)
        if (errno != EINTR) return errno;
    __atomic_store_n(&view->state->sequence, view->state->sequence | 1, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return 0;
}

void state_write_end(struct view *view) {
    struct flock unlock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    __atomic_store_n(&view->state->sequence, view->state->sequence + 1, __ATOMIC_RELEASE);
    fcntl(view->fd, F_OFD_SETLK, &unlock);
}

uint64_t process_start_time(uint32_t pid) {
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    char *field = strrchr(text, ')'); /* the process name before it may contain blanks and parentheses */
    if (field != NULL && (field[2] == 'Z' || field[2] == 'X')) return 0; /* a zombie */
    for (int skip = 0; field != NULL && skip < 20; skip++) field = strchr(field + 1, ' ');
    return field == NULL ? 0 : strtoull(field + 1, NULL, 10);
}

uint64_t monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

uint64_t own_pid_namespace(void) {
    static uint64_t inode; /* constant: a process never leaves its PID namespace */
    struct stat file;
    if (inode == 0 && stat("/proc/self/ns/pid", &file) == 0) inode = file.st_ino;
    return inode;
}

int cuda_process_is_alive(const struct state *state, const struct cuda_process *process) {
    if (process->start_time == 0) return 0;
    if (process->pid == 0 || state->pid_namespace != own_pid_namespace()) return 1;
    return process_start_time(process->pid) == process->start_time;
}

struct cuda_process *cuda_process_find(struct state *state, uint32_t pid, uint64_t start_time) {
    for (uint32_t i = 0; i < state->cuda_used; i++)
        if (state->cuda[i].pid == pid && state->cuda[i].start_time == start_time) return &state->cuda[i];
    return NULL;
}

int checkpoint_fault_applies(const struct state *state, const struct cuda_process *process, uint32_t bits) {
    const struct checkpoint_faults *faults = &state->checkpoint_faults;
    return bits != 0 && (faults->pid == 0 || faults->pid == process->pid);
}

/* Adds or updates a process in the list of a GPU. Removes it if it is checkpointed (`listed` is 0). */
static void update_process_list(struct gpu_measurements *measurements, uint32_t pid, int listed, uint64_t memory) {
    uint32_t at = 0;
    while (at < measurements->process_count && measurements->processes[at].pid != pid) at++;
    if (!listed) {
        if (at == measurements->process_count) return;
        measurements->processes[at] = measurements->processes[--measurements->process_count];
        return;
    }
    if (at == MAX_PROCESSES) return;
    if (at == measurements->process_count) measurements->process_count++;
    measurements->processes[at] = (struct gpu_process){.pid = pid, .memory = memory};
}

void cuda_processes_count(const struct state *state, unsigned gpu, struct gpu_measurements *measurements) {
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        const struct cuda_process *process = &state->cuda[i];
        uint32_t pid = process->pid;
        if (process->start_time == 0 || pid == 0 || (process->gpus & (1u << gpu)) == 0) continue;
        update_process_list(measurements, pid, process->resident != 0, process->bytes[gpu]);
        if (process->resident) measurements->memory_used += process->bytes[gpu];
    }
}

uint64_t gpu_free_bytes(const struct state *state, unsigned gpu) {
    struct gpu_measurements measurements = state->gpus[gpu].measurements;
    cuda_processes_count(state, gpu, &measurements);
    uint64_t total = state->gpus[gpu].memory_total, used = measurements.memory_used + state->gpus[gpu].faults.memory;
    return used < total ? total - used : 0;
}
