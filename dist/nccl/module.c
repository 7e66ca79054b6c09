/* The module that carries CUDA tensors by NCCL: what of its functions is needed, found when the library is opened. */
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

#include "dist/nccl/nccl.h"

#define FUNCTIONS(X)     \
    X(ncclGetVersion)    \
    X(ncclGetUniqueId)   \
    X(ncclCommInitRank)  \
    X(ncclCommDestroy)   \
    X(ncclCommAbort)     \
    X(ncclAllReduce)     \
    X(ncclBroadcast)     \
    X(ncclAllGather)     \
    X(ncclReduceScatter) \
    X(ncclSend)          \
    X(ncclRecv)          \
    X(ncclGroupStart)    \
    X(ncclGroupEnd)      \
    X(ncclGetErrorString)
#define FIELD(name) __typeof__(&name) name;
static struct { FUNCTIONS(FIELD) } nccl;

/* NCCL takes a communicator's device from the context of the thread: the driver's primary one, which the module for
 * CUDA uses too. */
static struct {
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuCtxSetCurrent)(void *context);
    int (*cuCtxGetCurrent)(void **context);
    int (*cuEventCreate)(void **event, unsigned flags);
    int (*cuEventRecord)(void *event, void *stream);
    int (*cuEventQuery)(void *event);
    int (*cuEventDestroy)(void *event);
} driver;

static const char *open_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return "libcuda.so.1 cannot be opened";
    *(void **)&driver.cuDeviceGet = dlsym(library, "cuDeviceGet");
    *(void **)&driver.cuDevicePrimaryCtxRetain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&driver.cuCtxSetCurrent = dlsym(library, "cuCtxSetCurrent");
    *(void **)&driver.cuCtxGetCurrent = dlsym(library, "cuCtxGetCurrent");
    *(void **)&driver.cuEventCreate = dlsym(library, "cuEventCreate");
    *(void **)&driver.cuEventRecord = dlsym(library, "cuEventRecord");
    *(void **)&driver.cuEventQuery = dlsym(library, "cuEventQuery");
    *(void **)&driver.cuEventDestroy = dlsym(library, "cuEventDestroy_v2");
    return driver.cuDeviceGet && driver.cuDevicePrimaryCtxRetain && driver.cuCtxSetCurrent && driver.cuCtxGetCurrent &&
                   driver.cuEventCreate && driver.cuEventRecord && driver.cuEventQuery && driver.cuEventDestroy
               ? NULL
               : "libcuda.so.1 is too old";
}

static void *own; /* the context of this rank's device: its primary one */

static const char *set_device(int ordinal) {
    int device = 0;
    const bool done = driver.cuDeviceGet(&device, ordinal) == 0 && driver.cuDevicePrimaryCtxRetain(&own, device) == 0 &&
                      driver.cuCtxSetCurrent(own) == 0;
    return done ? NULL : "the driver does not give the device's context";
}

/* Any thread may call, with any context or none: it has its own again afterwards. */
static void *enter(void) {
    void *before = NULL;
    driver.cuCtxGetCurrent(&before);
    if (before != own) driver.cuCtxSetCurrent(own);
    return before;
}
static void leave_to(void *before) {
    if (before != own) driver.cuCtxSetCurrent(before);
}

static const char *problem_of(ncclResult_t code) { return code == ncclSuccess ? NULL : nccl.ncclGetErrorString(code); }

static const char *open(char *name, size_t room) {
    static void *library;
    static char why[256];
    int version = 0;
    if (!library) library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(why, sizeof why, "%s", reason ? reason : "libnccl.so.2 cannot be opened");
        return why;
    }
#define FIND(function) *(void **)&nccl.function = dlsym(library, #function);
    FUNCTIONS(FIND)
#define LACKS(function) \
    if (!nccl.function) return "libnccl.so.2 has no " #function;
    FUNCTIONS(LACKS)
    const char *problem = open_driver();
    if (!problem) problem = problem_of(nccl.ncclGetVersion(&version));
    if (!problem) snprintf(name, room, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return problem;
}

static const char *new_id(void *id) {
    ncclUniqueId made;
    _Static_assert(sizeof made == CT__NCCL_ID_BYTES, "the size of an identity is part of NCCL's ABI");
    const char *problem = problem_of(nccl.ncclGetUniqueId(&made));
    if (!problem) memcpy(id, &made, sizeof made);
    return problem;
}

static const char *join(const void *id, int rank, int ranks, int device, void **comm) {
    ncclUniqueId given;
    ncclComm_t made = NULL;
    memcpy(&given, id, sizeof given);
    const char *problem = set_device(device);
    if (!problem) problem = problem_of(nccl.ncclCommInitRank(&made, ranks, given, rank));
    *comm = made;
    return problem;
}

static void leave(void *comm) {
    void *before = enter();
    nccl.ncclCommDestroy(comm);
    leave_to(before);
}

/* The dtype to reduce in; false: there is none. */
static bool number_type(ct_dtype dtype, ncclDataType_t *type) {
    switch (dtype) {
    case CT_F32: *type = ncclFloat32; return true;
    case CT_F64: *type = ncclFloat64; return true;
    case CT_F16: *type = ncclFloat16; return true;
    case CT_BF16: *type = ncclBfloat16; return true;
    case CT_I8: *type = ncclInt8; return true;
    case CT_I32: *type = ncclInt32; return true;
    case CT_I64: *type = ncclInt64; return true;
    case CT_U8:
    case CT_BOOL: *type = ncclUint8; return true;
    case CT_U32: *type = ncclUint32; return true;
    case CT_U64: *type = ncclUint64; return true;
    default: return false;
    }
}

static size_t bytes_of(ct_dtype dtype) { /* the module links against nothing of the library */
    switch (dtype) {
    case CT_F64:
    case CT_I64:
    case CT_U64:
    case CT_COMPLEX64: return 8;
    case CT_F32:
    case CT_I32:
    case CT_U32: return 4;
    case CT_F16:
    case CT_BF16:
    case CT_I16:
    case CT_U16: return 2;
    default: return 1;
    }
}

static const char *cannot(ct__dist_kind kind, ct_dtype dtype, ct_dist_reduction reduction) {
    ncclDataType_t type;
    if (kind != CT__ALL_REDUCE && kind != CT__REDUCE_SCATTER) return NULL;
    if (!number_type(dtype, &type)) return "NCCL has no reductions of this dtype";
    const bool extreme = reduction == CT_DIST_MAX || reduction == CT_DIST_MIN;
    const bool real = dtype == CT_F32 || dtype == CT_F64 || dtype == CT_F16 || dtype == CT_BF16;
    return extreme && real ? "NCCL leaves open what becomes of NaN" : NULL;
}

static ncclRedOp_t operation(ct_dist_reduction reduction) {
    switch (reduction) {
    case CT_DIST_MAX: return ncclMax;
    case CT_DIST_MIN: return ncclMin;
    case CT_DIST_PRODUCT: return ncclProd;
    default: return ncclSum;
    }
}

static const char *all_to_all(ncclComm_t comm, const ct__transfer *t, int ranks, cudaStream_t stream) {
    const size_t bytes = (size_t)t->count * bytes_of(t->dtype);
    const char *problem = problem_of(nccl.ncclGroupStart());
    for (int r = 0; !problem && r < ranks; r++) {
        problem = problem_of(nccl.ncclSend((const char *)t->in + (size_t)r * bytes, bytes, ncclUint8, r, comm, stream));
        if (!problem)
            problem = problem_of(nccl.ncclRecv((char *)t->out + (size_t)r * bytes, bytes, ncclUint8, r, comm, stream));
    }
    const char *ended = problem_of(nccl.ncclGroupEnd());
    return problem ? problem : ended;
}

static const char *enqueue(void *on, const ct__transfer *t, int ranks, void *stream_handle) {
    ncclComm_t comm = on;
    cudaStream_t stream = stream_handle;
    const size_t count = (size_t)t->count, bytes = count * bytes_of(t->dtype);
    ncclDataType_t type = ncclUint8;
    const bool reduces = t->kind == CT__ALL_REDUCE || t->kind == CT__REDUCE_SCATTER;
    if (reduces && !number_type(t->dtype, &type)) return "NCCL has no reductions of this dtype";
    const ncclRedOp_t op = operation(t->reduction);
    switch (t->kind) {
    case CT__ALL_REDUCE: return problem_of(nccl.ncclAllReduce(t->in, t->out, count, type, op, comm, stream));
    case CT__REDUCE_SCATTER: return problem_of(nccl.ncclReduceScatter(t->in, t->out, count, type, op, comm, stream));
    case CT__ALL_GATHER: return problem_of(nccl.ncclAllGather(t->in, t->out, bytes, ncclUint8, comm, stream));
    case CT__BROADCAST: return problem_of(nccl.ncclBroadcast(t->in, t->out, bytes, ncclUint8, t->root, comm, stream));
    case CT__ALL_TO_ALL: return all_to_all(comm, t, ranks, stream);
    case CT__SEND: return problem_of(nccl.ncclSend(t->in, bytes, ncclUint8, t->root, comm, stream));
    case CT__RECEIVE: return problem_of(nccl.ncclRecv(t->out, bytes, ncclUint8, t->root, comm, stream));
    default: return "this is not a collective";
    }
}

static const char *collective(void *on, const ct__transfer *t, int ranks, void *stream) {
    void *before = enter();
    const char *problem = enqueue(on, t, ranks, stream);
    leave_to(before);
    return problem;
}

static void abort_comm(void *comm) {
    void *before = enter();
    nccl.ncclCommAbort(comm);
    leave_to(before);
}

static void *mark(void *stream) {
    enum { NO_TIMING = 2 };
    void *event = NULL, *before = enter();
    if (driver.cuEventCreate(&event, NO_TIMING) != 0) event = NULL;
    if (event && driver.cuEventRecord(event, stream) != 0) {
        driver.cuEventDestroy(event);
        event = NULL;
    }
    leave_to(before);
    return event;
}

static bool passed(void *event) {
    enum { NOT_READY = 600 };
    void *before = enter();
    const bool is = driver.cuEventQuery(event) != NOT_READY;
    leave_to(before);
    return is;
}

static void forget(void *event) {
    void *before = enter();
    driver.cuEventDestroy(event);
    leave_to(before);
}

static const char *group(bool end) {
    void *before = enter();
    const char *problem = problem_of(end ? nccl.ncclGroupEnd() : nccl.ncclGroupStart());
    leave_to(before);
    return problem;
}

__attribute__((visibility("default"))) const ct__nccl *ct_dist_nccl(void);
const ct__nccl *ct_dist_nccl(void) {
    static const ct__nccl table = {.size = sizeof table,
                                   .version = CT__NCCL_VERSION,
                                   .open = open,
                                   .new_id = new_id,
                                   .join = join,
                                   .leave = leave,
                                   .cannot = cannot,
                                   .collective = collective,
                                   .abort = abort_comm,
                                   .mark = mark,
                                   .passed = passed,
                                   .forget = forget,
                                   .group = group};
    return &table;
}
