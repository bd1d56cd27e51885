/* Loaded before a program (LD_PRELOAD), it sets that program's wall clock, and no other clock: by as many
   seconds as the file CLOCK_STEPS says, a 64-bit number, read at each look. Children inherit it. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long none;
static volatile long *ahead_s;

static long ahead(void)
{
    if (!ahead_s) {
        const char *path = getenv("CLOCK_STEPS");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *seen = file < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
        ahead_s = seen == MAP_FAILED ? &none : seen;
        if (file >= 0)
            close(file);
    }
    return *ahead_s;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact))
        return -1;
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
