/* Entries of processes that hold CUDA. See entries.h. */
#define _GNU_SOURCE
#include "entries.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNNAMED_NS 10000000000ull /* a process that holds CUDA and is on none of our GPUs is given up */

ssize_t read_proc(uint32_t pid, const char *what, char *out, size_t room) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%u/%s", pid, what);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    size_t used = 0;
    ssize_t n;
    while (used < room - 1 && (n = read(fd, out + used, room - 1 - used)) > 0) used += (size_t)n;
    close(fd);
    out[used] = '\0';
    return (ssize_t)used;
}

/* By how many clock ticks a process sees itself born later than others do: 0 but for one in a time namespace. */
static int64_t clock_shift(uint32_t pid) {
    char text[256];
    long long seconds, ns;
    const char *line = read_proc(pid, "timens_offsets", text, sizeof text) > 0 ? strstr(text, "boottime") : NULL;
    if (line == NULL || sscanf(line, "boottime %lld %lld", &seconds, &ns) != 2) return 0;
    return (int64_t)((double)seconds * 100.0 + (double)ns / 1e7);
}

static int born_at(const struct cuda_process *entry, uint32_t pid, uint64_t start_time) {
    if (!entry->moved) return entry->own_start == start_time;
    int64_t between = (int64_t)(entry->own_start - start_time) - clock_shift(pid);
    return start_time != 0 && between >= -1 && between <= 1; /* both are whole ticks */
}

/* A program in a container does not know its pid here: it is the one that was born in the same clock tick and that calls
 * itself by the same pid. The kernel lists a process's pids from the outermost namespace to its own. */
void entries_name(struct state *state, uint32_t pid, uint64_t start_time) {
    char text[4096];
    uint32_t own_pid = 0;
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        struct cuda_process *entry = &state->cuda[i];
        if (entry->pid != 0 || entry->start_time == 0 || !born_at(entry, pid, start_time)) continue;
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

int entries_any_unnamed(const struct state *state) {
    for (uint32_t i = 0; i < state->cuda_used; i++)
        if (state->cuda[i].moved && state->cuda[i].start_time != 0 && state->cuda[i].pid == 0) return 1;
    return 0;
}

/* The environment of one that CRIU has brought here names GPUs of its old node: it is nowhere until it is restored. One
 * that a restore has put on other GPUs of this node is there, at work or not. */
uint32_t entries_gpus(const struct state *state, uint32_t pid, uint32_t named) {
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        const struct cuda_process *entry = &state->cuda[i];
        if (entry->start_time == 0 || entry->pid != pid) continue;
        if (entry->moved) return entry->resident ? entry->gpus : 0;
        return named != 0 && (entry->gpus & ~named) != 0 ? entry->gpus : named;
    }
    return named;
}

void entries_clear(struct state *state, uint64_t now) {
    for (uint32_t i = 0; i < state->cuda_used; i++) {
        struct cuda_process *entry = &state->cuda[i];
        if (entry->start_time == 0) continue;
        /* made while this sample was taken, it is younger than `now` */
        if (entry->pid == 0 ? now < entry->made_ns + UNNAMED_NS : cuda_process_lives(state, entry)) continue;
        *entry = (struct cuda_process){0};
    }
}
