/* NVML: limits of GPU memory by cgroup, which NVIDIA's container toolkit sets (apply-cuda-memory-limits). */
#define _GNU_SOURCE
#include "memory_limits.h"
#include "nvml.h"

typedef struct {
    const char *nameSpace; /* folder of the cgroup */
    unsigned long long softLimit, hardLimit; /* bytes */
} nvmlSetMemoryLimits_v1_t;

/* Only the hard limit has an effect. */
EXPORT nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t handle, nvmlSetMemoryLimits_v1_t *limits) {
    READ(handle, limits);
    uint64_t hard = limits->hardLimit;
    if (limits->nameSpace == NULL || limits->softLimit > hard) return NVML_ERROR_INVALID_ARGUMENT;
    if (hard != NO_MEMORY_LIMIT && hard > gpu.memory_total) return NVML_ERROR_INVALID_ARGUMENT;
    return memory_limit_set(gpu.uuid, limits->nameSpace, hard) == 0 ? NVML_SUCCESS : NVML_ERROR_OPERATING_SYSTEM;
}
