/* Opening the driver. */
#include "backends/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>

ct_cuda_driver ct_cuda;

bool ct_cuda_open(char *why, size_t room) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, room, "there is no NVIDIA driver: %s", dlerror());
        return false;
    }
#define X(name)                                                                  \
    *(void **)&ct_cuda.name = dlsym(library, #name);                             \
    if (!ct_cuda.name) {                                                         \
        snprintf(why, room, "the NVIDIA driver is too old: it lacks %s", #name); \
        return false;                                                            \
    }
    CT_CUDA_DRIVER_FUNCTIONS(X)
#undef X
    ct_cuda.edits_graphs = CUDA_VERSION >= 12030;
#define X(name) ct_cuda.edits_graphs &= (*(void **)&ct_cuda.name = dlsym(library, #name)) != NULL;
    CT_CUDA_GRAPH_FUNCTIONS(X)
#undef X
    const CUresult started = ct_cuda.cuInit(0);
    if (started == CUDA_SUCCESS) return true;
    const char *text = NULL;
    ct_cuda.cuGetErrorString(started, &text);
    snprintf(why, room, "the NVIDIA driver does not start: %s", text ? text : "it gives no reason");
    return false;
}
