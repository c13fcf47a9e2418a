/* NVML: what NVIDIA's device plugin, feature discovery and DRA driver ask of a GPU besides its readings. */
#define _GNU_SOURCE
#include "nvml.h"

enum { TOPOLOGY_INTERNAL = 0, TOPOLOGY_NODE = 40, ARCHITECTURE_HOPPER = 9, BRAND_NVIDIA = 14 };

static nvmlReturn_t constant(nvmlDevice_t handle, unsigned *out, unsigned value) {
    READ(handle, out);
    *out = value;
    return NVML_SUCCESS;
}

/* All GPUs of the node are below one NUMA node, each below a PCIe host bridge of its own. */
EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *level) {
    READ(one, level);
    nvmlReturn_t r = nvml_read_gpu(other, &gpu);
    if (r != NVML_SUCCESS) return r;
    *level = one == other ? TOPOLOGY_INTERNAL : TOPOLOGY_NODE;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, unsigned *out) {
    return constant(handle, out, ARCHITECTURE_HOPPER);
}
EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t handle, unsigned *out) {
    return constant(handle, out, BRAND_NVIDIA);
}
EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *out) {
    return constant(handle, out, 0);
}
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *out) {
    return constant(handle, out, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t handle, unsigned *out) {
    READ(handle, out);
    *out = (unsigned)(handle - HANDLES) + 1;
    return NVML_SUCCESS;
}

/* The persistence mode is always on. */
EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t handle, unsigned mode) {
    struct gpu gpu;
    nvmlReturn_t r = nvml_read_gpu(handle, &gpu);
    return r == NVML_SUCCESS && mode != 1 ? NVML_ERROR_NOT_SUPPORTED : r;
}
