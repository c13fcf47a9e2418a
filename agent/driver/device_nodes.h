/* The GPUs that a container has by its device nodes, /dev/nvidia0 and so on: how a real driver knows them. */
#ifndef PODIUM_FAKE_DRIVER_DEVICE_NODES_H
#define PODIUM_FAKE_DRIVER_DEVICE_NODES_H

#include <stdint.h>

enum { NO_DEVICE_NODES = -1 };

/* Returns the GPUs (bits) whose nodes are in `root`/dev. `root` is "" for the caller's own root, or /proc/PID/root.
 * Returns NO_DEVICE_NODES if the driver's control node, /dev/nvidiactl, is not there: the container then has no device
 * of the driver, and its environment decides. */
int32_t device_nodes_gpus(const char *root, unsigned gpu_count);

#endif
