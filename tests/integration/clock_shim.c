/*
 * Preloaded library for tests: it shifts the wall clock of a process by the seconds in the file $CLOCK_SHIM (an int64),
 * which the test changes while the process runs. The monotonic clock is not touched.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("CLOCK_SHIM");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) shift = page;
    close(file);
}

static int64_t seconds(void) { return shift == NULL ? 0 : *shift; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (real_clock_gettime == NULL) start();
    int answer = real_clock_gettime(clock, now);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds();
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int answer = clock_gettime(CLOCK_REALTIME, &exact);
    if (answer == 0) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return answer;
}

time_t time(time_t *result) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return (time_t)-1;
    if (result != NULL) *result = now.tv_sec;
    return now.tv_sec;
}
