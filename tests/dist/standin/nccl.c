/* A stand-in for libnccl.so.2 and libcuda.so.1: ranks are processes of this machine, which meet in a file that all map, and what
 * is enqueued is done at once. With the guarded device under the name of CUDA it shows, where there is no GPU, that collectives go
 * by the module for NCCL, with which arguments, and in which order of streams; and that several ranks need nothing beside it. */
#include <fcntl.h>
#include <nccl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FUNCTION __attribute__((visibility("default")))
enum { MOST = 16 };                         /* ranks */
static const size_t area = (size_t)1 << 28; /* bytes of a tensor; the file has holes where none are */

/* What all ranks see; behind it an area of each rank, and one of each pair of sender and receiver. */
typedef struct shared {
    _Atomic int joined, arrived, round;
    _Atomic uint64_t sent[MOST][MOST], received[MOST][MOST];
} shared;

struct ncclComm {
    int rank, ranks;
    shared *all;
    size_t bytes;
    _Atomic bool aborted;
};

static char *area_of(ncclComm_t c, int at) { return (char *)(c->all + 1) + (size_t)at * area; }
static char *letter(ncclComm_t c, int from, int to) { return area_of(c, c->ranks + from * c->ranks + to); }

static bool rest(ncclComm_t c) { /* between two looks */
    sched_yield();
    return !c->aborted;
}

static bool meet(ncclComm_t c) {
    const int round = c->all->round;
    if (atomic_fetch_add(&c->all->arrived, 1) + 1 == c->ranks) {
        c->all->arrived = 0;
        atomic_fetch_add(&c->all->round, 1);
    }
    while (c->all->round == round)
        if (!rest(c)) return false;
    return true;
}

FUNCTION ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

/* Of the address where all meet, if it is given; otherwise one that there is once. */
FUNCTION ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    static int made;
    const char *address = getenv("NCCL_COMM_ID");
    memset(id, 0, sizeof *id);
    if (address) snprintf(id->internal, sizeof id->internal, "at.%s", address);
    else snprintf(id->internal, sizeof id->internal, "%d.%d", (int)getpid(), made++);
    return ncclSuccess;
}

FUNCTION ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
    char path[300];
    if (!id.internal[0] || ranks < 1 || ranks > MOST || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    ncclComm_t c = calloc(1, sizeof *c);
    if (!c) return ncclSystemError;
    const char *folder = getenv("CT_STANDIN");
    if (ranks > 1 && !folder) return free(c), ncclInvalidUsage;
    *c = (struct ncclComm){.rank = rank, .ranks = ranks};
    c->bytes = sizeof *c->all + (size_t)(ranks + ranks * ranks) * area;
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "/dev/shm", id.internal);
    const int file = ranks == 1 ? memfd_create("standin", 0) : open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)c->bytes) != 0) return free(c), ncclSystemError;
    c->all = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    if (c->all == MAP_FAILED) return free(c), ncclSystemError;
    *comm = c;
    return meet(c) ? ncclSuccess : ncclSystemError;
}

FUNCTION ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    munmap(comm->all, comm->bytes);
    free(comm);
    return ncclSuccess;
}

FUNCTION ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->aborted = true;
    return ncclSuccess;
}

FUNCTION const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclInvalidUsage ? "a stand-in has one rank where CT_STANDIN names no folder" : "invalid argument";
}

/* ---- Values ---- */

static size_t width(ncclDataType_t type) {
    switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 4;
    }
}

__extension__ typedef _Float16 half;
#define TYPES(X)            \
    X(ncclInt8, int8_t)     \
    X(ncclUint8, uint8_t)   \
    X(ncclInt32, int32_t)   \
    X(ncclUint32, uint32_t) \
    X(ncclInt64, int64_t)   \
    X(ncclUint64, uint64_t) \
    X(ncclFloat32, float)   \
    X(ncclFloat64, double)  \
    X(ncclFloat16, half)

static double value(const void *from, size_t i, ncclDataType_t type) {
    switch (type) {
#define READ(name, c) \
    case name: return (double)((const c *)from)[i];
        TYPES(READ)
    default: { /* bf16 */
        const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    }
}

static void put(void *to, size_t i, ncclDataType_t type, double v) {
    switch (type) {
#define WRITE(name, c) \
    case name: ((c *)to)[i] = (c)v; return;
        TYPES(WRITE)
    default: {
        const float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    }
}

static double combine(double a, double b, ncclRedOp_t op) {
    switch (op) {
    case ncclSum: return a + b;
    case ncclProd: return a * b;
    case ncclMax: return a > b ? a : b;
    default: return a < b ? a : b;
    }
}

/* Elements [first, first + count) of what all ranks gave, in their order. */
static void reduce(ncclComm_t c, void *to, size_t first, size_t count, ncclDataType_t type, ncclRedOp_t op) {
    for (size_t i = 0; i < count; i++) {
        double v = value(area_of(c, 0), first + i, type);
        for (int r = 1; r < c->ranks; r++) v = combine(v, value(area_of(c, r), first + i, type), op);
        put(to, i, type, v);
    }
}

/* ---- Collectives: each is on a stream of its own, never on the device's ---- */

static bool give(ncclComm_t c, const void *from, void *to, size_t bytes, cudaStream_t stream) {
    if (!c || !from || !to || !stream || bytes > area) return false;
    if (c->ranks > 1) memcpy(area_of(c, c->rank), from, bytes);
    return meet(c);
}
static ncclResult_t over(ncclComm_t c) { return meet(c) ? ncclSuccess : ncclSystemError; }

FUNCTION ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    ncclComm_t comm, cudaStream_t stream) {
    if (!give(comm, from, to, count * width(type), stream)) return ncclInvalidArgument;
    if (comm->ranks == 1) memmove(to, from, count * width(type));
    else reduce(comm, to, 0, count, type, op);
    return over(comm);
}

FUNCTION ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                        ncclComm_t comm, cudaStream_t stream) {
    if (!comm || !give(comm, from, to, count * (size_t)comm->ranks * width(type), stream)) return ncclInvalidArgument;
    if (comm->ranks == 1) memmove(to, from, count * width(type));
    else reduce(comm, to, count * (size_t)comm->rank, count, type, op);
    return over(comm);
}

FUNCTION ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t stream) {
    if (!give(comm, from, to, count * width(type), stream) || root < 0 || root >= comm->ranks)
        return ncclInvalidArgument;
    memmove(to, comm->ranks > 1 ? area_of(comm, root) : from, count * width(type));
    return over(comm);
}

FUNCTION ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream) {
    const size_t bytes = count * width(type);
    if (!give(comm, from, to, bytes, stream)) return ncclInvalidArgument;
    for (int r = 0; r < comm->ranks; r++)
        memmove((char *)to + (size_t)r * bytes, comm->ranks > 1 ? area_of(comm, r) : from, bytes);
    return over(comm);
}

/* ---- Messages: those of a group of calls go on beside each other ---- */

typedef struct message {
    ncclComm_t comm;
    const void *from;
    void *to; /* NULL: it is sent */
    size_t bytes;
    int peer;
    bool done;
} message;
static message messages[2 * MOST];
static int grouped, message_count;

static void try_message(message *m) {
    ncclComm_t c = m->comm;
    const int source = m->to ? m->peer : c->rank, target = m->to ? c->rank : m->peer;
    _Atomic uint64_t *sent = &c->all->sent[source][target], *received = &c->all->received[source][target];
    if (m->to ? *sent == *received : *sent != *received) return; /* nothing is there; the last one still is */
    if (m->to) memcpy(m->to, letter(c, source, target), m->bytes);
    else memcpy(letter(c, source, target), m->from, m->bytes);
    atomic_fetch_add(m->to ? received : sent, 1);
    m->done = true;
}

static ncclResult_t deliver(void) {
    bool all = false;
    while (!all) {
        all = true;
        for (int i = 0; i < message_count; i++) {
            if (!messages[i].done) try_message(&messages[i]);
            all = all && messages[i].done;
        }
        if (!all && !rest(messages[0].comm)) break;
    }
    message_count = 0;
    return all ? ncclSuccess : ncclSystemError;
}

static ncclResult_t add_message(message m, cudaStream_t stream) {
    if (!m.comm || m.peer < 0 || m.peer >= m.comm->ranks || !stream || m.bytes == 0 || m.bytes > area ||
        message_count == (int)(sizeof messages / sizeof *messages))
        return ncclInvalidArgument;
    messages[message_count++] = m;
    return grouped ? ncclSuccess : deliver();
}

FUNCTION ncclResult_t ncclGroupStart(void); /* nccl.h leaves open what they take */
FUNCTION ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupStart(void) { return grouped++ ? ncclInvalidUsage : ncclSuccess; }
ncclResult_t ncclGroupEnd(void) { return --grouped ? ncclInvalidUsage : deliver(); }

FUNCTION ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                               cudaStream_t stream) {
    return add_message((message){comm, from, NULL, count * width(type), to, false}, stream);
}

FUNCTION ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                               cudaStream_t stream) {
    return to ? add_message((message){comm, NULL, to, count * width(type), from, false}, stream) : ncclInvalidArgument;
}

/* ---- Of the driver, what the module needs to choose a device ---- */

FUNCTION int cuDeviceGet(int *device, int ordinal);
FUNCTION int cuDevicePrimaryCtxRetain(void **context, int device);
FUNCTION int cuCtxSetCurrent(void *context);
FUNCTION int cuCtxGetCurrent(void **context);
FUNCTION int cuEventCreate(void **event, unsigned flags);
FUNCTION int cuEventRecord(void *event, void *stream);
FUNCTION int cuEventQuery(void *event);
FUNCTION int cuEventDestroy_v2(void *event);

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal != 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    static char one;
    *context = &one;
    return device != 0;
}

static void *current;
int cuCtxSetCurrent(void *context) {
    current = context;
    return !context;
}
int cuCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}

int cuEventCreate(void **event, unsigned flags) { /* what is enqueued is done, so all events have passed */
    static char one;
    *event = &one;
    return flags != 2;
}
int cuEventRecord(void *event, void *stream) { return !event || !stream; }
int cuEventQuery(void *event) { return !event; }
int cuEventDestroy_v2(void *event) { return !event; }
