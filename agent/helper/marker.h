/*
 * The two files in a trial's checkpoint folder ($PODIUM_CHECKPOINT): the completion marker of the newest checkpoint,
 * and the request for another one.
 *
 * The gate reads the marker to report from which checkpoint this attempt continues. The hook waits for a new marker.
 * The folder belongs to the trial, so these names may refer to anything. Links are not followed, only a regular file of
 * at most 4 KiB counts, and no content makes these functions block or fail.
 */
#ifndef PODIUM_MARKER_H
#define PODIUM_MARKER_H

#include <stddef.h>
#include <sys/stat.h>

#define MARKER_NAME "podium-checkpoint.json"
#define REQUEST_NAME "podium-checkpoint-request"
#define MARKER_MAX_BYTES 4096

struct marker {
    char text[MARKER_MAX_BYTES + 1]; /* one line, terminated by NUL */
    size_t length;
    int on_request; /* 1: it has "onRequest": true, so the script answers requests */
    struct stat file;
};

/* Returns a descriptor of the folder; -1 if there is no folder. */
int open_checkpoint_folder(void);

/* Returns 1 if there is a marker. The agent validates its content, so that one rule applies to all markers. */
int read_marker(int folder, struct marker *marker);

/* Returns 1 if the marker was replaced: a script completes a checkpoint by renaming a new marker to this name. */
int was_replaced(const struct marker *before, const struct marker *now);

/* Requests a checkpoint. Returns 0 if the request cannot be written. */
int request_checkpoint(int folder);

void remove_request(int folder);

#endif
