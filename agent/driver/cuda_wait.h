/* Sleep, and wait on futexes in the shared state. */
#ifndef PODIUM_FAKE_DRIVER_CUDA_WAIT_H
#define PODIUM_FAKE_DRIVER_CUDA_WAIT_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000l

void cuda_sleep_ns(long ns);
/* Waits while `*word` is `expected`, at most for `timeout`; NULL: without a limit. */
void cuda_futex_wait(uint32_t *word, uint32_t expected, const struct timespec *timeout);
void cuda_futex_wake(uint32_t *word);

static inline uint32_t cuda_load(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

#endif
