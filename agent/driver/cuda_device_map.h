/*
 * The mapping from a program's GPUs to the GPUs of the node.
 *
 * A program keeps the devices that it saw first. Each one is known by its `origin`: the index of the GPU on the node
 * where the program created its first context. A restore with a map puts the devices on other GPUs, of the same node or
 * of the node to which CRIU moved the program. Source: CUDA driver API 13.x, CUcheckpointGpuPair.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_DEVICE_MAP_H
#define PODIUM_FAKE_DRIVER_CUDA_DEVICE_MAP_H

#include "state.h"

/* Starts with every device on its origin. Before this call the devices are the node's GPUs. */
void cuda_device_map_init(const struct state *state);
/* Returns whether `map` sends each GPU in the bits `used` to a GPU of the same product. */
int cuda_device_map_fits(const struct state *state, uint32_t used, const uint8_t map[MAX_GPUS]);
/* Puts the devices of GPU i on GPU map[i]. */
void cuda_device_map_apply(const struct state *state, const uint8_t map[MAX_GPUS]);
/* Returns the number of origins. */
int cuda_device_map_count(const struct state *state);
/* Returns the UUID of the GPU on which a device was first. */
const char *cuda_device_map_uuid(const struct state *state, int origin);
/* Returns the index of the GPU on this node where a device is now; -1 if it is on none. */
int cuda_device_map_gpu(int origin);
/* Converts "GPU-..." to the sixteen bytes of a CUuuid. */
void cuda_uuid_bytes(const char *text, unsigned char out[16]);

#endif
