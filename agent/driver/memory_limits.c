/* Limits of GPU memory by cgroup. See memory_limits.h. */
#define _GNU_SOURCE
#include "memory_limits.h"

#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CGROUPS "/sys/fs/cgroup"

enum { MAX_LIMITS = 512 };

struct limit {
    char uuid[48];
    uint64_t inode;
    uint64_t bytes;
    char path[1024];
};

/* Opens the file with a lock that its closing ends; NULL with errno. `mode`: of fopen, "r" or "r+". */
static FILE *open_limits(const char *mode) {
    char path[PATH_MAX];
    const char *state = state_path(), *slash = strrchr(state, '/');
    int folder = slash == NULL ? 0 : (int)(slash - state + 1);
    if (snprintf(path, sizeof path, "%.*smemory-limits", folder, state) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    int fd = open(path, mode[1] == '+' ? O_RDWR | O_CREAT | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0644);
    if (fd < 0) return NULL;
    FILE *file = flock(fd, mode[1] == '+' ? LOCK_EX : LOCK_SH) == 0 ? fdopen(fd, mode) : NULL;
    if (file == NULL) close(fd);
    return file;
}

static int next_limit(FILE *file, struct limit *limit) {
    return fscanf(file, "%47s %" SCNu64 " %" SCNu64 " %1023s", limit->uuid, &limit->inode, &limit->bytes, limit->path) == 4;
}

static int is_there(const struct limit *limit) {
    struct stat found;
    return stat(limit->path, &found) == 0 && found.st_ino == limit->inode;
}

int memory_limit_set(const char *uuid, const char *cgroup, uint64_t bytes) {
    static struct limit kept[MAX_LIMITS];
    struct stat folder;
    if (stat(cgroup, &folder) != 0) return errno;
    if (strlen(cgroup) >= sizeof kept[0].path || strchr(cgroup, ' ') != NULL) return ENAMETOOLONG;
    FILE *file = open_limits("r+");
    if (file == NULL) return errno;
    unsigned count = 0;
    while (count < MAX_LIMITS - 1 && next_limit(file, &kept[count])) {
        const struct limit *read = &kept[count];
        int replaced = read->inode == folder.st_ino && strcmp(read->uuid, uuid) == 0;
        if (!replaced && is_there(read)) count++;
    }
    rewind(file);
    int error = ftruncate(fileno(file), 0) == 0 ? 0 : errno;
    for (unsigned i = 0; i < count; i++)
        fprintf(file, "%s %" PRIu64 " %" PRIu64 " %s\n", kept[i].uuid, kept[i].inode, kept[i].bytes, kept[i].path);
    if (bytes != NO_MEMORY_LIMIT)
        fprintf(file, "%s %" PRIu64 " %" PRIu64 " %s\n", uuid, (uint64_t)folder.st_ino, bytes, cgroup);
    return fclose(file) == 0 ? error : errno;
}

/* Writes the folder of this process's cgroup (version 2), as the process sees it. Returns its length; 0 without one. */
static size_t own_cgroup(char folder[PATH_MAX]) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (file == NULL) return 0;
    char line[PATH_MAX - sizeof CGROUPS];
    size_t length = 0;
    while (length == 0 && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0) length = (size_t)snprintf(folder, PATH_MAX, CGROUPS "%s", line + 3);
    }
    fclose(file);
    return length;
}

static uint64_t limit_of(const char *uuid, uint64_t inode) {
    FILE *file = open_limits("r");
    if (file == NULL) return NO_MEMORY_LIMIT;
    struct limit limit;
    uint64_t found = NO_MEMORY_LIMIT;
    while (next_limit(file, &limit))
        if (limit.inode == inode && strcmp(limit.uuid, uuid) == 0) found = limit.bytes;
    fclose(file);
    return found;
}

uint64_t memory_limit_of_self(const char *uuid) {
    char folder[PATH_MAX];
    uint64_t least = NO_MEMORY_LIMIT;
    for (size_t length = own_cgroup(folder); length >= sizeof CGROUPS - 1; length = (size_t)(strrchr(folder, '/') - folder)) {
        folder[length] = '\0';
        struct stat found;
        uint64_t bytes = stat(folder, &found) == 0 ? limit_of(uuid, found.st_ino) : NO_MEMORY_LIMIT;
        if (bytes < least) least = bytes;
    }
    return least;
}
