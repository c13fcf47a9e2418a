/* Parse the faults of `podium-fake-gpud set` and `podium-fake-gpud checkpoint`. */
#ifndef PODIUM_FAKE_DRIVER_FAULTS_H
#define PODIUM_FAKE_DRIVER_FAULTS_H

#include "state.h"

extern const char FAULT_HELP[];

/* Parses a number of bytes such as "1073741824", "16Gi" or "500M". Returns 1 on success. */
int parse_bytes(const char *text, uint64_t *out);
/* Applies one "field=value"; an empty value clears the fault. Returns NULL, or what is wrong with it. */
const char *fault_set(struct gpu_faults *faults, const char *assignment);

extern const char CHECKPOINT_FAULT_HELP[];

/* The same for the faults of checkpoints. */
const char *checkpoint_fault_set(struct checkpoint_faults *faults, const char *assignment);

#endif
