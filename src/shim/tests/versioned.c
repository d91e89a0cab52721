/* As much of a driver as routes.c needs, with versions of symbols, which dlvsym insists on. Card 0 of a uniform machine. */
#include <stddef.h>
#include <string.h>

int cuInit(unsigned flags) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = context; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetUuid_v2(char uuid[16], int device)
{
    memcpy(uuid, "\0\0\0\0\xfa\x4e\x4a\x11\x80\0\0\0\0\0\0\0", 16);
    return 0;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = *total = 1 << 30; return 0; }
