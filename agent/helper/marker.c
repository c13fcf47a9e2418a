/* See marker.h. */
#define _GNU_SOURCE
#include "marker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY "onRequest"

int open_checkpoint(void) {
    const char *path = getenv("PODIUM_CHECKPOINT");
    if (path == NULL || path[0] != '/') return -1;
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static size_t skip_blanks(const char *text, size_t at, size_t length) {
    while (at < length && text[at] == ' ') at++;
    return at;
}

/* Looks for the member of the outermost object; only a name is followed by a colon. */
static int says_on_request(const char *text, size_t length) {
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

static int read_whole(int fd, struct marker *found) {
    found->length = 0;
    for (;;) {
        ssize_t n = read(fd, found->text + found->length, sizeof found->text - found->length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return 0;
        if (n == 0) break;
        found->length += (size_t)n;
        if (found->length > MARKER_MAX_BYTES) return 0;
    }
    found->text[found->length] = '\0';
    return found->length > 0 && memchr(found->text, '\0', found->length) == NULL;
}

int read_marker(int folder, struct marker *found) {
    int fd = openat(folder, MARKER_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return 0;
    int good = fstat(fd, &found->file) == 0 && S_ISREG(found->file.st_mode) && read_whole(fd, found);
    close(fd);
    if (!good) return 0;
    for (size_t at = 0; at < found->length; at++)
        if (strchr("\t\r\n", found->text[at]) != NULL) found->text[at] = ' ';
    found->on_request = says_on_request(found->text, found->length);
    return 1;
}

int was_replaced(const struct marker *before, const struct marker *now) {
    const struct stat *a = &before->file, *b = &now->file;
    return a->st_dev != b->st_dev || a->st_ino != b->st_ino || a->st_size != b->st_size ||
           a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec;
}

int make_request(int folder) {
    int fd = openat(folder, REQUEST_NAME, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd < 0) return 0;
    close(fd);
    return 1;
}

void drop_request(int folder) {
    unlinkat(folder, REQUEST_NAME, 0);
}
