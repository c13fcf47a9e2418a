/* The entries of processes that hold CUDA, as the daemon keeps them: it names them and clears them away. Used by sampler.c. */
#ifndef PODIUM_FAKE_DRIVER_ENTRIES_H
#define PODIUM_FAKE_DRIVER_ENTRIES_H

#include "state.h"

#include <sys/types.h>

/* A file of /proc/PID, ended by a zero; -1: there is none. */
ssize_t read_proc(uint32_t pid, const char *what, char *out, size_t room);
/* Writes a process's pid into the entry that it has made in its container, if there is one; `start_time` as it is here. */
void entries_name(struct state *state, uint32_t pid, uint64_t start_time);
/* The entry of a process that CRIU has brought to this node; NULL: it began here. */
const struct cuda_process *entries_arrived(const struct state *state, uint32_t pid);
/* Whether any was brought here; `unnamed`: whether the pid of one is not known. */
int entries_any_arrived(const struct state *state, int *unnamed);
/* Takes away those of processes that are gone, and those that nobody has found. */
void entries_clear(struct state *state, uint64_t now);

#endif
