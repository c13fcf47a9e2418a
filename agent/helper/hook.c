/* See hook.h. */
#define _GNU_SOURCE
#include "hook.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "marker.h"

#define DEFAULT_GRACE_SECONDS 30.0
#define MAX_GRACE_SECONDS 86400.0
/* The part of the grace period that remains for SIGTERM after the hook. */
#define SIGTERM_FRACTION 0.1
#define MIN_SIGTERM_SECONDS 2.0
/* The part of the grace period in which a script that is still starting may set its SIGTERM handler. */
#define STARTUP_FRACTION (1.0 / 3.0)
#define MAX_STARTUP_SECONDS 10.0
#define POLL_NANOSECONDS 50000000

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double grace_seconds(void) {
    const char *text = getenv("PODIUM_GRACE_SECONDS");
    char *end = NULL;
    double grace = text == NULL ? -1.0 : strtod(text, &end);
    if (end == text || (end != NULL && *end != '\0') || !(grace >= 0.0)) return DEFAULT_GRACE_SECONDS;
    return grace > MAX_GRACE_SECONDS ? MAX_GRACE_SECONDS : grace;
}

static void pause_briefly(void) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = POLL_NANOSECONDS};
    nanosleep(&pause, NULL);
}

/* Returns whether the container's first process handles SIGTERM; 1 if this is unknown. */
static int handles_sigterm(void) {
    FILE *status = fopen("/proc/1/status", "re");
    char line[256];
    unsigned long long caught = ~0ULL;
    if (status == NULL) return 1;
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "SigCgt: %llx", &caught) == 1) break;
    fclose(status);
    return (caught >> (SIGTERM - 1)) & 1;
}

/* The kernel discards a SIGTERM that the first process does not handle, so a script gets time to set its handler. */
static void wait_for_handler(double begin, double grace) {
    double limit = grace * STARTUP_FRACTION < MAX_STARTUP_SECONDS ? grace * STARTUP_FRACTION : MAX_STARTUP_SECONDS;
    while (!handles_sigterm() && now_seconds() - begin < limit) pause_briefly();
}

const char *wait_for_checkpoint(void) {
    struct marker before, now;
    double begin = now_seconds(), grace = grace_seconds();
    double reserved = grace * SIGTERM_FRACTION > MIN_SIGTERM_SECONDS ? grace * SIGTERM_FRACTION : MIN_SIGTERM_SECONDS;
    int folder = open_checkpoint_folder();
    if (folder < 0) return "hook: no checkpoint folder; SIGTERM follows";
    if (!read_marker(folder, &before) || !before.on_request) {
        wait_for_handler(begin, grace);
        return "hook: this trial does not answer checkpoint requests; SIGTERM follows";
    }
    /* The request is useful even without time to wait: a script that ignores SIGTERM may still answer it. */
    if (!request_checkpoint(folder)) return "hook: cannot write a request to the checkpoint folder; SIGTERM follows";
    while (now_seconds() - begin < grace - reserved) {
        pause_briefly();
        if (read_marker(folder, &now) && was_replaced(&before, &now)) return "hook: checkpoint complete";
    }
    return "hook: no checkpoint within the grace period; SIGTERM follows";
}
