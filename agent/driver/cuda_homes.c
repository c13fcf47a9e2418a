/*
 * Which of the node's GPUs a program's devices are. A program keeps the devices that it found at first; a restore with a
 * map puts them on other GPUs, of this node or of the one to which it was carried (CRIU). Source: CUDA driver API 13.x,
 * CUcheckpointGpuPair.
 */
#include "cuda.h"

#include <string.h>

static char uuids[MAX_GPUS][sizeof((struct gpu *)0)->uuid], products[MAX_GPUS][sizeof((struct gpu *)0)->product];
static int count = -1; /* no context yet: its devices are the node's */
static int now[MAX_GPUS];

void cuda_homes_begin(const struct state *state) {
    count = (int)state->gpu_count;
    for (int home = 0; home < count; home++) {
        memcpy(uuids[home], state->gpus[home].uuid, sizeof uuids[home]);
        memcpy(products[home], state->gpus[home].product, sizeof products[home]);
        now[home] = home;
    }
}

int cuda_homes_fit(const struct state *state, uint32_t used, const uint8_t map[MAX_GPUS]) {
    for (int home = 0; home < count; home++) {
        if (now[home] < 0 || (used & (1u << now[home])) == 0) continue;
        unsigned there = map[now[home]];
        if (there >= state->gpu_count || strcmp(products[home], state->gpus[there].product) != 0) return 0;
    }
    return 1;
}

void cuda_homes_map(const struct state *state, const uint8_t map[MAX_GPUS]) {
    for (int home = 0; home < count; home++) {
        int there = now[home] < 0 ? -1 : map[now[home]];
        now[home] = there < (int)state->gpu_count ? there : -1;
    }
}

int cuda_home_count(const struct state *state) { return count < 0 ? (int)state->gpu_count : count; }

const char *cuda_home_uuid(const struct state *state, int home) {
    return count < 0 ? state->gpus[home].uuid : uuids[home];
}

int cuda_gpu_now(int home) { return count < 0 ? home : now[home]; }
