/* The mapping from a program's GPUs to the GPUs of the node. See cuda_device_map.h. */
#include "cuda_device_map.h"

#include <stdio.h>
#include <string.h>

static char uuids[MAX_GPUS][sizeof((struct gpu *)0)->uuid], products[MAX_GPUS][sizeof((struct gpu *)0)->product];
static int count = -1; /* -1: the program has no context yet, so its devices are the node's GPUs */
static int current[MAX_GPUS];

void cuda_device_map_init(const struct state *state) {
    count = (int)state->gpu_count;
    for (int origin = 0; origin < count; origin++) {
        memcpy(uuids[origin], state->gpus[origin].uuid, sizeof uuids[origin]);
        memcpy(products[origin], state->gpus[origin].product, sizeof products[origin]);
        current[origin] = origin;
    }
}

int cuda_device_map_fits(const struct state *state, uint32_t used, const uint8_t map[MAX_GPUS]) {
    for (int origin = 0; origin < count; origin++) {
        if (current[origin] < 0 || (used & (1u << current[origin])) == 0) continue;
        unsigned target = map[current[origin]];
        if (target >= state->gpu_count || strcmp(products[origin], state->gpus[target].product) != 0) return 0;
    }
    return 1;
}

void cuda_device_map_apply(const struct state *state, const uint8_t map[MAX_GPUS]) {
    for (int origin = 0; origin < count; origin++) {
        int target = current[origin] < 0 ? -1 : map[current[origin]];
        current[origin] = target < (int)state->gpu_count ? target : -1;
    }
}

int cuda_device_map_count(const struct state *state) { return count < 0 ? (int)state->gpu_count : count; }

const char *cuda_device_map_uuid(const struct state *state, int origin) {
    return count < 0 ? state->gpus[origin].uuid : uuids[origin];
}

int cuda_device_map_gpu(int origin) { return count < 0 ? origin : current[origin]; }

void cuda_uuid_bytes(const char *text, unsigned char out[16]) {
    text += 4; /* after "GPU-" */
    for (int i = 0; i < 16 && *text != '\0'; i++, text += 2) {
        unsigned byte = 0;
        if (*text == '-') text++;
        sscanf(text, "%2x", &byte);
        out[i] = (unsigned char)byte;
    }
}
