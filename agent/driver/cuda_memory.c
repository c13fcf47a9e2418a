/*
 * Contexts and memory, as a program uses them: what it allocates is counted on the GPU by both libraries.
 *
 * The bytes themselves lie in the program's own memory, untouched by moves, so large allocations that are never written
 * cost nothing. A call made while the process is locked or checkpointed waits until it is unlocked.
 */
#define _GNU_SOURCE
#include "cuda.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct allocation {
    char *at;
    size_t size;
    int gpu;
    struct allocation *next;
};

static struct allocation *allocations;
static unsigned retained[MAX_GPUS];
static _Thread_local int current = -1; /* the GPU (its home) of the context that is current in this thread */

/* A context is a handle that names its GPU; never NULL. */
static void *context_of(int gpu) { return (void *)(uintptr_t)(0xc0de0000u + (unsigned)gpu); }

static int gpu_of_context(const void *context) {
    uintptr_t gpu = (uintptr_t)context - 0xc0de0000u;
    return gpu < MAX_GPUS && retained[gpu] > 0 ? (int)gpu : -1;
}

static result enter(void) {
    if (cuda_self == NULL || current < 0) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&cuda_gpu_calls);
    return CUDA_SUCCESS;
}

static result leave(result r) {
    pthread_mutex_unlock(&cuda_gpu_calls);
    return r;
}

static result count(int gpu, size_t size, int more) {
    result r = cuda_of_errno(state_write_begin(&cuda_mine));
    if (r != CUDA_SUCCESS) return r;
    int now = cuda_gpu_now(gpu);
    if (!more) cuda_self->bytes[now] -= size;
    else if (gpu_free(cuda_mine.state, (unsigned)now) < size) r = CUDA_ERROR_OUT_OF_MEMORY;
    else cuda_self->bytes[now] += size;
    state_write_end(&cuda_mine);
    return r;
}

EXPORT result cuDevicePrimaryCtxRetain(void **context, int device) {
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = cuda_initialized();
    int gpu = r == CUDA_SUCCESS ? cuda_gpu_of(device) : -1; /* its home */
    if (r == CUDA_SUCCESS && gpu < 0) r = CUDA_ERROR_INVALID_DEVICE;
    if (r == CUDA_SUCCESS) r = cuda_register();
    if (r != CUDA_SUCCESS) return r;
    pthread_mutex_lock(&cuda_gpu_calls);
    if (cuda_gpu_now(gpu) < 0) return leave(CUDA_ERROR_INVALID_DEVICE);
    r = cuda_of_errno(state_write_begin(&cuda_mine));
    if (r != CUDA_SUCCESS) return leave(r);
    cuda_self->gpus |= 1u << cuda_gpu_now(gpu);
    state_write_end(&cuda_mine);
    retained[gpu]++;
    *context = context_of(gpu);
    return leave(CUDA_SUCCESS);
}

static void release_all(int gpu) {
    for (struct allocation **at = &allocations; *at != NULL;) {
        struct allocation *one = *at;
        if (one->gpu != gpu) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        munmap(one->at, one->size);
        free(one);
    }
}

EXPORT result cuDevicePrimaryCtxRelease_v2(int device) {
    int gpu = cuda_gpu_of(device);
    if (cuda_self == NULL || gpu < 0 || retained[gpu] == 0) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&cuda_gpu_calls);
    if (--retained[gpu] > 0) return leave(CUDA_SUCCESS);
    release_all(gpu);
    result r = cuda_of_errno(state_write_begin(&cuda_mine));
    if (r != CUDA_SUCCESS) return leave(r);
    cuda_self->bytes[cuda_gpu_now(gpu)] = 0;
    cuda_self->gpus &= ~(1u << cuda_gpu_now(gpu));
    state_write_end(&cuda_mine);
    return leave(CUDA_SUCCESS);
}

EXPORT result cuCtxSetCurrent(void *context) {
    int gpu = context == NULL ? -1 : gpu_of_context(context);
    if (context != NULL && gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    current = gpu;
    return CUDA_SUCCESS;
}

EXPORT result cuCtxGetCurrent(void **context) {
    if (context == NULL) return CUDA_ERROR_INVALID_VALUE;
    *context = current < 0 ? NULL : context_of(current);
    return CUDA_SUCCESS;
}

EXPORT result cuCtxSynchronize(void) {
    result r = enter();
    return r != CUDA_SUCCESS ? r : leave(CUDA_SUCCESS);
}

EXPORT result cuMemAlloc_v2(uint64_t *out, size_t size) {
    if (out == NULL || size == 0) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    struct allocation *one = malloc(sizeof *one);
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    r = one == NULL || at == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : count(current, size, 1);
    if (r != CUDA_SUCCESS) {
        if (at != MAP_FAILED) munmap(at, size);
        free(one);
        return leave(r);
    }
    *one = (struct allocation){.at = at, .size = size, .gpu = current, .next = allocations};
    allocations = one;
    *out = (uintptr_t)at;
    return leave(CUDA_SUCCESS);
}

EXPORT result cuMemFree_v2(uint64_t pointer) {
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    struct allocation **at = &allocations;
    while (*at != NULL && (uintptr_t)(*at)->at != pointer) at = &(*at)->next;
    struct allocation *one = *at;
    if (one == NULL) return leave(CUDA_ERROR_INVALID_VALUE);
    r = count(one->gpu, one->size, 0);
    if (r != CUDA_SUCCESS) return leave(r);
    *at = one->next;
    munmap(one->at, one->size);
    free(one);
    return leave(CUDA_SUCCESS);
}

EXPORT result cuMemGetInfo_v2(size_t *unused, size_t *total) {
    if (unused == NULL || total == NULL) return CUDA_ERROR_INVALID_VALUE;
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    int now = cuda_gpu_now(current);
    *unused = gpu_free(cuda_mine.state, (unsigned)now);
    *total = cuda_mine.state->gpus[now].memory_total;
    return leave(CUDA_SUCCESS);
}

/* Where a piece of an allocation lies; NULL if it is not all inside of one. */
static char *inside(uint64_t pointer, size_t size) {
    for (const struct allocation *one = allocations; one != NULL; one = one->next) {
        uint64_t start = (uintptr_t)one->at;
        if (pointer >= start && pointer - start <= one->size && size <= one->size - (pointer - start))
            return one->at + (pointer - start);
    }
    return NULL;
}

EXPORT result cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    char *at = inside(to, size);
    if (at == NULL || from == NULL) return leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(at, from, size);
    return leave(CUDA_SUCCESS);
}

EXPORT result cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    result r = enter();
    if (r != CUDA_SUCCESS) return r;
    const char *at = inside(from, size);
    if (at == NULL || to == NULL) return leave(CUDA_ERROR_INVALID_VALUE);
    memcpy(to, at, size);
    return leave(CUDA_SUCCESS);
}

void *cuda_memory_symbol(const char *name) {
    static const struct {
        const char *name;
        void *function;
    } SYMBOLS[] = {
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
    };
    for (unsigned i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++)
        if (strcmp(SYMBOLS[i].name, name) == 0) return SYMBOLS[i].function;
    return NULL;
}
