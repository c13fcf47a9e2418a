/* NVML: the return codes, and access to the GPUs of the shared state. Used by nvml_*.c. */
#ifndef PODIUM_FAKE_DRIVER_NVML_H
#define PODIUM_FAKE_DRIVER_NVML_H

#include "state.h"

#define EXPORT __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
struct nvmlDevice_st {
    char unused; /* a handle is the address of an element of HANDLES */
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
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

extern struct nvmlDevice_st HANDLES[MAX_GPUS];

/* Locks the library and maps the state, whose file may be new. After success the caller must call nvml_leave. */
nvmlReturn_t nvml_enter(void);
/* Unlocks the library and returns `r`. */
nvmlReturn_t nvml_leave(nvmlReturn_t r);
/* Copies one GPU from the state, also when it returns GPU_IS_LOST. */
nvmlReturn_t nvml_read_gpu(nvmlDevice_t handle, struct gpu *gpu);

/* Begins most functions: defines `gpu`, a copy of the GPU, or returns an error. */
#define READ(handle, out)                                   \
    struct gpu gpu;                                         \
    if ((out) == NULL) return NVML_ERROR_INVALID_ARGUMENT;  \
    nvmlReturn_t read_result = nvml_read_gpu(handle, &gpu); \
    if (read_result != NVML_SUCCESS) return read_result

#endif
