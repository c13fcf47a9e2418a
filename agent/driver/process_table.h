/* The table of processes that use CUDA, as the daemon keeps it: it assigns PIDs and removes dead processes. */
#ifndef PODIUM_FAKE_DRIVER_PROCESS_TABLE_H
#define PODIUM_FAKE_DRIVER_PROCESS_TABLE_H

#include "state.h"

#include <sys/types.h>

/* Reads /proc/PID/NAME as a string. Returns its length; -1 if there is no such file. */
ssize_t read_proc(uint32_t pid, const char *name, char *out, size_t size);
/* Writes the PID of a process into the entry that the process has created in its container, if there is one.
 * `start_time` is that of the process in the daemon's time namespace. */
void process_table_assign_pid(struct state *state, uint32_t pid, uint64_t start_time);
/* Returns whether CRIU has restored a process here whose PID is not known yet. */
int process_table_has_unassigned_pid(const struct state *state);
/* Returns the GPUs (bits) on which a process works. `visible` are those that its environment names, which apply unless
 * its entry lists others. */
uint32_t process_table_gpus(const struct state *state, uint32_t pid, uint32_t visible);
/* Removes entries of dead processes, and entries whose PID could not be found. */
void process_table_remove_dead(struct state *state, uint64_t now);

#endif
