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
#define LONGEST_GRACE_SECONDS 86400.0
#define LEAST_REST_SECONDS 2.0 /* is left for SIGTERM after the hook */
#define REST_PART 0.1
#define START_PART (1.0 / 3.0) /* of the grace period: for a script that was still starting when it was told to go */
#define LONGEST_START_SECONDS 10.0
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
    return grace > LONGEST_GRACE_SECONDS ? LONGEST_GRACE_SECONDS : grace;
}

static void rest_a_little(void) {
    struct timespec pause = {.tv_sec = 0, .tv_nsec = POLL_NANOSECONDS};
    nanosleep(&pause, NULL);
}

/* Whether the container's first process handles SIGTERM; where that cannot be known, 1. */
static int heeds_sigterm(void) {
    FILE *status = fopen("/proc/1/status", "re");
    char line[256];
    unsigned long long caught = ~0ULL;
    if (status == NULL) return 1;
    while (fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "SigCgt: %llx", &caught) == 1) break;
    fclose(status);
    return (caught >> (SIGTERM - 1)) & 1;
}

/* A first process without a handler never hears the SIGTERM: one that has just begun gets the time to set it. */
static void let_it_start(double begin, double grace) {
    double longest = grace * START_PART < LONGEST_START_SECONDS ? grace * START_PART : LONGEST_START_SECONDS;
    while (!heeds_sigterm() && now_seconds() - begin < longest) rest_a_little();
}

const char *hold_until_saved(void) {
    struct marker before, now;
    double begin = now_seconds(), grace = grace_seconds();
    double rest = grace * REST_PART > LEAST_REST_SECONDS ? grace * REST_PART : LEAST_REST_SECONDS;
    int folder = open_checkpoint();
    if (folder < 0) return "hook: no checkpoint folder; SIGTERM does the rest";
    if (!read_marker(folder, &before) || !before.on_request) {
        let_it_start(begin, grace);
        return "hook: this trial does not answer save requests; SIGTERM does the rest";
    }
    /* also where no time is left to wait: a script that does not hear SIGTERM may still answer */
    if (!make_request(folder)) return "hook: the checkpoint folder takes no request; SIGTERM does the rest";
    while (now_seconds() - begin < grace - rest) {
        rest_a_little();
        if (read_marker(folder, &now) && was_replaced(&before, &now)) return "hook: saved";
    }
    return "hook: no save in time; SIGTERM does the rest";
}
