/*
 * C and C++: the checkpoint contract with plain files, in one header.
 *
 *     char state[4096];
 *     long step = podium_load(state, sizeof state);         // -1: no checkpoint
 *     podium_listen();
 *     ...
 *     int stop = podium_stop;                               // read once: SIGTERM may arrive at any moment
 *     if (stop || podium_wanted() || step % 10 == 0) {
 *         FILE *file = podium_begin(step);                  // NULL: no folder, or an error in errno
 *         if (file) { fwrite(...); podium_commit(step, file); }
 *     }
 *     if (stop) return 143;
 *
 * A checkpoint is one file here. Without Podium nothing is saved, unless PODIUM_CHECKPOINT names a folder.
 */
#ifndef PODIUM_H
#define PODIUM_H
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t podium_stop;

static void podium_handle_sigterm(int number) {
    (void)number;
    podium_stop = 1;
}

/* Make SIGTERM set podium_stop. The first process of a container has no default action for it. */
static inline void podium_listen(void) { signal(SIGTERM, podium_handle_sigterm); }

static inline const char *podium_path(char *buffer, size_t size, const char *name) {
    const char *folder = getenv("PODIUM_CHECKPOINT");
    if (!folder || !*folder || snprintf(buffer, size, "%s/%s", folder, name) >= (int)size) return NULL;
    return buffer;
}

static inline int podium_wanted(void) {
    char path[PATH_MAX];
    return podium_stop || (podium_path(path, sizeof path, "podium-checkpoint-request") && access(path, F_OK) == 0);
}

/* Write the path of the checkpoint to resume from and return its step; -1 if there is none. */
static inline long podium_load(char *state, size_t size) {
    char path[PATH_MAX], name[64];
    long step = -1;
    FILE *marker = podium_path(path, sizeof path, "podium-checkpoint.json") ? fopen(path, "r") : NULL;
    if (!marker) return -1;
    if (fscanf(marker, " {\"step\": %ld, \"path\": \"%63[^\"]\"", &step, name) != 2) step = -1;
    fclose(marker);
    return step >= 0 && podium_path(state, size, name) && access(state, R_OK) == 0 ? step : -1;
}

static inline FILE *podium_begin(long step) {
    char path[PATH_MAX], name[64];
    snprintf(name, sizeof name, "step-%ld.new", step);
    return podium_path(path, sizeof path, name) ? fopen(path, "wb") : NULL;
}

static inline int podium_replace(FILE *file, const char *temporary, const char *name) {
    char from[PATH_MAX], to[PATH_MAX];
    int complete = !fflush(file) && !fsync(fileno(file));
    if (fclose(file) || !complete) return -1;
    if (!podium_path(from, sizeof from, temporary) || !podium_path(to, sizeof to, name) || rename(from, to)) return -1;
    int folder = open(getenv("PODIUM_CHECKPOINT"), O_RDONLY | O_DIRECTORY);
    int synced = folder >= 0 && fsync(folder) == 0;
    if (folder >= 0) close(folder);
    return synced ? 0 : -1;
}

/* Complete the file, then the marker that names it, then remove the previous checkpoint. -1: an error in errno, and the
 * previous checkpoint remains valid. */
static inline int podium_commit(long step, FILE *file) {
    char old[PATH_MAX], path[PATH_MAX], temporary[64], name[64];
    long before = podium_load(old, sizeof old);
    snprintf(name, sizeof name, "step-%ld", step);
    snprintf(temporary, sizeof temporary, "step-%ld.new", step);
    if (podium_replace(file, temporary, name)) return -1;
    FILE *marker = podium_path(path, sizeof path, "podium-checkpoint.json.new") ? fopen(path, "w") : NULL;
    if (!marker) return -1;
    fprintf(marker, "{\"step\": %ld, \"path\": \"%s\", \"onRequest\": true}\n", step, name);
    if (podium_path(path, sizeof path, "podium-checkpoint-request")) unlink(path);
    if (podium_replace(marker, "podium-checkpoint.json.new", "podium-checkpoint.json")) return -1;
    if (before >= 0 && before != step) unlink(old);
    return 0;
}
#endif
