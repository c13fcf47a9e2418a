/* Sample which processes work on which GPU: find the containers' processes in /proc and read their CPU clocks. */
#ifndef PODIUM_FAKE_DRIVER_SAMPLER_H
#define PODIUM_FAKE_DRIVER_SAMPLER_H

#include "state.h"

#include <stdio.h>

struct sampler;

/* Returns NULL without memory or /proc. `log` receives the intervals; README.md describes its format. */
struct sampler *sampler_new(const struct state *state, FILE *log);
/* Takes one sample: writes the intervals that have ended, and fills the measurements of every GPU. */
void sampler_sample(struct sampler *sampler, struct state *state, struct gpu_measurements measurements[MAX_GPUS]);
/* Writes the intervals that have not ended yet. */
void sampler_finish(struct sampler *sampler);
void sampler_free(struct sampler *sampler);

#endif
