/* Who works on which GPU: finds the containers' processes in /proc and reads their CPU clocks. Used by gpud.c. */
#ifndef PODIUM_FAKE_DRIVER_SAMPLER_H
#define PODIUM_FAKE_DRIVER_SAMPLER_H

#include "state.h"

#include <stdio.h>

struct sampler;

/* `log` gets the intervals (see README.md for its format). */
struct sampler *sampler_new(const struct state *state, FILE *log);
/* One sample: closes and writes intervals, and fills `measured` of every GPU (memory, processes, utilisation). */
void sampler_sample(struct sampler *sampler, struct state *state, struct gpu_measured measured[MAX_GPUS]);
/* Writes the intervals that are still open. */
void sampler_finish(struct sampler *sampler);
void sampler_free(struct sampler *sampler);

#endif
