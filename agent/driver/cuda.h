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
/* The index, on the node where this process began, of what it knows as `device` (NVIDIA_VISIBLE_DEVICES); -1: none. */
int cuda_gpu_of(int device);
/* The function of that name, of any part; NULL if there is none. */
void *cuda_memory_symbol(const char *name);
void *cuda_checkpoint_symbol(const char *name);

/* The process's own entry and the mapping that it lies in; NULL before its first context. */
extern struct view cuda_mine;
extern struct cuda_process *cuda_self;
/* Held by every call that touches the GPU, and by the thread that carries out moves while the process is locked. */
extern pthread_mutex_t cuda_gpu_calls;

/* cuda_homes.c: a GPU is known in the process by its index where the process began, `home`, for ever. */
void cuda_homes_begin(const struct state *state);
/* Whether a map leads from each of the bits `used` to a GPU of the same product. */
int cuda_homes_fit(const struct state *state, uint32_t used, const uint8_t map[MAX_GPUS]);
/* A restore put what lay on GPU i on map[i]. */
void cuda_homes_map(const struct state *state, const uint8_t map[MAX_GPUS]);
int cuda_home_count(const struct state *state);
const char *cuda_home_uuid(const struct state *state, int home);
/* Where it lies on this node now; -1: on none of its GPUs. */
int cuda_gpu_now(int home);

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
/* A free entry of the state, or that of before it called exec; NULL if there is none. */
struct cuda_process *cuda_free_entry(struct state *state, uint32_t own_pid, uint64_t start);
/* cuda_away.c: once checkpointed it keeps no file of the driver open, as with the real one; a restore opens it again. */
void cuda_let_go(void);
result cuda_take_up(void);
/* How long the thread may sleep; NULL: until it is asked. If the process was brought back on another node meanwhile,
 * `cuda_settle` makes an entry there. */
const struct timespec *cuda_look_again(void);
void cuda_settle(void);

#endif
