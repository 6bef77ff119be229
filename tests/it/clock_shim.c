/*
 * Preloaded into a redis-server: its clock is as far off as a file says, and may be moved while it runs.
 *
 * CLOCK_SHIFT names a file of 8 bytes, an int64_t in the machine's own order: the shift in microseconds. Only the wall
 * clock is shifted; what is measured (CLOCK_MONOTONIC) stays.
 *
 *   cc -shared -fPIC -O2 -o clock_shim.so clock_shim.c
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) {
        return;
    }
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) {
        shift = mapped;
    }
}

/* The clock itself: the C library's own functions are the ones replaced here. */
int clock_gettime(clockid_t clock, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, clock, at);
    if (failed || !shift || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) {
        return failed;
    }
    int64_t nanos = at->tv_nsec + *shift % 1000000 * 1000;
    at->tv_sec += *shift / 1000000 + (nanos >= 1000000000) - (nanos < 0);
    at->tv_nsec = nanos - (nanos >= 1000000000) * 1000000000 + (nanos < 0) * 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed) {
        at->tv_sec = now.tv_sec;
        at->tv_usec = now.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) {
        *at = now.tv_sec;
    }
    return now.tv_sec;
}
