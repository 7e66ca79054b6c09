/* The driver's functions that tests call as a program does that uses CUDA itself. They are found by name, so that this compiles without CUDA. */
#ifndef COTANGENT_TESTS_CUDA_DRIVER_H
#define COTANGENT_TESTS_CUDA_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>

typedef unsigned long long cuda_address; /* CUdeviceptr */

typedef struct cuda_driver {
    int (*cuCtxGetCurrent)(void **context);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxCreate_v2)(void **context, unsigned flags, int device);
    int (*cuCtxDestroy_v2)(void *context);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuStreamDestroy_v2)(void *stream);
    int (*cuMemAlloc_v2)(cuda_address *memory, size_t bytes);
    int (*cuMemFree_v2)(cuda_address memory);
    int (*cuMemsetD32Async)(cuda_address memory, unsigned value, size_t n, void *stream);
    int (*cuMemcpyDtoHAsync_v2)(void *host, cuda_address memory, size_t bytes, void *stream);
    int (*cuMemHostAlloc)(void **memory, size_t bytes, unsigned flags);
    int (*cuMemFreeHost)(void *memory);
} cuda_driver;

/* What a program that captures graphs calls besides; the driver of the tests' own has no graphs. */
typedef struct cuda_graphs {
    int (*cuStreamBeginCapture_v2)(void *stream, int mode);
    int (*cuStreamEndCapture)(void *stream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **executable, void *graph, unsigned long long flags);
    int (*cuGraphLaunch)(void *executable, void *stream);
    int (*cuGraphExecDestroy)(void *executable);
    int (*cuGraphDestroy)(void *graph);
} cuda_graphs;

#define FIND(name) all = all && (*(void **)&cu->name = dlsym(library, #name)) != NULL

static inline bool cuda_graphs_find(cuda_graphs *cu) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool all = library != NULL;
    FIND(cuStreamBeginCapture_v2);
    FIND(cuStreamEndCapture);
    FIND(cuGraphInstantiateWithFlags);
    FIND(cuGraphLaunch);
    FIND(cuGraphExecDestroy);
    FIND(cuGraphDestroy);
    return all;
}

static inline bool cuda_driver_find(cuda_driver *cu) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    bool all = library != NULL;
    FIND(cuCtxGetCurrent);
    FIND(cuCtxSetCurrent);
    FIND(cuCtxCreate_v2);
    FIND(cuCtxDestroy_v2);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuStreamCreate);
    FIND(cuStreamSynchronize);
    FIND(cuStreamDestroy_v2);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuMemsetD32Async);
    FIND(cuMemcpyDtoHAsync_v2);
    FIND(cuMemHostAlloc);
    FIND(cuMemFreeHost);
    return all;
}

#undef FIND

#endif
