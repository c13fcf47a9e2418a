/* The table of processes that use CUDA, as the daemon keeps it. See process_table.h. */
#define _GNU_SOURCE
#include "process_table.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PID_SEARCH_NS 10000000000ull /* an entry whose PID is not found by then belongs to none of these GPUs */

ssize_t read_proc(uint32_t pid, const char *name, char *out, size_t size) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%u/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t used = 0;
    ssize_t n;
    while (used < size - 1 && (n = read(fd, out + used, size - 1 - used)) > 0) used += (size_t)n;
    close(fd);
    out[used] = '\0';
    return (ssize_t)used;
}

/* Returns the clock ticks by which the start time of a process is later in its own time namespace; 0 without one. */
static int64_t clock_offset(uint32_t pid) {
    char text[256];
    long long seconds, ns;
    const char *line = read_proc(pid, "timens_offsets", text, sizeof text) > 0 ? strstr(text, "boottime") : NULL;
    if (line == NULL || sscanf(line, "boottime %lld %lld", &seconds, &ns) != 2) return 0;
    return (int64_t)((double)seconds * 100.0 + (double)ns / 1e7);
}

static int has_start_time(const struct cuda_process *entry, uint32_t pid, uint64_t start_time) {
    if (!entry->migrated) return entry->own_start == start_time;
    int64_t difference = (int64_t)(entry->own_start - start_time) - clock_offset(pid);
    return start_time != 0 && difference >= -1 && difference <= 1; /* both times are rounded to ticks */
}

/* A program in a container does not know its PID in the daemon's namespace. A process belongs to an entry if it started
 * in the same clock tick and has the same PID in its own namespace, which is the last one that NSpid lists. */
void process_table_assign_pid(struct state *state, uint32_t pid, uint64_t start_time) {
    char text[4096];
    uint32_t own_pid = 0;
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        struct cuda_process *entry = &state->cuda[i];
        if (entry->pid != 0 || entry->start_time == 0 || !has_start_time(entry, pid, start_time)) continue;
        if (own_pid == 0) {
            const char *line = read_proc(pid, "status", text, sizeof text) > 0 ? strstr(text, "\nNSpid:") : NULL;
            if (line == NULL) return;
            const char *end = line + 1 + strcspn(line + 1, "\n");
            while (end > line && !isspace((unsigned char)end[-1])) end--;
            own_pid = (uint32_t)strtoul(end, NULL, 10);
        }
        if (entry->own_pid != own_pid) continue;
        entry->start_time = start_time;
        __atomic_store_n(&entry->pid, pid, __ATOMIC_RELEASE);
    }
}

int process_table_has_unassigned_pid(const struct state *state) {
    for (uint32_t i = 0; i < state->cuda_used; i++)
        if (state->cuda[i].migrated && state->cuda[i].start_time != 0 && state->cuda[i].pid == 0) return 1;
    return 0;
}

/* The environment of a process that CRIU has moved here names GPUs of its old node, so the process is on no GPU until
 * its memory is restored. A process that a restore has put on other GPUs of this node is on those. */
uint32_t process_table_gpus(const struct state *state, uint32_t pid, uint32_t visible) {
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        const struct cuda_process *entry = &state->cuda[i];
        if (entry->start_time == 0 || entry->pid != pid) continue;
        if (entry->migrated) return entry->resident ? entry->gpus : 0;
        return visible != 0 && (entry->gpus & ~visible) != 0 ? entry->gpus : visible;
    }
    return visible;
}

void process_table_remove_dead(struct state *state, uint64_t now) {
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        struct cuda_process *entry = &state->cuda[i];
        if (entry->start_time == 0) continue;
        /* not `now - created_ns`: an entry that was created during this sample is younger than `now` */
        if (entry->pid == 0 ? now < entry->created_ns + PID_SEARCH_NS : cuda_process_is_alive(state, entry)) continue;
        *entry = (struct cuda_process){0};
    }
}
