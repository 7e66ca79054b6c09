/* Copies between the host and a device. The device reads and writes pinned memory of the host by itself; of other memory the driver
 * makes copies of its own, and has the caller wait until the stream is there. So what is large goes in chunks through a pool of
 * pinned buffers: an upload is over when the last chunk has been copied into its buffer, however much the stream still has to do before it,
 * and of a download chunks arrive while those before them are copied on. An event of each buffer says when the device is through with it. */
#include "backends/cuda/staging.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    TINY = 4 << 10,
    SMALL =
        64 << 10, /* of memory that is not pinned the driver takes so much along with the command, and does not wait */
    LEAST_CHUNK = 256 << 10, /* so that the device copies one while the next is being copied, */
    CHUNKS = 16,             /* where there are enough bytes for that */
    BUFFER = 2 << 20,        /* the largest chunk: 40 us of the bus */
    BUFFERS = 128,           /* 256 MiB: what may be on its way before an upload has to wait */
    WINDOW = 8,              /* chunks that a download has under way, twice */
    PARALLEL_FROM = 3 << 20, /* bytes that are worth waking threads for */
    PATIENCE = 100,          /* microseconds to wait for a buffer before another one is made, which takes longer */
};

typedef struct buffer {
    void *memory;
    CUevent event;
    bool taken;   /* by a thread that fills or empties it */
    bool pending; /* the device may still be at it: the event tells */
} buffer;

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t given;
    buffer buffers[BUFFERS];
    int count, next; /* next: where to look first, since buffers come back in the order in which they were used */
} pool;

static pool pools[CT_CUDA_DEVICES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start_pools(void) {
    for (int i = 0; i < CT_CUDA_DEVICES; i++) {
        pthread_mutex_init(&pools[i].lock, NULL);
        pthread_cond_init(&pools[i].given, NULL);
    }
}

/* ---- Buffers ---- */

static bool add_buffer(pool *p) {
    buffer *b = &p->buffers[p->count];
    if (ct_cuda.cuMemHostAlloc(&b->memory, BUFFER, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) return false;
    if (ct_cuda.cuEventCreate(&b->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        ct_cuda.cuMemFreeHost(b->memory);
        return false;
    }
    b->taken = b->pending = false;
    p->count++;
    return true;
}

static bool is_ready(buffer *b) {
    if (b->pending && ct_cuda.cuEventQuery(b->event) == CUDA_ERROR_NOT_READY) return false;
    b->pending = false; /* also after a fault, which the next wait tells of */
    return true;
}

static int64_t microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* One that nobody uses: as it is, or a new one, or after a wait for the device, or for another thread. NULL: there is no pinned memory at
 * all, or, where the caller may not wait, none right now. */
static buffer *take(pool *p, bool may_wait) {
    buffer *found = NULL;
    int64_t since = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        int oldest = -1;
        for (int i = 0; !found && i < p->count; i++) {
            const int at = (p->next + i) % p->count;
            if (p->buffers[at].taken) continue;
            if (oldest < 0) oldest = at;
            if (is_ready(&p->buffers[at])) found = &p->buffers[at];
        }
        if (found || (!may_wait && oldest >= 0)) break;
        if (p->count < BUFFERS) {
            if (!since) since = microseconds();
            if (oldest >= 0 && microseconds() - since < PATIENCE) { /* the device is at it */
                pthread_mutex_unlock(&p->lock);
                sched_yield();
                pthread_mutex_lock(&p->lock);
                continue;
            }
            if (add_buffer(p)) found = &p->buffers[p->count - 1];
        }
        if (!found && oldest >= 0) found = &p->buffers[oldest];
        if (found || !may_wait || p->count == 0) break;
        pthread_cond_wait(&p->given, &p->lock); /* all are in the hands of others */
    }
    if (found) {
        found->taken = true;
        p->next = (int)(found - p->buffers + 1) % p->count;
    }
    pthread_mutex_unlock(&p->lock);
    if (found && found->pending) {
        ct_cuda.cuEventSynchronize(found->event);
        found->pending = false;
    }
    return found;
}

static void give(pool *p, buffer *b, bool pending) {
    pthread_mutex_lock(&p->lock);
    b->taken = false;
    b->pending = pending;
    pthread_cond_signal(&p->given);
    pthread_mutex_unlock(&p->lock);
}

/* ---- Chunks ---- */

typedef struct transfer {
    ct_cuda_device *device;
    pool *pool;
    int index;
    CUdeviceptr there;
    char *here;
    size_t bytes, chunk; /* in all; of each but the last */
    CUstream stream;
    size_t first; /* of a download: the chunk that taken[0] is of */
    buffer *const *taken;
    bool parallel;
    _Atomic bool failed;
} transfer;

static size_t chunk_bytes(const transfer *t, size_t chunk) {
    const size_t left = t->bytes - chunk * t->chunk;
    return left < t->chunk ? left : t->chunk;
}

static size_t chunk_size(size_t bytes) {
    const size_t size = (bytes / CHUNKS + 4095) / 4096 * 4096;
    return size < LEAST_CHUNK ? LEAST_CHUNK : size > BUFFER ? BUFFER : size;
}

static size_t chunk_count(const transfer *t) { return (t->bytes + t->chunk - 1) / t->chunk; }

/* Runs on threads of the library's, whose context is another one or none. */
static void each_chunk(transfer *t, size_t chunks, void (*task)(void *context, int64_t chunk, int worker)) {
    if (chunks > 1 && t->bytes >= PARALLEL_FROM) {
        t->parallel = true;
        ct_cuda_host->parallel((int64_t)chunks, task, t);
        return;
    }
    for (size_t i = 0; i < chunks; i++) task(t, (int64_t)i, 0);
}

static bool enter(const transfer *t, CUcontext *before) {
    return !t->parallel || ct_cuda_enter(t->index, before) != NULL;
}
static void leave(const transfer *t, CUcontext before) {
    if (t->parallel) ct_cuda_leave(before);
}

/* ---- Up ---- */

static void upload_chunk(void *context, int64_t chunk, int worker) {
    transfer *t = context;
    const size_t bytes = chunk_bytes(t, (size_t)chunk);
    const CUdeviceptr to = t->there + (size_t)chunk * t->chunk;
    const char *from = t->here + (size_t)chunk * t->chunk;
    CUcontext before;
    (void)worker;
    if (atomic_load(&t->failed)) return;
    if (!enter(t, &before)) {
        atomic_store(&t->failed, true);
        return;
    }
    buffer *b = take(t->pool, true);
    CUresult result;
    if (b) {
        memcpy(b->memory, from, bytes);
        result = ct_cuda.cuMemcpyHtoDAsync_v2(to, b->memory, bytes, t->stream);
        if (result == CUDA_SUCCESS) result = ct_cuda.cuEventRecord(b->event, t->stream);
        give(t->pool, b, result == CUDA_SUCCESS);
    } else {
        result = ct_cuda.cuMemcpyHtoDAsync_v2(to, from, bytes, t->stream); /* by the driver's own copy */
    }
    if (!ct_cuda_ok(t->device, result, "cuda", "a copy to the device failed")) atomic_store(&t->failed, true);
    leave(t, before);
}

/* Pinned memory of the library's or of anybody else's, which the device reads by itself. */
static bool is_pinned(const void *host) {
    unsigned kind = 0;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE; /* stays 0 for memory that the driver does not know */
    void *to = &kind;
    return ct_cuda.cuPointerGetAttributes(1, &which, &to, (CUdeviceptr)(uintptr_t)host) == CUDA_SUCCESS &&
           kind == CU_MEMORYTYPE_HOST;
}

bool ct_cuda_upload(ct_cuda_device *d, int index, CUdeviceptr to, const void *host, size_t bytes, CUstream stream) {
    const char *what = "a copy to the device failed";
    char copy[TINY]; /* cheaper than to ask what kind of memory it is */
    if (bytes <= TINY) host = memcpy(copy, host, bytes);
    const bool pinned = bytes > TINY && is_pinned(host);
    if (bytes <= SMALL && !pinned)
        return ct_cuda_ok(d, ct_cuda.cuMemcpyHtoDAsync_v2(to, host, bytes, stream), "cuda", what);
    /* It has to be read when this returns: without a copy only where the stream has nothing else to do. */
    if (pinned && ct_cuda.cuStreamQuery(stream) == CUDA_SUCCESS)
        return ct_cuda_ok(d, ct_cuda.cuMemcpyHtoDAsync_v2(to, host, bytes, stream), "cuda", what) &&
               ct_cuda_ok(d, ct_cuda.cuStreamSynchronize(stream), "cuda", what);
    pthread_once(&once, start_pools);
    transfer t = {.device = d,
                  .pool = &pools[index],
                  .index = index,
                  .there = to,
                  .here = (char *)(uintptr_t)host,
                  .bytes = bytes,
                  .chunk = chunk_size(bytes),
                  .stream = stream};
    each_chunk(&t, chunk_count(&t), upload_chunk);
    return !atomic_load(&t.failed);
}

/* ---- Down ---- */

/* Buffers for up to WINDOW chunks from `first` on, with their copies under way. At least one, if it may wait. */
static int begin_window(transfer *t, size_t first, size_t chunks, buffer **taken, bool may_wait) {
    int n = 0;
    for (; n < WINDOW && first + (size_t)n < chunks && !atomic_load(&t->failed); n++) {
        const size_t chunk = first + (size_t)n;
        buffer *b = take(t->pool, may_wait && n == 0);
        if (!b) break;
        CUresult result =
            ct_cuda.cuMemcpyDtoHAsync_v2(b->memory, t->there + chunk * t->chunk, chunk_bytes(t, chunk), t->stream);
        if (result == CUDA_SUCCESS) result = ct_cuda.cuEventRecord(b->event, t->stream);
        taken[n] = b;
        if (ct_cuda_ok(t->device, result, "cuda", "a copy from the device failed")) continue;
        atomic_store(&t->failed, true);
        give(t->pool, b, false);
        break;
    }
    return n;
}

static void finish_chunk(void *context, int64_t i, int worker) {
    transfer *t = context;
    const size_t chunk = t->first + (size_t)i;
    buffer *b = t->taken[i];
    CUcontext before;
    (void)worker;
    const bool inside = enter(t, &before);
    const CUresult result = inside ? ct_cuda.cuEventSynchronize(b->event) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) memcpy(t->here + chunk * t->chunk, b->memory, chunk_bytes(t, chunk));
    if (!inside || !ct_cuda_ok(t->device, result, "cuda", "a copy from the device failed"))
        atomic_store(&t->failed, true);
    give(t->pool, b, false);
    if (inside) leave(t, before);
}

static bool download_chunks(transfer *t) {
    buffer *windows[2][WINDOW];
    const size_t chunks = chunk_count(t);
    size_t done = 0;
    int now = 0, n = begin_window(t, 0, chunks, windows[0], true);
    if (n == 0 && !atomic_load(&t->failed)) /* there is no pinned memory */
        return ct_cuda_ok(t->device, ct_cuda.cuMemcpyDtoHAsync_v2(t->here, t->there, t->bytes, t->stream), "cuda",
                          "a copy from the device failed");
    while (n) {
        const int next = begin_window(t, done + (size_t)n, chunks, windows[!now], false);
        t->first = done;
        t->taken = windows[now];
        each_chunk(t, (size_t)n, finish_chunk);
        done += (size_t)n;
        now = !now;
        n = next ? next : begin_window(t, done, chunks, windows[now], true);
    }
    return !atomic_load(&t->failed);
}

bool ct_cuda_download(ct_cuda_device *d, int index, void *host, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (bytes <= SMALL || is_pinned(host))
        return ct_cuda_ok(d, ct_cuda.cuMemcpyDtoHAsync_v2(host, from, bytes, stream), "cuda",
                          "a copy from the device failed");
    pthread_once(&once, start_pools);
    transfer t = {.device = d,
                  .pool = &pools[index],
                  .index = index,
                  .there = from,
                  .here = host,
                  .bytes = bytes,
                  .chunk = chunk_size(bytes),
                  .stream = stream};
    return download_chunks(&t);
}
