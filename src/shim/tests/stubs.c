/* Functions of the driver's names that load the driver when the first of them is called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *driver(const char *name)
{
    static void *handle;
    if (!handle)
        handle = dlopen("libcuda.so.1", RTLD_NOW);
    return handle ? dlsym(handle, name) : NULL;
}

int cuInit(unsigned flags)
{
    int (*real)(unsigned) = (int (*)(unsigned))driver("cuInit");
    return real ? real(flags) : 999;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int (*real)(void **, int) = (int (*)(void **, int))driver("cuDevicePrimaryCtxRetain");
    return real ? real(context, device) : 999;
}

int cuCtxSetCurrent(void *context)
{
    int (*real)(void *) = (int (*)(void *))driver("cuCtxSetCurrent");
    return real ? real(context) : 999;
}

int cuMemGetInfo_v2(size_t *free, size_t *total)
{
    int (*real)(size_t *, size_t *) = (int (*)(size_t *, size_t *))driver("cuMemGetInfo_v2");
    return real ? real(free, total) : 999;
}
