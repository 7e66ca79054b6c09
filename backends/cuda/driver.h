/* The driver's functions, found at run time: a module that was built with CUDA loads where there is none, and says so. */
#ifndef COTANGENT_BACKENDS_CUDA_DRIVER_H
#define COTANGENT_BACKENDS_CUDA_DRIVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#define CT_CUDA_DRIVER_FUNCTIONS(X) \
    X(cuInit)                       \
    X(cuDriverGetVersion)           \
    X(cuGetErrorName)               \
    X(cuGetErrorString)             \
    X(cuDeviceGetCount)             \
    X(cuDeviceGet)                  \
    X(cuDeviceGetName)              \
    X(cuDeviceTotalMem_v2)          \
    X(cuDeviceGetAttribute)         \
    X(cuDeviceCanAccessPeer)        \
    X(cuDevicePrimaryCtxRetain)     \
    X(cuCtxGetCurrent)              \
    X(cuCtxSetCurrent)              \
    X(cuCtxEnablePeerAccess)        \
    X(cuMemGetInfo_v2)              \
    X(cuMemAlloc_v2)                \
    X(cuMemFree_v2)                 \
    X(cuMemHostAlloc)               \
    X(cuMemFreeHost)                \
    X(cuMemHostGetDevicePointer_v2) \
    X(cuMemcpyHtoDAsync_v2)         \
    X(cuMemcpyDtoHAsync_v2)         \
    X(cuMemcpyDtoDAsync_v2)         \
    X(cuMemcpyPeerAsync)            \
    X(cuMemsetD8Async)              \
    X(cuMemsetD16Async)             \
    X(cuMemsetD32Async)             \
    X(cuStreamCreate)               \
    X(cuStreamDestroy_v2)           \
    X(cuStreamSynchronize)          \
    X(cuStreamWaitEvent)            \
    X(cuStreamIsCapturing)          \
    X(cuStreamBeginCapture_v2)      \
    X(cuStreamEndCapture)           \
    X(cuGraphInstantiateWithFlags)  \
    X(cuGraphLaunch)                \
    X(cuGraphGetNodes)              \
    X(cuGraphDestroy)               \
    X(cuGraphExecDestroy)           \
    X(cuEventCreate)                \
    X(cuEventDestroy_v2)            \
    X(cuEventRecord)                \
    X(cuEventRecordWithFlags)       \
    X(cuEventSynchronize)           \
    X(cuEventElapsedTime)           \
    X(cuStreamQuery)                \
    X(cuStreamGetCtx)               \
    X(cuEventQuery)                 \
    X(cuPointerGetAttributes)       \
    X(cuModuleLoadData)             \
    X(cuModuleGetFunction)          \
    X(cuFuncSetAttribute)           \
    X(cuFuncGetAttribute)           \
    X(cuLaunchHostFunc)             \
    X(cuLaunchKernel)               \
    X(cuLaunchKernelEx)             \
    X(cuLaunchCooperativeKernel)

/* Those that older drivers lack, and that can be done without: NULL then. */
#if CUDA_VERSION >= 12030
#define CT_CUDA_GRAPH_FUNCTIONS(X)          \
    X(cuStreamGetCaptureInfo_v3)            \
    X(cuStreamUpdateCaptureDependencies_v2) \
    X(cuGraphNodeGetType)                   \
    X(cuGraphMemsetNodeGetParams)           \
    X(cuGraphNodeGetDependencies_v2)        \
    X(cuGraphNodeGetDependentNodes_v2)      \
    X(cuGraphAddKernelNode_v2)              \
    X(cuGraphAddDependencies_v2)            \
    X(cuGraphDestroyNode)
#else
#define CT_CUDA_GRAPH_FUNCTIONS(X)
#endif

typedef struct ct_cuda_driver {
#define X(name) __typeof__(&name) name;
    CT_CUDA_DRIVER_FUNCTIONS(X)
    CT_CUDA_GRAPH_FUNCTIONS(X)
#undef X
    bool edits_graphs; /* all of the latter are there */
} ct_cuda_driver;

extern ct_cuda_driver ct_cuda;

bool ct_cuda_open(char *why, size_t room); /* false: there is no driver, or it is too old; why says which */

#endif
