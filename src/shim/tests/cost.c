/* What a launch costs its caller: nanoseconds per call, the median of many rounds and the middle half of them. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 101
#define CALLS 100000

typedef int launch(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); /* what others do meanwhile is no cost of a call */
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static int ascending(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

int main(void)
{
    static double rounds[ROUNDS];
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    launch *kernel = (launch *)dlsym(driver, "cuLaunchKernel");
    if (init(0) != 0)
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        double began = now();
        for (int call = 0; call < CALLS; call++)
            if (kernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0) != 0)
                return 2;
        rounds[round] = (now() - began) / CALLS;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, ascending);
    printf("%.1f ns, middle half %.1f to %.1f\n", rounds[ROUNDS / 2], rounds[ROUNDS / 4], rounds[ROUNDS * 3 / 4]);
    return 0;
}
