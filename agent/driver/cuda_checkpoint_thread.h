/*
 * The thread of a process that serves the checkpoint requests of other processes.
 *
 * It is a state machine over CUprocessState. The behaviour is that of the real driver:
 *   - a lock waits for the GPU work of the process;
 *   - a frozen process does not answer;
 *   - a checkpoint removes the process and its memory from NVML;
 *   - a restore that runs out of memory is final: the process remains CHECKPOINTED, and later restores fail.
 * The last point, and that a restore needs some MiB more than it restores, were observed with driver 580.159 on an
 * H100. Sources: NVIDIA's CUDA driver API reference 13.x, section "CUDA Checkpointing", and cuda-checkpoint issue 44.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_CHECKPOINT_THREAD_H
#define PODIUM_FAKE_DRIVER_CUDA_CHECKPOINT_THREAD_H

#include "cuda_api.h"

/* Creates the entry of this process and starts the thread. Later calls return the result of the first. */
CUresult cuda_checkpoint_thread_start(void);

#endif
