/* What `podium-fake-gpud set` can put on a GPU, and `podium-fake-gpud checkpoint` on checkpoints. Used by gpud.c. */
#ifndef PODIUM_FAKE_DRIVER_FAULTS_H
#define PODIUM_FAKE_DRIVER_FAULTS_H

#include "state.h"

extern const char FAULT_HELP[];

/* "1073741824", "16Gi", "500M": 1 if it is a number of bytes. */
int parse_bytes(const char *text, uint64_t *out);
/* Applies one "field=value"; an empty value takes the fault back. NULL, or what is wrong. */
const char *fault_set(struct gpu_faults *faults, const char *assignment);


extern const char CHECKPOINT_FAULT_HELP[];
/* The same for the moves of processes that hold CUDA. */
const char *checkpoint_fault_set(struct checkpoint_faults *faults, const char *assignment);

#endif
