/* Devices of the CUDA module: contexts, memory, streams, events, copies, and what goes wrong in them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/backend.h"
#include "backends/cuda/branch.h"
#include "backends/cuda/libraries.h"
#include "backends/cuda/recorded.h"
#include "backends/cuda/staging.h"
#include "backends/cuda/tune.h"

const ct_host *ct_cuda_host;

static ct_cuda_device devices[CT_CUDA_DEVICES];
static int count;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool forked; /* contexts do not survive a fork */
static char unchanged;      /* its address stands for a context that was current already */

static void describe(CUresult result, char *text, size_t room) {
    const char *name = NULL, *says = NULL;
    ct_cuda.cuGetErrorName(result, &name);
    ct_cuda.cuGetErrorString(result, &says);
    snprintf(text, room, "%s (%s)", says ? says : "an unknown error", name ? name : "?");
}

/* After these the context answers every call with the same error. */
static bool is_sticky(CUresult result) {
    switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED: return true;
    default: return false;
    }
}

bool ct_cuda_ok(ct_cuda_device *device, CUresult result, const char *op, const char *what) {
    if (result == CUDA_SUCCESS) return true;
    char text[256];
    describe(result, text, sizeof text);
    if (is_sticky(result) && !atomic_load(&device->lost)) {
        snprintf(device->why, sizeof device->why, "%s", text);
        atomic_store(&device->lost, true);
    }
    return ct_cuda_host->fail(result == CUDA_ERROR_OUT_OF_MEMORY ? CT_ERR_MEMORY : CT_ERR_DEVICE, op, "%s: %s", what,
                              text);
}

static bool allocate_word(ct_cuda_device *d) {
    void *host = NULL;
    if (ct_cuda.cuMemAlloc_v2(&d->word, sizeof(ct_cuda_word)) != CUDA_SUCCESS) return false;
    if (ct_cuda.cuMemHostAlloc(&host, sizeof *d->noticed, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE) !=
        CUDA_SUCCESS)
        return false;
    d->noticed = host;
    *d->noticed = 0;
    return ct_cuda.cuMemHostGetDevicePointer_v2(&d->noticed_there, host, 0) == CUDA_SUCCESS &&
           ct_cuda.cuMemsetD8Async(d->word, 0, sizeof(ct_cuda_word), d->stream) == CUDA_SUCCESS;
}

static int attribute(const ct_cuda_device *d, CUdevice_attribute which) {
    int value = 0;
    return ct_cuda.cuDeviceGetAttribute(&value, which, d->device) == CUDA_SUCCESS ? value : 0;
}

/* The primary context, which a program that uses CUDA itself has too. */
static bool open_device(ct_cuda_device *d) {
    CUcontext before = NULL, context = NULL;
    if (!ct_cuda_ok(d, ct_cuda.cuDevicePrimaryCtxRetain(&context, d->device), "cuda", "the device cannot be used"))
        return false;
    ct_cuda.cuCtxGetCurrent(&before);
    ct_cuda.cuCtxSetCurrent(context);
    d->multiprocessors = attribute(d, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    d->threads_per_multiprocessor = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    d->shared_limit = attribute(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    d->capability = 10 * attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                    attribute(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    const bool ok =
        ct_cuda_ok(d, ct_cuda.cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING), "cuda", "no stream can be made") &&
        (allocate_word(d) || ct_cuda_host->fail(CT_ERR_MEMORY, "cuda", "no memory for the device's error word"));
    ct_cuda.cuCtxSetCurrent(before);
    if (ok) atomic_store_explicit(&d->context, context, memory_order_release);
    return ok;
}

static void note_fork(void) { atomic_store(&forked, true); }

bool ct_cuda_start(char *why, size_t room) {
    pthread_atfork(NULL, NULL, note_fork);
    if (ct_cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS || count < 1) {
        snprintf(why, room, "the NVIDIA driver finds no device");
        return false;
    }
    if (count > CT_CUDA_DEVICES) count = CT_CUDA_DEVICES;
    for (int i = 0; i < count; i++)
        if (ct_cuda.cuDeviceGet(&devices[i].device, i) != CUDA_SUCCESS) count = i;
    return count > 0;
}

static bool open_once(ct_cuda_device *d) {
    pthread_mutex_lock(&opening);
    const bool open = atomic_load(&d->context) || open_device(d);
    pthread_mutex_unlock(&opening);
    return open;
}

/* Several times per call of an op: nothing here is locked or asked of the system. */
ct_cuda_device *ct_cuda_device_at(int index) {
    if (atomic_load_explicit(&forked, memory_order_relaxed)) {
        ct_cuda_host->fail(
            CT_ERR_DEVICE, "cuda",
            "a process that was forked after CUDA was used cannot use it; start the child before, or run "
            "another program");
        return NULL;
    }
    if (index < 0 || index >= count) {
        ct_cuda_host->fail(CT_ERR_DEVICE, "cuda", "there is no device %d", index);
        return NULL;
    }
    ct_cuda_device *d = &devices[index];
    if (atomic_load_explicit(&d->lost, memory_order_relaxed)) {
        ct_cuda_host->fail(
            CT_ERR_DEVICE, "cuda",
            "the device is lost to this process since an earlier fault: %s; tensors on the CPU can still be saved",
            d->why);
        return NULL;
    }
    return atomic_load_explicit(&d->context, memory_order_acquire) || open_once(d) ? d : NULL;
}

ct_cuda_device *ct_cuda_enter(int index, CUcontext *before) {
    ct_cuda_device *d = ct_cuda_device_at(index);
    if (!d) return NULL;
    const CUcontext context = atomic_load_explicit(&d->context, memory_order_relaxed);
    *before = NULL;
    ct_cuda.cuCtxGetCurrent(before);
    if (*before == context) *before = (CUcontext)(void *)&unchanged;
    else ct_cuda.cuCtxSetCurrent(context);
    return d;
}

void ct_cuda_leave(CUcontext before) {
    if (before != (CUcontext)(void *)&unchanged) ct_cuda.cuCtxSetCurrent(before);
}

CUstream ct_cuda_stream(const ct_cuda_device *device, const ct_stream *stream) {
    return stream ? (CUstream)stream->handle : device->stream;
}

/* ---- The contract ---- */

static int device_count(void *self) { return (void)self, count; }

static bool device_info(void *self, int index, ct_device_info *info) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    size_t available = 0, total = 0;
    ct_cuda.cuDeviceGetName(info->name, (int)sizeof info->name, d->device);
    if (ct_cuda.cuMemGetInfo_v2(&available, &total) == CUDA_SUCCESS) {
        info->memory = (int64_t)total;
        info->memory_free = (int64_t)available;
    }
    ct_cuda_driver_text(info->driver, sizeof info->driver);
    if (info->size >= sizeof *info) ct_cuda_libraries(info->libraries, sizeof info->libraries);
    ct_cuda_leave(before);
    return true;
}

static bool allocate(void *self, int index, size_t bytes, void **buffer) {
    (void)self;
    CUcontext before;
    CUdeviceptr memory = 0;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const CUresult result = ct_cuda.cuMemAlloc_v2(&memory, bytes ? bytes : 1);
    *buffer = (void *)(uintptr_t)memory;
    const bool ok = result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY ||
                    ct_cuda_ok(d, result, "cuda", "memory cannot be had");
    ct_cuda_leave(before);
    return ok && result == CUDA_SUCCESS;
}

static void release(void *self, int index, void *buffer, size_t bytes) {
    (void)self, (void)bytes;
    CUcontext before;
    if (atomic_load(&forked) || atomic_load(&devices[index].lost)) return; /* it goes with the context */
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return;
    ct_cuda.cuMemFree_v2((CUdeviceptr)(uintptr_t)buffer);
    ct_cuda_leave(before);
}

static bool host_allocate(void *self, int index, size_t bytes, void **memory) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const CUresult result = ct_cuda.cuMemHostAlloc(memory, bytes, CU_MEMHOSTALLOC_PORTABLE);
    ct_cuda_leave(before);
    return result == CUDA_SUCCESS;
}

static void host_release(void *self, int index, void *memory, size_t bytes) {
    (void)self, (void)bytes;
    CUcontext before;
    if (atomic_load(&forked) || atomic_load(&devices[index].lost) || !ct_cuda_enter(index, &before)) return;
    ct_cuda.cuMemFreeHost(memory);
    ct_cuda_leave(before);
}

static CUdeviceptr at(const void *buffer, size_t offset) { return (CUdeviceptr)(uintptr_t)buffer + offset; }

static bool upload(void *self, int index, void *buffer, size_t offset, const void *host, size_t bytes,
                   ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_upload(d, index, at(buffer, offset), host, bytes, ct_cuda_stream(d, stream));
    ct_cuda_leave(before);
    return ok;
}

/* Raises what a kernel has noted, and clears the word. */
static bool report(ct_cuda_device *d) {
    if (!__atomic_exchange_n(d->noticed, 0, __ATOMIC_ACQ_REL)) return true;
    ct_cuda_word word;
    CUresult result = ct_cuda.cuMemcpyDtoHAsync_v2(&word, d->word, sizeof word, d->stream);
    if (result == CUDA_SUCCESS) result = ct_cuda.cuMemsetD8Async(d->word, 0, sizeof word, d->stream);
    if (result == CUDA_SUCCESS) result = ct_cuda.cuStreamSynchronize(d->stream);
    if (!ct_cuda_ok(d, result, "cuda", "what went wrong on the device cannot be read")) return false;
    if (!word.set) return true;
    const ct_wrong_value wrong = {.op = (const ct_op *)(uintptr_t)word.op,
                                  .called = (const char *)(uintptr_t)word.called,
                                  .flags = word.flags,
                                  .code = (ct_code)word.code,
                                  .argument = word.argument,
                                  .what = (const char *)(uintptr_t)word.what,
                                  .is_real = word.is_real,
                                  .position = word.position,
                                  .value = word.value,
                                  .low = word.low,
                                  .high = word.high,
                                  .real_value = word.real_value,
                                  .real_low = word.real_low,
                                  .real_high = word.real_high};
    return ct_cuda_host->fail_value(&wrong);
}

static bool wait_for(void *self, int index, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_ok(d, ct_cuda.cuStreamSynchronize(ct_cuda_stream(d, stream)), "cuda",
                               "work on the device failed (CT_SYNC=1 names the op)") &&
                    report(d);
    ct_cuda_leave(before);
    return ok;
}

static bool download(void *self, int index, void *host, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream) {
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_download(d, index, host, at(buffer, offset), bytes, ct_cuda_stream(d, stream));
    ct_cuda_leave(before);
    return ok && wait_for(self, index, stream);
}

static bool copy(void *self, int index, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_ok(
        d, ct_cuda.cuMemcpyDtoDAsync_v2(at(to, to_offset), at(from, from_offset), bytes, ct_cuda_stream(d, stream)),
        "cuda", "a copy on the device failed");
    ct_cuda_leave(before);
    return ok;
}

static bool copy_peer(void *self, int index, void *to, size_t to_offset, int from_device, const void *from,
                      size_t from_offset, size_t bytes, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *source = ct_cuda_enter(from_device, &before);
    if (!source) return false;
    ct_cuda_leave(before);
    /* What the other device has not done yet is not known to this one's streams. */
    if (!wait_for(self, from_device, NULL)) return false;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok =
        ct_cuda_ok(d,
                   ct_cuda.cuMemcpyPeerAsync(at(to, to_offset), d->context, at(from, from_offset), source->context,
                                             bytes, ct_cuda_stream(d, stream)),
                   "cuda", "a copy between devices failed") &&
        ct_cuda_ok(d, ct_cuda.cuStreamSynchronize(ct_cuda_stream(d, stream)), "cuda", "a copy between devices failed");
    ct_cuda_leave(before);
    return ok;
}

static bool fill(void *self, int index, void *buffer, size_t offset, const void *pattern, size_t size, size_t n,
                 ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const CUstream on = ct_cuda_stream(d, stream);
    const CUdeviceptr to = at(buffer, offset);
    CUresult result = CUDA_SUCCESS;
    bool ok = true, zero = true;
    for (size_t i = 0; i < size; i++) zero &= ((const char *)pattern)[i] == 0;
    if (!n) result = CUDA_SUCCESS;
    else if (zero || size == 1) result = ct_cuda.cuMemsetD8Async(to, *(const unsigned char *)pattern, n * size, on);
    else if (size == 2) result = ct_cuda.cuMemsetD16Async(to, *(const uint16_t *)pattern, n, on);
    else if (size == 4) result = ct_cuda.cuMemsetD32Async(to, *(const uint32_t *)pattern, n, on);
    else ok = ct_cuda_fill_wide(d, index, to, pattern, size, n, on);
    ok = ok && ct_cuda_ok(d, result, "cuda", "memory of the device cannot be filled");
    ct_cuda_leave(before);
    return ok;
}

static bool stream_new(void *self, int index, void **handle) {
    (void)self;
    CUcontext before;
    CUstream made = NULL;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok =
        ct_cuda_ok(d, ct_cuda.cuStreamCreate(&made, CU_STREAM_NON_BLOCKING), "stream_new", "no stream can be made");
    *handle = made;
    ct_cuda_leave(before);
    return ok;
}

static void stream_free(void *self, int index, void *handle) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return;
    ct_cuda.cuStreamDestroy_v2(handle);
    ct_cuda_leave(before);
}

/* A CUstream of the program's, which has to be of the primary context, as those of the runtime's functions are. */
static bool stream_wrap(void *self, int index, void *theirs, void **handle) {
    (void)self;
    CUcontext before, of = NULL;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    bool ok = ct_cuda_ok(d, ct_cuda.cuStreamGetCtx(theirs, &of), "stream_wrap", "it is no stream");
    if (ok && of != d->context)
        ok = ct_cuda_host->fail(CT_ERR_DEVICE, "stream_wrap",
                                "it is a stream of another device, or of a context that is not the primary one");
    *handle = theirs;
    ct_cuda_leave(before);
    return ok;
}

static ct_event *event_new(void *self, int index) {
    (void)self;
    CUcontext before;
    CUevent made = NULL;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return NULL;
    if (!ct_cuda_ok(d, ct_cuda.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING), "cuda", "no event can be made"))
        made = NULL;
    ct_cuda_leave(before);
    return (ct_event *)made;
}

static void event_free(void *self, int index, ct_event *event) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return;
    ct_cuda.cuEventDestroy_v2((CUevent)event);
    ct_cuda_leave(before);
}

static bool event_record(void *self, int index, ct_event *event, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_ok(d, ct_cuda.cuEventRecord((CUevent)event, ct_cuda_stream(d, stream)), "cuda",
                               "an event cannot be recorded");
    ct_cuda_leave(before);
    return ok;
}

static bool event_wait(void *self, int index, ct_event *event, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_ok(d, ct_cuda.cuStreamWaitEvent(ct_cuda_stream(d, stream), (CUevent)event, 0), "cuda",
                               "a stream cannot wait");
    ct_cuda_leave(before);
    return ok;
}

static ct_event *timed_new(void *self, int index) {
    (void)self;
    CUcontext before;
    CUevent made = NULL;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return NULL;
    if (!ct_cuda_ok(d, ct_cuda.cuEventCreate(&made, CU_EVENT_DEFAULT), "cuda", "no event can be made")) made = NULL;
    ct_cuda_leave(before);
    return (ct_event *)made;
}

/* In a recording an external event is a node, which notes the time in every launch; others only order streams there. */
static bool timed_record(void *self, int index, ct_event *event, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const CUstream on = ct_cuda_stream(d, stream);
    const unsigned flags = ct_cuda_is_capturing(on) ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT;
    const bool ok =
        ct_cuda_ok(d, ct_cuda.cuEventRecordWithFlags((CUevent)event, on, flags), "cuda", "an event cannot be recorded");
    ct_cuda_leave(before);
    return ok;
}

static bool timed_elapsed(void *self, int index, ct_event *from, ct_event *to, double *nanoseconds) {
    (void)self;
    CUcontext before;
    float milliseconds = 0;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_ok(d, ct_cuda.cuEventElapsedTime(&milliseconds, (CUevent)from, (CUevent)to), "cuda",
                               "the time between two events is not known");
    ct_cuda_leave(before);
    *nanoseconds = (double)milliseconds * 1e6;
    return ok;
}

/* ---- Work as one: graphs of the driver's ---- */

static bool record_begin(void *self, int index, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok =
        ct_cuda_ok(d, ct_cuda.cuStreamBeginCapture_v2(ct_cuda_stream(d, stream), CU_STREAM_CAPTURE_MODE_RELAXED),
                   "cuda", "work cannot be recorded");
    ct_cuda_leave(before);
    return ok;
}

/* What a library does that cannot be recorded ends the recording: that is no error, the work is then done call by call. */
static bool record_end(void *self, int index, ct_stream *stream, void **handle) {
    (void)self;
    CUcontext before;
    CUgraph graph = NULL;
    CUgraphExec made = NULL;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    *handle = NULL;
    if (!d) return false;
    ct_cuda_parts_end(index, ct_cuda_stream(d, stream));
    const CUresult ended = ct_cuda.cuStreamEndCapture(ct_cuda_stream(d, stream), &graph);
    if (ended == CUDA_SUCCESS && graph) ct_cuda_recorded_improve(d, index, graph);
    if (ended == CUDA_SUCCESS && graph && ct_cuda.cuGraphInstantiateWithFlags(&made, graph, 0) == CUDA_SUCCESS)
        *handle = ct_cuda_work_new(made);
    if (graph) ct_cuda.cuGraphDestroy(graph);
    ct_cuda_leave(before);
    return true;
}

static bool record_launch(void *self, int index, void *handle, ct_stream *stream) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const CUstream on = ct_cuda_stream(d, stream);
    const bool ok = ct_cuda_ok(d, ct_cuda_work_launch(handle, on), "cuda", "recorded work cannot be launched") &&
                    ct_cuda_enqueued(d, on, "cuda");
    ct_cuda_leave(before);
    return ok;
}

static void record_free(void *self, int index, void *handle) {
    (void)self;
    CUcontext before;
    if (atomic_load(&forked) || atomic_load(&devices[index].lost) || !ct_cuda_enter(index, &before)) return;
    ct_cuda_work_free(handle);
    ct_cuda_leave(before);
}

static bool record_from(void *self, int index, ct_stream *stream, const int *parts, int n) {
    (void)self;
    CUcontext before;
    ct_cuda_device *d = ct_cuda_enter(index, &before);
    if (!d) return false;
    const bool ok = ct_cuda_parts_from(index, ct_cuda_stream(d, stream), parts, n);
    ct_cuda_leave(before);
    return ok;
}

static void *record_either(void *self, int index, void *in_order, void *by_parts) {
    (void)self;
    CUcontext before;
    if (!ct_cuda_enter(index, &before)) return in_order;
    void *both = ct_cuda_work_either(in_order, by_parts);
    ct_cuda_leave(before);
    return both;
}

const ct_backend ct_cuda_backend = {.size = sizeof(ct_backend),
                                    .version = CT_BACKEND_VERSION,
                                    .name = "cuda",
                                    .alignment = CT_CUDA_ALIGNMENT,
                                    .device_count = device_count,
                                    .device_info = device_info,
                                    .allocate = allocate,
                                    .release = release,
                                    .upload = upload,
                                    .download = download,
                                    .copy = copy,
                                    .copy_peer = copy_peer,
                                    .fill = fill,
                                    .stream_new = stream_new,
                                    .stream_free = stream_free,
                                    .event_new = event_new,
                                    .event_free = event_free,
                                    .event_record = event_record,
                                    .event_wait = event_wait,
                                    .wait = wait_for,
                                    .kernels = ct_cuda_kernels_of,
                                    .kernel_size = sizeof(ct_kernel),
                                    .dlpack_type = 2,
                                    .stream_wrap = stream_wrap,
                                    .record_begin = record_begin,
                                    .record_end = record_end,
                                    .record_launch = record_launch,
                                    .record_free = record_free,
                                    .record_from = record_from,
                                    .record_either = record_either,
                                    .timed_new = timed_new,
                                    .timed_record = timed_record,
                                    .timed_elapsed = timed_elapsed,
                                    .host_allocate = host_allocate,
                                    .host_release = host_release,
                                    .prepare = ct_cuda_prepare};
