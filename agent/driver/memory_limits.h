/* Limits of GPU memory by cgroup (nvmlDeviceSetMemoryLimits_v1), in a text file beside the state.
 *
 * NVML writes a line for each GPU and cgroup: UUID, inode of the cgroup's folder, bytes, path. libcuda looks for the
 * cgroups of its own process. It goes by inodes, because a container sees other paths than the host. A limit holds for
 * each process of the cgroup, not for their sum as with the real driver. */
#ifndef PODIUM_FAKE_DRIVER_MEMORY_LIMITS_H
#define PODIUM_FAKE_DRIVER_MEMORY_LIMITS_H

#include <stdint.h>

#define NO_MEMORY_LIMIT UINT64_MAX

/* Sets the limit of a cgroup, by its folder, on a GPU. Forgets the limits of removed cgroups. Returns 0 or an errno. */
int memory_limit_set(const char *uuid, const char *cgroup, uint64_t bytes);
/* Returns the smallest limit of this process's cgroup and those above it on a GPU; NO_MEMORY_LIMIT without one. */
uint64_t memory_limit_of_self(const char *uuid);

#endif
