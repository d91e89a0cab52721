/* What a program sees that knows nothing of CUDA: all of it is printed, and the same without the library. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ITERATES
/* Some programs have their own, which asks for the next by dlsym when it is called first. */
#include <link.h>
typedef int (*Callback)(struct dl_phdr_info *, size_t, void *);
int dl_iterate_phdr(Callback callback, void *data)
{
    static int depth;
    if (depth++) {
        puts("asked while it asks");
        exit(1);
    }
    int (*next)(Callback, void *) = dlsym(RTLD_NEXT, "dl_iterate_phdr");
    depth--;
    return next ? next(callback, data) : 0;
}
static int seen(struct dl_phdr_info *info, size_t size, void *data) { return *(int *)data = 1; }
#endif

int cuOfMyOwn(void) { return 0; }

static void look(const char *name, void *handle)
{
    errno = 77;
    dlerror();
    void *found = dlsym(handle, name);
    const char *error = dlerror();
    printf("%s %d %d %s\n", name, found != NULL, errno, error ? error : "-");
}

static void *work(void *given)
{
    char *text = strdup(given);
    printf("%s\n", text);
    free(text);
    return dlsym(RTLD_DEFAULT, "printf") ? given : NULL;
}

int main(void)
{
    look("malloc", RTLD_DEFAULT);
    look("puts", RTLD_NEXT);
    look("none such", RTLD_DEFAULT);
    look("cuNothing", RTLD_DEFAULT);
    look("nvmlNothing", RTLD_NEXT);
    look("cuOfMyOwn", RTLD_DEFAULT);
    printf("%d %s\n", dlopen("no.so", RTLD_NOW) != NULL, dlerror());
    pthread_t thread;
    void *returned = NULL;
    if (pthread_create(&thread, NULL, work, "a thread") || pthread_join(thread, &returned) || !returned)
        return 1;
#ifdef ITERATES
    int any = 0;
    dl_iterate_phdr(seen, &any);
    printf("%d\n", any);
#endif
    DIR *open = opendir("/proc/self/fd");
    for (struct dirent *entry; open && (entry = readdir(open));)
        printf("%s\n", entry->d_name);
    return 42;
}
