/* The completion marker and the checkpoint request of a trial. See marker.h. */
#define _GNU_SOURCE
#include "marker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY "onRequest"

int open_checkpoint_folder(void) {
    const char *path = getenv("PODIUM_CHECKPOINT");
    if (path == NULL || path[0] != '/') return -1;
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static size_t skip_blanks(const char *text, size_t at, size_t length) {
    while (at < length && text[at] == ' ') at++;
    return at;
}

/* Returns whether the outermost object has the member with the value true. A string is a name if a colon follows. */
static int has_on_request(const char *text, size_t length) {
    int depth = 0;
    for (size_t at = 0; at < length; at++) {
        if (text[at] == '{' || text[at] == '[') depth++;
        if (text[at] == '}' || text[at] == ']') depth--;
        if (text[at] != '"') continue;
        size_t begin = ++at;
        while (at < length && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
        if (at >= length) return 0;
        if (depth != 1 || at - begin != sizeof KEY - 1 || memcmp(text + begin, KEY, sizeof KEY - 1) != 0) continue;
        size_t colon = skip_blanks(text, at + 1, length);
        if (colon >= length || text[colon] != ':') continue;
        size_t value = skip_blanks(text, colon + 1, length);
        return length - value >= 4 && memcmp(text + value, "true", 4) == 0;
    }
    return 0;
}

static int read_whole(int fd, struct marker *marker) {
    marker->length = 0;
    for (;;) {
        ssize_t n = read(fd, marker->text + marker->length, sizeof marker->text - marker->length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return 0;
        if (n == 0) break;
        marker->length += (size_t)n;
        if (marker->length > MARKER_MAX_BYTES) return 0;
    }
    marker->text[marker->length] = '\0';
    return marker->length > 0 && memchr(marker->text, '\0', marker->length) == NULL;
}

int read_marker(int folder, struct marker *marker) {
    int fd = openat(folder, MARKER_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return 0;
    int good = fstat(fd, &marker->file) == 0 && S_ISREG(marker->file.st_mode) && read_whole(fd, marker);
    close(fd);
    if (!good) return 0;
    for (size_t at = 0; at < marker->length; at++)
        if (strchr("\t\r\n", marker->text[at]) != NULL) marker->text[at] = ' ';
    marker->on_request = has_on_request(marker->text, marker->length);
    return 1;
}

int was_replaced(const struct marker *before, const struct marker *now) {
    const struct stat *a = &before->file, *b = &now->file;
    return a->st_dev != b->st_dev || a->st_ino != b->st_ino || a->st_size != b->st_size ||
           a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

int request_checkpoint(int folder) {
    int fd = openat(folder, REQUEST_NAME, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) return 0;
    close(fd);
    return 1;
}

void remove_request(int folder) { unlinkat(folder, REQUEST_NAME, 0); }
