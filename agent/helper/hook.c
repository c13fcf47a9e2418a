/* See hook.h. */
#define _GNU_SOURCE
#include "hook.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "marker.h"

#define DEFAULT_GRACE_SECONDS 30.0
#define LONGEST_GRACE_SECONDS 86400.0
#define LEAST_REST_SECONDS 2.0 /* is left for SIGTERM after the hook */
#define REST_PART 0.1
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

const char *hold_until_saved(void) {
    struct marker before, now;
    double begin = now_seconds(), grace = grace_seconds();
    double rest = grace * REST_PART > LEAST_REST_SECONDS ? grace * REST_PART : LEAST_REST_SECONDS;
    int folder = open_checkpoint();
    if (folder < 0) return "hook: no checkpoint folder; SIGTERM does the rest";
    if (!read_marker(folder, &before) || !before.on_request)
        return "hook: this trial does not answer save requests; SIGTERM does the rest";
    /* also where no time is left to wait: a script that does not hear SIGTERM may still answer */
    if (!make_request(folder)) return "hook: the checkpoint folder takes no request; SIGTERM does the rest";
    while (now_seconds() - begin < grace - rest) {
        struct timespec pause = {.tv_sec = 0, .tv_nsec = POLL_NANOSECONDS};
        nanosleep(&pause, NULL);
        if (read_marker(folder, &now) && was_replaced(&before, &now)) return "hook: saved";
    }
    return "hook: no save in time; SIGTERM does the rest";
}
