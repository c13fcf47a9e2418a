/* The entries of processes that hold CUDA, as the daemon keeps them: it names them and clears them away. Used by sampler.c. */
#ifndef PODIUM_FAKE_DRIVER_ENTRIES_H
#define PODIUM_FAKE_DRIVER_ENTRIES_H

#include "state.h"

#include <sys/types.h>

/* A file of /proc/PID, ended by a zero; -1: there is none. */
ssize_t read_proc(uint32_t pid, const char *what, char *out, size_t room);
/* Writes a process's pid into the entry that it has made in its container, if there is one; `start_time` as it is here. */
void entries_name(struct state *state, uint32_t pid, uint64_t start_time);
/* Whether CRIU has brought a process here whose pid is not known yet. */
int entries_any_unnamed(const struct state *state);
/* The GPUs (bits) where a process works whose environment names `named`: those, if its entry does not say otherwise. */
uint32_t entries_gpus(const struct state *state, uint32_t pid, uint32_t named);
/* Takes away those of processes that are gone, and those that nobody has found. */
void entries_clear(struct state *state, uint64_t now);

#endif
