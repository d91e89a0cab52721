/* So many processes at once that each ask for a context, which takes a place in the books. Each says what it was told. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    int crowd = count > 1 ? atoi(arguments[1]) : 0;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int gate[2], answers[2];
    if (!retain || pipe(gate) || pipe(answers))
        return 2;
    for (int child = 0; child < crowd; child++) {
        pid_t made = fork();
        if (made < 0)
            return 3;
        if (made == 0) {
            void *context;
            char go;
            int code = retain(&context, 0);
            close(gate[1]);
            if (write(answers[1], &code, sizeof code) != sizeof code)
                _exit(1);
            _exit(read(gate[0], &go, 1)); /* until all were there */
        }
    }
    for (int child = 0; child < crowd; child++) {
        int code;
        if (read(answers[0], &code, sizeof code) != sizeof code)
            return 4;
        printf("%d\n", code);
    }
    close(gate[1]);
    int bad = 0, status;
    while (wait(&status) > 0)
        bad |= status;
    return bad != 0;
}
