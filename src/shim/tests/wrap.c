/* A library that stands before dlsym too, as profilers do. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlsym(void *restrict handle, const char *restrict name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return next(handle, name);
}
