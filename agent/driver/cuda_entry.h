/* The entry of this process in the shared state. A program gets it with its first context. */
#ifndef PODIUM_FAKE_DRIVER_CUDA_ENTRY_H
#define PODIUM_FAKE_DRIVER_CUDA_ENTRY_H

#include "cuda_api.h"
#include "state.h"

#include <pthread.h>

/* The entry; NULL before the first context. */
extern struct cuda_process *cuda_self;
/* The mapping of the shared state that holds the entry. */
extern struct view cuda_view;
/* Held by every call that uses the GPU, and by the checkpoint thread while the process is locked. */
extern pthread_mutex_t cuda_gpu_lock;

/* Creates the entry, and waits until the daemon has assigned its PID. */
CUresult cuda_entry_create(void);
/* Returns a free entry, or the one that the process used before it called exec; NULL if the table is full. */
struct cuda_process *cuda_entry_allocate(struct state *state, uint32_t own_pid, uint64_t start);

#endif
