/*
 * Contexts and memory, as a program uses them. Both libraries count what a program allocates on a GPU.
 *
 * The bytes are in the program's own memory, and a checkpoint does not touch them. A large allocation that is never
 * written therefore costs nothing. A call waits while the process is locked or checkpointed.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_MEMORY_H
#define PODIUM_FAKE_DRIVER_CUDA_MEMORY_H

#include "cuda_api.h"

extern const struct cuda_symbol cuda_memory_symbols[];

#endif
