/* What the parts of libcuda.so.1 share: result codes, the state, and the process's own entry in it. */
#ifndef PODIUM_FAKE_DRIVER_CUDA_H
#define PODIUM_FAKE_DRIVER_CUDA_H

#include "state.h"

#include <pthread.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

typedef int result;
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

result cuda_of_errno(int why);
/* CUDA_SUCCESS once cuInit has been called. */
result cuda_initialized(void);
/* The node's index of the GPU that this process knows as `device` (NVIDIA_VISIBLE_DEVICES); -1: there is none. */
int cuda_gpu_of(int device);
/* The function of that name, of any part; NULL if there is none. */
void *cuda_memory_symbol(const char *name);
void *cuda_checkpoint_symbol(const char *name);

/* The process's own entry and the mapping that it lies in; NULL before its first context. */
extern struct view cuda_mine;
extern struct cuda_process *cuda_self;
/* Where the GPU that this process began to use as its `i` lies now: a restore may have put it on another. */
extern uint8_t cuda_place[MAX_GPUS];
/* Held by every call that touches the GPU, and by the thread that carries out moves while the process is locked. */
extern pthread_mutex_t cuda_gpu_calls;
void cuda_pause_ns(long ns);
void cuda_futex_wait(uint32_t *word, uint32_t seen, const struct timespec *most);
void cuda_futex_wake(uint32_t *word);
uint32_t cuda_load(const uint32_t *word);
/* Whether a fault with these bits concerns this process. */
int cuda_has_fault(const struct state *state, const struct cuda_process *process, uint32_t bits);
/* "GPU-..." as the sixteen bytes that CUDA gives. */
void cuda_uuid_bytes(const char *text, unsigned char out[16]);
/* Makes the entry, and the thread that carries out moves. */
result cuda_register(void);

#endif
