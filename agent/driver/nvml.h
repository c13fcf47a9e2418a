/* What nvml.c and nvml_errors.c share. */
#ifndef PODIUM_FAKE_DRIVER_NVML_H
#define PODIUM_FAKE_DRIVER_NVML_H

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

typedef int result;
typedef struct device *device;
struct device {
    char mark; /* a handle is the address of its place in HANDLES */
};

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

extern struct device HANDLES[MAX_GPUS];

/* Maps the state (it may be a new file since the last call); after success the caller must nvml_leave. */
result nvml_enter(void);
/* Unlocks, and gives back what it was given. */
result nvml_leave(result r);
/* Copies one GPU out of the state; it is copied, too, when the answer is GPU_IS_LOST. */
result nvml_read_gpu(device handle, struct gpu *gpu);

/* Begins most calls: `gpu` is the GPU, or the call has returned. */
#define READ(handle, out)                                        \
    struct gpu gpu;                                              \
    if ((out) == NULL) return NVML_ERROR_INVALID_ARGUMENT;       \
    result reading = nvml_read_gpu(handle, &gpu);                     \
    if (reading != NVML_SUCCESS) return reading

#endif
