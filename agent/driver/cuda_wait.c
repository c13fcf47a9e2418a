/* Sleep, and wait on futexes in the shared state. See cuda_wait.h. */
#define _GNU_SOURCE
#include "cuda_wait.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

void cuda_sleep_ns(long ns) {
    struct timespec left = {.tv_sec = ns / 1000000000l, .tv_nsec = ns % 1000000000l};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* Not FUTEX_PRIVATE_FLAG: other processes wait on the same words of the shared file. */
void cuda_futex_wait(uint32_t *word, uint32_t expected, const struct timespec *timeout) {
    syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout, NULL, 0);
}

void cuda_futex_wake(uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0); }
