/*
 * libcuda.so.1 of the fake driver: start, devices, names of errors, and the look-up of every function by its name.
 *
 * The agent loads it as it would the real one; programs that are tried on it do as well (cuda_memory.c). The state of a
 * process lies in the shared file, so that what is checkpointed is so for every agent, and for NVML.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct view reading;
static int initialized;

result cuda_of_errno(int why) {
    if (why == 0) return CUDA_SUCCESS;
    if (why == ENOENT || why == EPROTO) return CUDA_ERROR_NO_DEVICE;
    return why == EACCES || why == EPERM || why == EROFS ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_OPERATING_SYSTEM;
}

/* Locks and maps for reading; on success the caller unlocks. */
static result enter(void) {
    pthread_mutex_lock(&guard);
    result r = initialized ? cuda_of_errno(view_refresh(&reading, state_path(), 0)) : CUDA_ERROR_NOT_INITIALIZED;
    if (r != CUDA_SUCCESS) pthread_mutex_unlock(&guard);
    return r;
}

static result leave(result r) {
    pthread_mutex_unlock(&guard);
    return r;
}

result cuda_initialized(void) {
    result r = enter();
    return r != CUDA_SUCCESS ? r : leave(r);
}

/* A container sees the GPUs that its NVIDIA_VISIBLE_DEVICES names; without it, or with "all", a program sees them all. */
static int visible(int home) {
    const char *list = getenv("NVIDIA_VISIBLE_DEVICES");
    return list == NULL || strcmp(list, "all") == 0 || strstr(list, cuda_home_uuid(reading.state, home)) != NULL;
}

static int gpu_of(int device) {
    for (int home = 0; home < cuda_home_count(reading.state); home++)
        if (visible(home) && device-- == 0) return home;
    return -1;
}

/* As it lies on the node now. */
static const struct gpu *gpu_now(int device) {
    int home = gpu_of(device), now = home < 0 ? -1 : cuda_gpu_now(home);
    return now < 0 || now >= (int)reading.state->gpu_count ? NULL : &reading.state->gpus[now];
}

int cuda_gpu_of(int device) {
    if (enter() != CUDA_SUCCESS) return -1;
    int gpu = gpu_of(device);
    leave(CUDA_SUCCESS);
    return gpu;
}

EXPORT result cuInit(unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&guard);
    result r = cuda_of_errno(view_refresh(&reading, state_path(), 0));
    initialized = r == CUDA_SUCCESS;
    return leave(r);
}

EXPORT result cuDriverGetVersion(int *version) {
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT result cuDeviceGetCount(int *count) {
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    *count = 0;
    for (int home = 0; home < cuda_home_count(reading.state); home++) *count += visible(home);
    return leave(CUDA_SUCCESS);
}


EXPORT result cuDeviceGet(int *device, int ordinal) {
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    if (gpu_of(ordinal) < 0) return leave(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return leave(CUDA_SUCCESS);
}

EXPORT result cuDeviceGetName(char *name, int length, int device) {
    if (name == NULL || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    const struct gpu *gpu = gpu_now(device);
    if (gpu == NULL) return leave(CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "%s", gpu->product);
    return leave(CUDA_SUCCESS);
}

void cuda_uuid_bytes(const char *text, unsigned char out[16]) {
    text += 4; /* after "GPU-" */
    for (int i = 0; i < 16 && *text != '\0'; i++, text += 2) {
        unsigned byte = 0;
        if (*text == '-') text++;
        sscanf(text, "%2x", &byte);
        out[i] = (unsigned char)byte;
    }
}

EXPORT result cuDeviceGetUuid_v2(unsigned char uuid[16], int device) {
    if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    const struct gpu *gpu = gpu_now(device);
    if (gpu == NULL) return leave(CUDA_ERROR_INVALID_DEVICE);
    cuda_uuid_bytes(gpu->uuid, uuid);
    return leave(CUDA_SUCCESS);
}

EXPORT result cuDeviceTotalMem_v2(size_t *bytes, int device) {
    if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    const struct gpu *gpu = gpu_now(device);
    if (gpu == NULL) return leave(CUDA_ERROR_INVALID_DEVICE);
    *bytes = gpu->memory_total;
    return leave(CUDA_SUCCESS);
}

static const struct {
    result code;
    const char *name;
    const char *text;
} ERRORS[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static result describe(result code, const char **out, int name) {
    if (out == NULL) return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (unsigned i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (ERRORS[i].code == code) *out = name ? ERRORS[i].name : ERRORS[i].text;
    return *out == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT result cuGetErrorName(result code, const char **out) { return describe(code, out, 1); }
EXPORT result cuGetErrorString(result code, const char **out) { return describe(code, out, 0); }

EXPORT result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);

#define ENTRY(name) {#name, (void *)name}
static const struct {
    const char *name;
    void *function;
} SYMBOLS[] = {
    ENTRY(cuInit),
    ENTRY(cuDriverGetVersion),
    ENTRY(cuDeviceGetCount),
    ENTRY(cuDeviceGet),
    ENTRY(cuDeviceGetName),
    {"cuDeviceGetUuid", (void *)cuDeviceGetUuid_v2},
    {"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2},
    ENTRY(cuGetErrorName),
    ENTRY(cuGetErrorString),
    {"cuGetProcAddress", (void *)cuGetProcAddress_v2},
    {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2},
};

EXPORT result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    if (symbol == NULL || function == NULL) return CUDA_ERROR_INVALID_VALUE;
    *function = cuda_checkpoint_symbol(symbol);
    if (*function == NULL) *function = cuda_memory_symbol(symbol);
    for (unsigned i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (strcmp(SYMBOLS[i].name, symbol) == 0) *function = SYMBOLS[i].function;
    if (status != NULL) *status = *function != NULL ? 0 : 1; /* CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND */
    return *function != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
