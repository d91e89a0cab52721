/* Has a plugin, which is a program that was made a library, do what it does. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *plugin = dlopen("./plugin.so", RTLD_NOW | RTLD_LOCAL);
    int (*begin)(int, char **) = plugin ? (int (*)(int, char **))dlsym(plugin, "main") : NULL;
    if (!begin) {
        fprintf(stderr, "%s\n", dlerror());
        return 5;
    }
    return begin(count, arguments);
}
