/* cuInit, and the devices of a program. See cuda_devices.h. */
#define _GNU_SOURCE
#include "cuda_devices.h"

#include "cuda_device_map.h"
#include "device_nodes.h"
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUdevice;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct view view; /* read-only */
static int initialized;
static int32_t nodes = NO_DEVICE_NODES; /* as cuInit saw them: a program keeps its devices, also on another node */

/* Locks `guard` and maps the state for reading. After success the caller must call `leave`. */
static CUresult enter(void) {
    pthread_mutex_lock(&guard);
    CUresult r = CUDA_ERROR_NOT_INITIALIZED;
    if (initialized) r = cuda_result_from_errno(view_refresh(&view, state_path(), 0));
    if (r != CUDA_SUCCESS) pthread_mutex_unlock(&guard);
    return r;
}

static CUresult leave(CUresult r) {
    pthread_mutex_unlock(&guard);
    return r;
}

CUresult cuda_initialized(void) {
    CUresult r = enter();
    return r != CUDA_SUCCESS ? r : leave(r);
}

/* A program sees the GPUs whose device nodes its container has. In a container without the driver's device nodes it sees
 * those that NVIDIA_VISIBLE_DEVICES names, or every GPU if that is missing or "all". */
static int is_visible(int origin) {
    if (nodes != NO_DEVICE_NODES) return (nodes >> origin & 1) != 0;
    const char *list = getenv("NVIDIA_VISIBLE_DEVICES");
    return list == NULL || strcmp(list, "all") == 0 || strstr(list, cuda_device_map_uuid(view.state, origin)) != NULL;
}

static int origin_of(CUdevice device) {
    for (int origin = 0; origin < cuda_device_map_count(view.state); origin++)
        if (is_visible(origin) && device-- == 0) return origin;
    return -1;
}

/* Returns the GPU on which a device is now; NULL if it is on none of this node. */
static const struct gpu *gpu_of(CUdevice device) {
    int origin = origin_of(device), gpu = origin < 0 ? -1 : cuda_device_map_gpu(origin);
    return gpu < 0 || gpu >= (int)view.state->gpu_count ? NULL : &view.state->gpus[gpu];
}

int cuda_device_origin(CUdevice device) {
    if (enter() != CUDA_SUCCESS) return -1;
    int origin = origin_of(device);
    leave(CUDA_SUCCESS);
    return origin;
}

EXPORT CUresult cuInit(unsigned flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&guard);
    CUresult r = cuda_result_from_errno(view_refresh(&view, state_path(), 0));
    if (r == CUDA_SUCCESS && !initialized) nodes = device_nodes_gpus("", view.state->gpu_count);
    initialized = r == CUDA_SUCCESS;
    return leave(r);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
    if (version == NULL) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetCount(int *count) {
    if (count == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    *count = 0;
    for (int origin = 0; origin < cuda_device_map_count(view.state); origin++) *count += is_visible(origin);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    if (device == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    if (origin_of(ordinal) < 0) return leave(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    if (name == NULL || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    const struct gpu *gpu = gpu_of(device);
    if (gpu == NULL) return leave(CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)length, "%s", gpu->product);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetUuid_v2(unsigned char uuid[16], CUdevice device) {
    if (uuid == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    const struct gpu *gpu = gpu_of(device);
    if (gpu == NULL) return leave(CUDA_ERROR_INVALID_DEVICE);
    cuda_uuid_bytes(gpu->uuid, uuid);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    if (bytes == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    const struct gpu *gpu = gpu_of(device);
    if (gpu == NULL) return leave(CUDA_ERROR_INVALID_DEVICE);
    *bytes = gpu->memory_total;
    return leave(CUDA_SUCCESS);
}

const struct cuda_symbol cuda_devices_symbols[] = {
    {"cuInit", (void *)cuInit},
    {"cuDriverGetVersion", (void *)cuDriverGetVersion},
    {"cuDeviceGetCount", (void *)cuDeviceGetCount},
    {"cuDeviceGet", (void *)cuDeviceGet},
    {"cuDeviceGetName", (void *)cuDeviceGetName},
    {"cuDeviceGetUuid", (void *)cuDeviceGetUuid_v2},
    {"cuDeviceTotalMem", (void *)cuDeviceTotalMem_v2},
    {NULL, NULL},
};
