/*
 * CUDA driver API: the result codes, and the table type in which each module lists its entry points.
 *
 * The lowest layer of libcuda.so.1, used by all its modules. README.md shows the layers.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_API_H
#define PODIUM_FAKE_DRIVER_CUDA_API_H

#define EXPORT __attribute__((visibility("default")))

typedef int CUresult;
enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_UNKNOWN = 999,
};

/* An entry point that cuGetProcAddress returns by its name. A table of them ends with a name of NULL. */
struct cuda_symbol {
    const char *name;
    void *function;
};

extern const struct cuda_symbol cuda_api_symbols[];

/* Returns the result code for an errno of the shared state; CUDA_SUCCESS for 0. */
CUresult cuda_result_from_errno(int error);

#endif
