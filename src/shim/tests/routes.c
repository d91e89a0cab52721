/* The total memory of card 0, found by the route that is named. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*Init)(unsigned);
typedef int (*Retain)(void **, int);
typedef int (*SetCurrent)(void *);
typedef int (*Info)(size_t *, size_t *);
typedef int (*Resolve)(const char *, void **, int, unsigned long);
typedef int (*ResolveV2)(const char *, void **, int, unsigned long, int *);

static const char *route;
static void *driver;

static void *resolved(const char *name, unsigned long flags, int itself, int second)
{
    void *found = NULL;
    int status = -1;
    Resolve first = (Resolve)dlsym(driver, "cuGetProcAddress");
    ResolveV2 later = (ResolveV2)dlsym(driver, "cuGetProcAddress_v2");
    if (itself && first("cuGetProcAddress", (void **)&later, itself, 0))
        return NULL;
    if (second || itself) {
        if (later(name, &found, 12000, flags, &status) || status != 0)
            return NULL;
    } else if (first(name, &found, 11030, flags))
        return NULL;
    return found;
}

/* The function by its name in cuda.h, and by that of its second form. */
static void *find(const char *name, const char *exact)
{
    if (!strcmp(route, "dlsym") || !strcmp(route, "dlmopen") || !strcmp(route, "early")) {
        void *found = dlsym(driver, exact);
        const char *error = dlerror();
        if (error)
            fprintf(stderr, "%s: %s\n", exact, error);
        return found;
    }
    if (!strcmp(route, "dlvsym"))
        return dlvsym(driver, exact, "DRIVER");
    if (!strcmp(route, "resolver"))
        return resolved(name, 0, 0, 0);
    if (!strcmp(route, "resolver-v2"))
        return resolved(name, 0, 0, 1);
    if (!strcmp(route, "resolver-itself"))
        return resolved(name, 0, 12000, 1);
    if (!strcmp(route, "resolver-newest"))
        return resolved(name, 0, 13000, 1);
    if (!strcmp(route, "resolver-per-thread"))
        return resolved(name, 2, 0, 1);
    if (!strcmp(route, "next"))
        return dlsym(RTLD_NEXT, exact);
    if (!strcmp(route, "default"))
        return dlsym(RTLD_DEFAULT, exact);
    return NULL;
}

#ifdef LINKED
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemGetInfo_v2(size_t *, size_t *);
#endif

int main(int count, char **arguments)
{
    route = count > 1 ? arguments[1] : "";
    Init init = NULL;
    Retain retain = NULL;
    SetCurrent set = NULL;
    Info info = NULL;
#ifdef LINKED
    if (!strcmp(route, "linked")) {
        init = cuInit;
        retain = cuDevicePrimaryCtxRetain;
        set = cuCtxSetCurrent;
        info = cuMemGetInfo_v2;
    }
#else
    int apart = !strcmp(route, "dlmopen");
    const char *library = count > 2 ? arguments[2] : "libcuda.so.1";
    if (!strcmp(route, "early") && dlsym(RTLD_DEFAULT, "cuInit")) {
        fprintf(stderr, "a driver before there is one\n");
        return 4;
    }
    driver = apart ? dlmopen(LM_ID_NEWLM, library, RTLD_NOW) : dlopen(library, RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
#endif
    if (!init) {
        init = (Init)find("cuInit", "cuInit");
        retain = (Retain)find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain");
        set = (SetCurrent)find("cuCtxSetCurrent", "cuCtxSetCurrent");
        info = (Info)find("cuMemGetInfo", "cuMemGetInfo_v2");
    }
    if (!init || !retain || !set || !info) {
        fprintf(stderr, "%s: not found\n", route);
        return 3;
    }
    void *context;
    size_t free, total;
    int code = init(0);
    if (!code)
        code = retain(&context, 0);
    if (!code)
        code = set(context);
    if (!code)
        code = info(&free, &total);
    if (code)
        printf("error %d\n", code);
    else
        printf("%zu of %zu\n", free >> 20, total >> 20);
    return 0;
}
