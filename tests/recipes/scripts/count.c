/* A running sum in C: the value of a step depends on the previous one. */
#define _GNU_SOURCE
#include "podium.h"

int main(void) {
    char state[4096];
    long value = 1, step = podium_load(state, sizeof state);
    FILE *file = step < 0 ? NULL : fopen(state, "rb");
    if (step < 0) step = 0;
    if (file && (fread(&value, sizeof value, 1, file) != 1 || fclose(file))) return 1;
    podium_listen();
    while (step++ < 60) {
        usleep(20000);
        value = (value * 31 + step) % 65521;
        printf("{\"step\": %ld, \"loss\": %ld}\n", step, value);
        fflush(stdout);
        int stop = podium_stop; /* read once: SIGTERM may arrive between the checkpoint and the end */
        if (stop || podium_wanted() || step % 10 == 0) {
            FILE *save = podium_begin(step);
            if (save && (fwrite(&value, sizeof value, 1, save) != 1 || podium_commit(step, save))) return 1;
        }
        if (stop) return 143;
    }
    return 0;
}
