/*
 * Migration of a checkpointed process by CRIU.
 *
 * A checkpointed process holds no file of the driver open, so CRIU can move it to another node. The process checks
 * regularly whether CRIU has restored it. It then creates a new entry in the shared state of its node, under which its
 * GPU memory can be restored. After NVIDIA's cuda-checkpoint README: "toggle, criu dump, criu restore, toggle". The
 * libraries remain mapped.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_MIGRATION_H
#define PODIUM_FAKE_DRIVER_CUDA_MIGRATION_H

#include "cuda_api.h"

#include <time.h>

/* Closes the shared state after a checkpoint. The mapping remains. */
void cuda_migration_close_state(void);
/* Opens the shared state again for the next request. */
CUresult cuda_migration_open_state(void);
/* Returns how long the checkpoint thread may wait for a request before it checks for a migration; NULL: no limit. */
const struct timespec *cuda_migration_check_interval(void);
/* Creates an entry on this node if CRIU has restored the process since the last call. */
void cuda_migration_check(void);

#endif
