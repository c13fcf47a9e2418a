/* Contexts and memory, as a program uses them. See cuda_memory.h. */
#define _GNU_SOURCE
#include "cuda_memory.h"

#include "cuda_checkpoint_thread.h"
#include "cuda_device_map.h"
#include "cuda_devices.h"
#include "cuda_entry.h"
#include "memory_limits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int CUdevice;
typedef void *CUcontext;
typedef uint64_t CUdeviceptr;

/* GPUs are named here by their origin (cuda_device_map.h). */
struct allocation {
    char *address;
    size_t size;
    int origin;
    struct allocation *next;
};

static struct allocation *allocations;
static unsigned retained[MAX_GPUS];           /* how often the primary context of a GPU is retained */
static _Thread_local int current_origin = -1; /* of the context that is current in this thread; -1: none */

/* A context is a handle that encodes its GPU; it is never NULL. */
static CUcontext context_of(int origin) { return (CUcontext)(uintptr_t)(0xc0de0000u + (unsigned)origin); }

static int origin_of_context(CUcontext context) {
    uintptr_t origin = (uintptr_t)context - 0xc0de0000u;
    return origin < MAX_GPUS && retained[origin] > 0 ? (int)origin : -1;
}

static CUresult enter(void) {
    if (cuda_self == NULL || current_origin < 0) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&cuda_gpu_lock);
    return CUDA_SUCCESS;
}

static CUresult leave(CUresult r) {
    pthread_mutex_unlock(&cuda_gpu_lock);
    return r;
}

static CUresult count_allocated(int origin, size_t size) {
    CUresult r = cuda_result_from_errno(state_write_begin(&cuda_view));
    if (r != CUDA_SUCCESS) return r;
    int gpu = cuda_device_map_gpu(origin);
    uint64_t limit = memory_limit_of_self(cuda_view.state->gpus[gpu].uuid), mine = cuda_self->bytes[gpu];
    if (gpu_free_bytes(cuda_view.state, (unsigned)gpu) < size) r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (mine > limit || size > limit - mine) r = CUDA_ERROR_OUT_OF_MEMORY;
    else cuda_self->bytes[gpu] += size;
    state_write_end(&cuda_view);
    return r;
}

static CUresult count_freed(int origin, size_t size) {
    CUresult r = cuda_result_from_errno(state_write_begin(&cuda_view));
    if (r != CUDA_SUCCESS) return r;
    cuda_self->bytes[cuda_device_map_gpu(origin)] -= size;
    state_write_end(&cuda_view);
    return r;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = cuda_initialized();
    int origin = r == CUDA_SUCCESS ? cuda_device_origin(device) : -1;
    if (r == CUDA_SUCCESS && origin < 0) r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS) r = cuda_checkpoint_thread_start();
    if (r != CUDA_SUCCESS) return r;
    pthread_mutex_lock(&cuda_gpu_lock);
    if (cuda_device_map_gpu(origin) < 0) return leave(CUDA_ERROR_INVALID_DEVICE);
    r = cuda_result_from_errno(state_write_begin(&cuda_view));
    if (r != CUDA_SUCCESS) return leave(r);
    cuda_self->gpus |= 1u << cuda_device_map_gpu(origin);
    state_write_end(&cuda_view);
    retained[origin]++;
    *context = context_of(origin);
    return leave(CUDA_SUCCESS);
}

static void free_allocations(int origin) {
    for (struct allocation **at = &allocations; *at != NULL;) {
        struct allocation *allocation = *at;
        if (allocation->origin != origin) {
            at = &allocation->next;
            continue;
        }
        *at = allocation->next;
        munmap(allocation->address, allocation->size);
        free(allocation);
    }
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    int origin = cuda_device_origin(device);
    if (cuda_self == NULL || origin < 0 || retained[origin] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&cuda_gpu_lock);
    if (--retained[origin] > 0) return leave(CUDA_SUCCESS);
    free_allocations(origin);
    CUresult r = cuda_result_from_errno(state_write_begin(&cuda_view));
    if (r != CUDA_SUCCESS) return leave(r);
    cuda_self->bytes[cuda_device_map_gpu(origin)] = 0;
    cuda_self->gpus &= ~(1u << cuda_device_map_gpu(origin));
    state_write_end(&cuda_view);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    int origin = context == NULL ? -1 : origin_of_context(context);
    if (context != NULL && origin < 0) return CUDA_ERROR_INVALID_CONTEXT;
    current_origin = origin;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context) {
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    *context = current_origin < 0 ? NULL : context_of(current_origin);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
    CUresult r = enter();
    return r != CUDA_SUCCESS ? r : leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size) {
    if (out == NULL || size == 0) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    struct allocation *allocation = malloc(sizeof *allocation);
    char *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int mapped = allocation != NULL && address != MAP_FAILED;
    r = mapped ? count_allocated(current_origin, size) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        if (address != MAP_FAILED) munmap(address, size);
        free(allocation);
        return leave(r);
    }
    *allocation = (struct allocation){.address = address, .size = size, .origin = current_origin, .next = allocations};
    allocations = allocation;
    *out = (uintptr_t)address;
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    struct allocation **at = &allocations;
    while (*at != NULL && (uintptr_t)(*at)->address != pointer) at = &(*at)->next;
    struct allocation *allocation = *at;
    if (allocation == NULL) return leave(CUDA_ERROR_INVALID_VALUE);
    r = count_freed(allocation->origin, allocation->size);
    if (r != CUDA_SUCCESS) return leave(r);
    *at = allocation->next;
    munmap(allocation->address, allocation->size);
    free(allocation);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
    if (unused == NULL || total == NULL) return CUDA_ERROR_INVALID_VALUE;
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    int gpu = cuda_device_map_gpu(current_origin);
    *unused = gpu_free_bytes(cuda_view.state, (unsigned)gpu);
    *total = cuda_view.state->gpus[gpu].memory_total;
    return leave(CUDA_SUCCESS);
}

/* Returns the address of a range of device memory; NULL if the range is not within one allocation. */
static char *address_of(CUdeviceptr pointer, size_t size) {
    for (const struct allocation *allocation = allocations; allocation != NULL; allocation = allocation->next) {
        uint64_t start = (uintptr_t)allocation->address;
        if (pointer >= start && pointer - start <= allocation->size && size <= allocation->size - (pointer - start))
            return allocation->address + (pointer - start);
    }
    return NULL;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    char *address = address_of(to, size);
    if (address == NULL || from == NULL) return leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(address, from, size);
    return leave(CUDA_SUCCESS);
}

EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t size) {
    CUresult r = enter();
    if (r != CUDA_SUCCESS) return r;
    const char *address = address_of(from, size);
    if (address == NULL || to == NULL) return leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(to, address, size);
    return leave(CUDA_SUCCESS);
}

const struct cuda_symbol cuda_memory_symbols[] = {
    {"cuDevicePrimaryCtxRetain", (void *)cuDevicePrimaryCtxRetain},
    {"cuDevicePrimaryCtxRelease", (void *)cuDevicePrimaryCtxRelease_v2},
    {"cuCtxSetCurrent", (void *)cuCtxSetCurrent},
    {"cuCtxGetCurrent", (void *)cuCtxGetCurrent},
    {"cuCtxSynchronize", (void *)cuCtxSynchronize},
    {"cuMemAlloc", (void *)cuMemAlloc_v2},
    {"cuMemFree", (void *)cuMemFree_v2},
    {"cuMemGetInfo", (void *)cuMemGetInfo_v2},
    {"cuMemcpyHtoD", (void *)cuMemcpyHtoD_v2},
    {"cuMemcpyDtoH", (void *)cuMemcpyDtoH_v2},
    {NULL, NULL},
};
