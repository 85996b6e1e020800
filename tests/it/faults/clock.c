/* The system's clock, so many milliseconds ahead as the file LYCEUM_TEST_CLOCK says. Loaded
   into the portal before all libraries; clocks that nobody can set are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    long answer = syscall(SYS_clock_gettime, clock, now);
    char text[32] = {0};
    const char *name = getenv("LYCEUM_TEST_CLOCK");
    if (answer != 0 || clock != CLOCK_REALTIME || name == NULL) return (int)answer;
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (0 < read(file, text, sizeof text - 1)) {
        long long milliseconds = atoll(text);
        now->tv_sec += milliseconds / 1000;
        now->tv_nsec += milliseconds % 1000 * 1000000;
        if (1000000000 <= now->tv_nsec) now->tv_nsec -= 1000000000, now->tv_sec++;
        if (now->tv_nsec < 0) now->tv_nsec += 1000000000, now->tv_sec--;
    }
    close(file);
    return 0;
}
