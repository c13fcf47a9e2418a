/* The GPUs that a container has by its device nodes. See device_nodes.h. */
#define _GNU_SOURCE
#include "device_nodes.h"

#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

enum { NVIDIA_MAJOR = 195, CONTROL_MINOR = 255 };

/* Only the numbers count, as for the kernel: a file of the same name is not a device. Opening the node fails without a
 * real driver, so it is not opened. */
static int is_node(const char *root, const char *name, unsigned minor_number) {
    char path[128];
    struct stat found;
    snprintf(path, sizeof path, "%s/dev/%s", root, name);
    return stat(path, &found) == 0 && S_ISCHR(found.st_mode) && major(found.st_rdev) == NVIDIA_MAJOR &&
           minor(found.st_rdev) == minor_number;
}

int32_t device_nodes_gpus(const char *root, unsigned gpu_count) {
    int32_t gpus = 0;
    if (!is_node(root, "nvidiactl", CONTROL_MINOR)) return NO_DEVICE_NODES;
    for (unsigned gpu = 0; gpu < gpu_count; gpu++) {
        char name[24];
        snprintf(name, sizeof name, "nvidia%u", gpu);
        if (is_node(root, name, gpu)) gpus |= (int32_t)(1u << gpu);
    }
    return gpus;
}
