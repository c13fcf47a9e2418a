/*
 * cuInit, and the devices of a program: cuDeviceGet* and cuDriverGetVersion.
 *
 * A program in a container sees the GPUs whose device nodes are there, else those that its NVIDIA_VISIBLE_DEVICES names.
 */
#ifndef PODIUM_FAKE_DRIVER_CUDA_DEVICES_H
#define PODIUM_FAKE_DRIVER_CUDA_DEVICES_H

#include "cuda_api.h"

extern const struct cuda_symbol cuda_devices_symbols[];

/* Returns CUDA_SUCCESS after cuInit. */
CUresult cuda_initialized(void);
/* Returns the origin (cuda_device_map.h) of a program's device; -1 if there is no such device. */
int cuda_device_origin(int device);

#endif
