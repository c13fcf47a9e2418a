/*
 * cuCheckpointProcess*: requests to another process to lock, checkpoint, restore or unlock itself.
 *
 * The other process serves the request (cuda_checkpoint_thread.h), as with the real driver. So a frozen process does
 * not answer, and a call returns an error when the process dies.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_CHECKPOINT_H
#define PODIUM_FAKE_DRIVER_CUDA_CHECKPOINT_H

#include "cuda_api.h"

extern const struct cuda_symbol cuda_checkpoint_symbols[];

#endif
