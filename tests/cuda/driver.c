/* A driver for the tests of the module for NVIDIA devices where there is none: its one device is memory of the host, and each stream a thread that
 * dawdles, so that what is read too early or used again too soon comes out as wrong bytes. It copies, fills and waits; kernels can be launched, and
 * do nothing. The functions that are not here (missing.c) fail. As in the real one most calls need a current context, and a copy from memory that is not
 * pinned waits for the stream. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 4096, DEVICE_BYTES = 1 << 30 };
typedef enum work_kind { COPY, FILL, AWAIT, NOTE } work_kind;

typedef struct work {
    struct work *next;
    work_kind kind;
    void *to;
    const void *from;
    size_t n, size; /* bytes to copy; elements to fill, and the size of one */
    unsigned value;
    CUstream other; /* whose work up to the ticket is awaited */
    unsigned long ticket;
    CUevent event; /* that notes the time */
} work;

/* What a stream was asked to do between the beginning and the end of a capture, in order. */
struct CUgraph_st {
    work *works;
    size_t n, room, holders; /* holders: the graph itself, and what was instantiated of it */
};

struct CUstream_st {
    CUcontext context;
    CUgraph capture; /* NULL: its work is done */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    work *first, **last;
    unsigned long queued, done;
    unsigned seed;
};

struct CUevent_st {
    CUstream stream;
    unsigned long ticket;
    bool timed;
    double time; /* in milliseconds, when the stream came to it */
};

struct CUctx_st {
    int device;
};
static struct CUctx_st primary;
static _Thread_local CUcontext current;

#define NEED_CONTEXT \
    if (!current) return CUDA_ERROR_INVALID_CONTEXT

/* ---- The device ---- */

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return *version = 13000, CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult result, const char **name) {
    return (void)result, *name = "of the tests' driver", CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult result, const char **text) {
    *text = result == CUDA_ERROR_INVALID_CONTEXT ? "no context is current" : "it does not do that";
    return CUDA_SUCCESS;
}
CUresult cuGetExportTable(const void **exported, const CUuuid *id) { /* NVRTC asks for one, and does without */
    return (void)id, *exported = NULL, CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuDeviceGetCount(int *count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int index) { return *device = index, CUDA_SUCCESS; }
CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
    snprintf(name, (size_t)room, "the tests' device %d", device);
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    return (void)device, *bytes = DEVICE_BYTES, CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    (void)device;
    *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
             : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                                     : 1024;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    return (void)device, *context = &primary, CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) { return *context = current, CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) { return current = context, CUDA_SUCCESS; }
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags,
                        CUdevice device); /* later headers declare only its successors */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    (void)flags, (void)device;
    current = *context = calloc(1, sizeof **context);
    return current ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuCtxDestroy_v2(CUcontext context) {
    if (current == context) current = NULL;
    free(context);
    return CUDA_SUCCESS;
}

/* ---- Memory ---- */

static struct {
    char *from;
    size_t bytes;
} pinned[PARTS];
static int pinned_count;
static pthread_mutex_t pinned_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    NEED_CONTEXT;
    return *available = *total = DEVICE_BYTES, CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t bytes) {
    NEED_CONTEXT;
    void *made = bytes <= DEVICE_BYTES ? aligned_alloc(256, (bytes + 255) / 256 * 256) : NULL;
    *memory = (CUdeviceptr)(uintptr_t)made;
    return made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFree_v2(CUdeviceptr memory) {
    NEED_CONTEXT;
    free((void *)(uintptr_t)memory);
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    NEED_CONTEXT;
    (void)flags;
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    pthread_mutex_lock(&pinned_lock);
    if (*memory && pinned_count < PARTS) {
        pinned[pinned_count].from = *memory;
        pinned[pinned_count++].bytes = bytes;
    }
    pthread_mutex_unlock(&pinned_lock);
    return *memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *memory) {
    NEED_CONTEXT;
    pthread_mutex_lock(&pinned_lock);
    for (int i = 0; i < pinned_count; i++)
        if (pinned[i].from == memory) pinned[i] = pinned[--pinned_count];
    pthread_mutex_unlock(&pinned_lock);
    free(memory);
    return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *there, void *memory, unsigned flags) {
    return (void)flags, *there = (CUdeviceptr)(uintptr_t)memory, CUDA_SUCCESS;
}

static int is_pinned(const void *memory) {
    const char *at = memory;
    int found = 0;
    pthread_mutex_lock(&pinned_lock);
    for (int i = 0; i < pinned_count; i++) found |= at >= pinned[i].from && at < pinned[i].from + pinned[i].bytes;
    pthread_mutex_unlock(&pinned_lock);
    return found;
}

/* Of attributes it knows the kind of memory. */
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **values, CUdeviceptr memory) {
    for (unsigned i = 0; i < count; i++) {
        if (which[i] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_INVALID_VALUE;
        *(unsigned *)values[i] = is_pinned((const void *)(uintptr_t)memory) ? CU_MEMORYTYPE_HOST : 0;
    }
    return CUDA_SUCCESS;
}

/* ---- Streams ---- */

static void wait_until(CUstream stream, unsigned long ticket) {
    pthread_mutex_lock(&stream->lock);
    while (stream->done < ticket) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void do_work(const work *w) {
    switch (w->kind) {
    case COPY: memcpy(w->to, w->from, w->n); break;
    case FILL:
        for (size_t i = 0; i < w->n; i++) memcpy((char *)w->to + i * w->size, &w->value, w->size); /* little endian */
        break;
    case AWAIT: wait_until(w->other, w->ticket); break;
    case NOTE: w->event->time = now(); break;
    }
}

static void *run_stream(void *context) {
    CUstream s = context;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (!s->first) pthread_cond_wait(&s->changed, &s->lock);
        work *w = s->first;
        pthread_mutex_unlock(&s->lock);
        s->seed = s->seed * 1664525u + 1013904223u;
        usleep(s->seed >> 24);
        do_work(w);
        pthread_mutex_lock(&s->lock);
        s->first = w->next;
        if (!s->first) s->last = &s->first;
        s->done++;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        free(w);
    }
    return NULL;
}

static CUresult record(CUgraph graph, work w) {
    if (graph->n == graph->room) {
        const size_t room = graph->room ? 2 * graph->room : 16;
        work *larger = realloc(graph->works, room * sizeof *larger);
        if (!larger) return CUDA_ERROR_OUT_OF_MEMORY;
        graph->works = larger;
        graph->room = room;
    }
    graph->works[graph->n++] = w;
    return CUDA_SUCCESS;
}

static CUresult enqueue(CUstream s, work w) {
    NEED_CONTEXT;
    if (s && s->capture) return record(s->capture, w);
    work *made = s ? malloc(sizeof *made) : NULL;
    if (!made) return CUDA_ERROR_INVALID_HANDLE;
    *made = w;
    pthread_mutex_lock(&s->lock);
    *s->last = made;
    s->last = &made->next;
    s->queued++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return CUDA_SUCCESS;
}

static unsigned long queued(CUstream s) {
    pthread_mutex_lock(&s->lock);
    const unsigned long count = s->queued;
    pthread_mutex_unlock(&s->lock);
    return count;
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    NEED_CONTEXT;
    (void)flags;
    pthread_t thread;
    CUstream s = calloc(1, sizeof *s); /* for ever: its thread does not end */
    if (!s) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->context = current;
    s->last = &s->first;
    *stream = s;
    return pthread_create(&thread, NULL, run_stream, s) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream s) {
    if (s->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return wait_until(s, queued(s)), CUDA_SUCCESS;
}
CUresult cuStreamDestroy_v2(CUstream s) { return cuStreamSynchronize(s); }
CUresult cuStreamGetCtx(CUstream s, CUcontext *context) { return *context = s ? s->context : current, CUDA_SUCCESS; }

static CUresult is_done(CUstream s, unsigned long ticket) {
    pthread_mutex_lock(&s->lock);
    const CUresult result = s->done >= ticket ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
    pthread_mutex_unlock(&s->lock);
    return result;
}
CUresult cuStreamQuery(CUstream s) { return is_done(s, queued(s)); }

/* An event with a time is work of the stream, which may not be enqueued again before it is done. */
static CUresult note(CUstream stream, CUevent event) {
    const CUresult result = enqueue(stream, (work){.kind = NOTE, .event = event});
    event->stream = stream, event->ticket = queued(stream);
    return result;
}
CUresult cuEventCreate(CUevent *event, unsigned flags) {
    NEED_CONTEXT;
    if (!(*event = calloc(1, sizeof **event))) return CUDA_ERROR_OUT_OF_MEMORY;
    (*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent event) {
    if (event->stream && event->timed) wait_until(event->stream, event->ticket);
    return free(event), CUDA_SUCCESS;
}
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    NEED_CONTEXT;
    if (stream->capture)
        return flags == CU_EVENT_RECORD_EXTERNAL ? record(stream->capture, (work){.kind = NOTE, .event = event})
                                                 : CUDA_ERROR_NOT_SUPPORTED;
    if (event->timed) return note(stream, event);
    event->stream = stream, event->ticket = queued(stream);
    return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) { return cuEventRecordWithFlags(event, stream, 0); }
CUresult cuEventQuery(CUevent event) { return event->stream ? is_done(event->stream, event->ticket) : CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent event) {
    if (event->stream) wait_until(event->stream, event->ticket);
    return CUDA_SUCCESS;
}
#undef cuEventElapsedTime /* which later headers have for its successor */
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to);
CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    if (!from->timed || !to->timed || !from->stream || !to->stream) return CUDA_ERROR_INVALID_HANDLE;
    if (cuEventQuery(from) != CUDA_SUCCESS || cuEventQuery(to) != CUDA_SUCCESS) return CUDA_ERROR_NOT_READY;
    return *milliseconds = (float)(to->time - from->time), CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)flags;
    if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
    return event->stream ? enqueue(stream, (work){.kind = AWAIT, .other = event->stream, .ticket = event->ticket})
                         : CUDA_SUCCESS;
}

/* ---- Copies ---- */

static CUresult copy(void *to, const void *from, size_t bytes, const void *host, CUstream stream) {
    if (stream && stream->capture && host)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* who knows how long it is there */
    const CUresult result = enqueue(stream, (work){.kind = COPY, .to = to, .from = from, .n = bytes});
    return result != CUDA_SUCCESS || !host || is_pinned(host) ? result : cuStreamSynchronize(stream);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    return copy((void *)(uintptr_t)to, from, bytes, from, stream);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy(to, (const void *)(uintptr_t)from, bytes, to, stream);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    return copy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes, NULL, stream);
}
static CUresult fill(CUdeviceptr to, unsigned value, size_t size, size_t n, CUstream stream) {
    return enqueue(stream, (work){.kind = FILL, .to = (void *)(uintptr_t)to, .value = value, .size = size, .n = n});
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
    return fill(to, value, 1, n, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream) {
    return fill(to, value, 2, n, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n, CUstream stream) {
    return fill(to, value, 4, n, stream);
}

/* ---- Graphs, of one stream each ---- */

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    *status = stream && stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    NEED_CONTEXT;
    (void)mode;
    if (stream->capture || !(stream->capture = calloc(1, sizeof *stream->capture))) return CUDA_ERROR_INVALID_VALUE;
    stream->capture->holders = 1;
    return CUDA_SUCCESS;
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    NEED_CONTEXT;
    *graph = stream->capture;
    stream->capture = NULL;
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *n) {
    return *n = graph->n, nodes ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *made, CUgraph graph, unsigned long long flags) {
    NEED_CONTEXT;
    (void)flags;
    graph->holders++;
    return *made = (CUgraphExec)(void *)graph, CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec made, CUstream stream) {
    const CUgraph graph = (CUgraph)(void *)made;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < graph->n && result == CUDA_SUCCESS; i++)
        result = graph->works[i].kind == NOTE ? note(stream, graph->works[i].event) : enqueue(stream, graph->works[i]);
    return result;
}
CUresult cuGraphDestroy(CUgraph graph) {
    if (--graph->holders) return CUDA_SUCCESS;
    free(graph->works);
    free(graph);
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec made) { return cuGraphDestroy((CUgraph)(void *)made); }

/* ---- Kernels ---- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    NEED_CONTEXT;
    return *module = (CUmodule)(uintptr_t)image, CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    NEED_CONTEXT;
    return (void)module, *function = (CUfunction)(uintptr_t)name, CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    return (void)function, (void)which, (void)value, CUDA_SUCCESS;
}

/* What the real one would refuse. */
static CUresult launch(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, void **arguments) {
    NEED_CONTEXT;
    const bool grid = gx && gy && gz && gx <= INT32_MAX && gy <= 65535 && gz <= 65535;
    const bool block = bx && by && bz && bz <= 64 && (unsigned long)bx * by * bz <= 1024;
    return grid && block && arguments ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **arguments, void **extra) {
    (void)function, (void)shared, (void)stream, (void)extra;
    return launch(gx, gy, gz, bx, by, bz, arguments);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **arguments, void **extra) {
    (void)function, (void)extra;
    return launch(c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ, arguments);
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    return (void)which, (void)function, *value = 90, CUDA_SUCCESS;
}
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void **arguments) {
    (void)function, (void)shared, (void)stream;
    return launch(gx, gy, gz, bx, by, bz, arguments);
}
