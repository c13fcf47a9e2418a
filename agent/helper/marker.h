/*
 * What stands in the trial's own checkpoint folder ($PODIUM_CHECKPOINT): the marker of its newest save, and the request
 * for another one. Used by the gate (which save will this attempt go on from?) and by the hook (is there a new one yet?).
 *
 * The folder belongs to the trial, and anything may lie there under these names: links are not followed, only a regular
 * file of at most 4 KiB counts, and nothing here ever blocks on one or fails for its content.
 */
#ifndef PODIUM_MARKER_H
#define PODIUM_MARKER_H

#include <stddef.h>
#include <sys/stat.h>

#define MARKER_NAME "podium-checkpoint.json"
#define REQUEST_NAME "podium-checkpoint-request"
#define MARKER_MAX_BYTES 4096

struct marker {
    char text[MARKER_MAX_BYTES + 1]; /* on one line, without a NUL but the one after it */
    size_t length;
    int on_request; /* it says "onRequest": true: the script answers requests */
    struct stat file;
};

/* A descriptor of the folder; -1 where there is none. */
int open_checkpoint(void);

/* 1 if there is a marker. What it says is judged by the agent, which holds every reader to the same rule. */
int read_marker(int folder, struct marker *found);

/* 1 if the two are not the same file any more: a save ends with a rename. */
int was_replaced(const struct marker *before, const struct marker *now);

/* Asks for a save; 0 if the folder takes no file. */
int make_request(int folder);

void drop_request(int folder);

#endif
