/* A stand-in for libnccl.so.2 and libcuda.so.1, of one rank: what it gives is a copy of what it gets. With the guarded
 * device under the name of CUDA it shows, where there is no GPU, that collectives go by the module for NCCL, with which
 * arguments, and in which order of streams. */
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION __attribute__((visibility("default")))

static size_t bytes_of(size_t count, ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8: return count;
    case ncclFloat16:
    case ncclBfloat16: return 2 * count;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8 * count;
    default: return 4 * count;
    }
}

/* Collectives are on a stream of their own, never on the device's. */
static ncclResult_t copy(const void *from, void *to, size_t bytes, cudaStream_t stream) {
    if (!from || !to || !stream) return ncclInvalidArgument;
    memmove(to, from, bytes);
    return ncclSuccess;
}

FUNCTION ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

FUNCTION ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 7, sizeof *id);
    return ncclSuccess;
}

FUNCTION ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    *comm = malloc(1);
    return *comm && ranks == 1 && rank == 0 && id.internal[0] == 7 ? ncclSuccess : ncclInvalidUsage;
}

FUNCTION ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    free(comm);
    return ncclSuccess;
}

FUNCTION const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidUsage ? "a stand-in has one rank" : "invalid argument";
}

FUNCTION ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    ncclComm_t comm, cudaStream_t stream) {
    return comm && (int)op >= 0 ? copy(from, to, bytes_of(count, type), stream) : ncclInvalidArgument;
}

FUNCTION ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                        ncclComm_t comm, cudaStream_t stream) {
    return ncclAllReduce(from, to, count, type, op, comm, stream);
}

FUNCTION ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream) {
    return comm && root == 0 ? copy(from, to, bytes_of(count, type), stream) : ncclInvalidArgument;
}

FUNCTION ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream) {
    return comm ? copy(from, to, bytes_of(count, type), stream) : ncclInvalidArgument;
}

/* A send waits for its receive, which has to come in the same group of calls. */
static const void *sent;
static int grouped;

FUNCTION ncclResult_t ncclGroupStart(void); /* nccl.h leaves open what they take */
FUNCTION ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupStart(void) { return grouped++ ? ncclInvalidUsage : ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return --grouped || sent ? ncclInvalidUsage : ncclSuccess; }

FUNCTION ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                               cudaStream_t stream) {
    if (!comm || to != 0 || !stream || !grouped || bytes_of(count, type) == 0) return ncclInvalidArgument;
    sent = from;
    return ncclSuccess;
}

FUNCTION ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                               cudaStream_t stream) {
    const void *what = sent;
    sent = NULL;
    return comm && from == 0 && grouped ? copy(what, to, bytes_of(count, type), stream) : ncclInvalidArgument;
}

/* ---- Of the driver, what the module needs to choose a device ---- */

FUNCTION int cuDeviceGet(int *device, int ordinal);
FUNCTION int cuDevicePrimaryCtxRetain(void **context, int device);
FUNCTION int cuCtxSetCurrent(void *context);

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal != 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    static char one;
    *context = &one;
    return device != 0;
}

int cuCtxSetCurrent(void *context) { return !context; }
