/* Copies between the host and a device. The device reads and writes pinned memory of the host by itself; of other memory the driver
 * makes copies of its own, and has the caller wait until the stream is there. So what is large goes in stages through a pool of
 * pinned buffers: an upload is over when the last stage has been copied into its buffer, however much the stream still has to do before it,
 * and of a download the next stages arrive while one is copied on. The library's threads copy, one thread alone calls the driver, and an
 * event of each buffer says when the device is through with it. */
#include "backends/cuda/staging.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    TINY = 4 << 10,
    SMALL = 64 << 10,        /* what the driver takes along with the command, without a wait, if it is not pinned */
    STAGES = 8,              /* of a copy, */
    LEAST_STAGE = 256 << 10, /* where there are enough bytes for that */
    BUFFER = 4 << 20,        /* the largest stage: 80 us of the bus */
    BUFFERS = 64,            /* 256 MiB: what may be on its way before an upload has to wait */
    WINDOW = 4,              /* stages that a download has under way */
    PARALLEL_FROM = 3 << 20, /* bytes that are worth waking threads for, */
    PIECE = 128 << 10,       /* so much each */
    PATIENCE = 200,          /* microseconds to wait for a buffer before another one is made, which takes longer */
};

typedef struct buffer {
    void *memory;
    CUevent event;
    bool taken;    /* by a thread that fills or empties it */
    bool pending;  /* the device may still be at it: the event tells */
    uint64_t used; /* when it last was, as a number that counts up */
} buffer;

typedef struct pool {
    pthread_mutex_t lock;
    pthread_cond_t given;
    buffer buffers[BUFFERS];
    int count;
    uint64_t uses;
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

static buffer *add_buffer(pool *p) {
    buffer *b = &p->buffers[p->count];
    if (p->count == BUFFERS || ct_cuda.cuMemHostAlloc(&b->memory, BUFFER, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS)
        return NULL;
    if (ct_cuda.cuEventCreate(&b->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
        ct_cuda.cuMemFreeHost(b->memory);
        return NULL;
    }
    p->count++;
    return b;
}

/* The first that is ready, so that few buffers serve and stay in the caches; NULL: none. *oldest is the one to wait for, if any. */
static buffer *find_ready(pool *p, buffer **oldest) {
    *oldest = NULL;
    for (int i = 0; i < p->count; i++) {
        buffer *b = &p->buffers[i];
        if (b->taken) continue;
        if (!b->pending || ct_cuda.cuEventQuery(b->event) != CUDA_ERROR_NOT_READY) {
            b->pending = false; /* also after a fault, which the next wait tells of */
            return b;
        }
        if (!*oldest || b->used < (*oldest)->used) *oldest = b;
    }
    return NULL;
}

static int64_t microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Until the device is through with a buffer, but not for long. The lock is let go meanwhile: another thread may get it. */
static void wait_a_moment(pool *p, const buffer *b) {
    const int64_t end = microseconds() + PATIENCE;
    pthread_mutex_unlock(&p->lock);
    while (ct_cuda.cuEventQuery(b->event) == CUDA_ERROR_NOT_READY && microseconds() < end) sched_yield();
    pthread_mutex_lock(&p->lock);
}

/* One that nobody uses: as it is, or a new one, or after a wait for the device, or for another thread. NULL: there is no pinned memory at
 * all, or, where the caller may not wait, none right now. */
static buffer *take(pool *p, bool may_wait) {
    bool patient = may_wait;
    buffer *oldest, *found;
    pthread_mutex_lock(&p->lock);
    while (!(found = find_ready(p, &oldest))) {
        if (oldest && patient && p->count < BUFFERS) {
            patient = false;
            wait_a_moment(p, oldest);
            continue;
        }
        if ((!oldest || may_wait) && (found = add_buffer(p))) break;
        if (!may_wait || p->count == 0) break;
        if ((found = oldest)) break;
        pthread_cond_wait(&p->given, &p->lock); /* all are in the hands of others */
    }
    if (found) {
        found->taken = true;
        found->used = ++p->uses;
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

/* ---- Copies by the host ---- */

typedef struct pieces {
    char *to;
    const char *from;
    size_t bytes;
} pieces;

static void copy_piece(void *context, int64_t i, int worker) {
    const pieces *p = context;
    const size_t at = (size_t)i * PIECE, left = p->bytes - at;
    (void)worker;
    memcpy(p->to + at, p->from + at, left < PIECE ? left : PIECE);
}

static void copy_bytes(void *to, const void *from, size_t bytes, bool parallel) {
    pieces p = {to, from, bytes};
    if (parallel) ct_cuda_host->parallel((int64_t)((bytes + PIECE - 1) / PIECE), copy_piece, &p);
    else memcpy(to, from, bytes);
}

static size_t stage_size(size_t bytes) {
    const size_t size = (bytes / STAGES + 4095) / 4096 * 4096;
    return size < LEAST_STAGE ? LEAST_STAGE : size > BUFFER ? BUFFER : size;
}

/* Pinned memory of the library's or of anybody else's, which the device reads by itself. */
static bool is_pinned(const void *host) {
    unsigned kind = 0;
    CUpointer_attribute which = CU_POINTER_ATTRIBUTE_MEMORY_TYPE; /* stays 0 for memory that the driver does not know */
    void *to = &kind;
    return ct_cuda.cuPointerGetAttributes(1, &which, &to, (CUdeviceptr)(uintptr_t)host) == CUDA_SUCCESS &&
           kind == CU_MEMORYTYPE_HOST;
}

/* ---- Up ---- */

static CUresult upload_stages(pool *p, CUdeviceptr to, const char *host, size_t bytes, CUstream stream) {
    const size_t stage = stage_size(bytes);
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += stage) {
        const size_t n = bytes - at < stage ? bytes - at : stage;
        buffer *b = take(p, true);
        if (!b)
            return ct_cuda.cuMemcpyHtoDAsync_v2(to + at, host + at, bytes - at, stream); /* by the driver's own copy */
        copy_bytes(b->memory, host + at, n, bytes >= PARALLEL_FROM);
        result = ct_cuda.cuMemcpyHtoDAsync_v2(to + at, b->memory, n, stream);
        if (result == CUDA_SUCCESS) result = ct_cuda.cuEventRecord(b->event, stream);
        give(p, b, result == CUDA_SUCCESS);
    }
    return result;
}

bool ct_cuda_upload(ct_cuda_device *d, int index, CUdeviceptr to, const void *host, size_t bytes, CUstream stream) {
    char copy[TINY]; /* cheaper than to ask what kind of memory it is */
    if (bytes <= TINY) host = memcpy(copy, host, bytes);
    const bool pinned = bytes > TINY && is_pinned(host);
    CUresult result;
    if (bytes <= SMALL && !pinned) {
        result = ct_cuda.cuMemcpyHtoDAsync_v2(to, host, bytes, stream);
    } else if (pinned && ct_cuda.cuStreamQuery(stream) == CUDA_SUCCESS) {
        /* It has to be read when this returns: without a copy only where the stream has nothing else to do. */
        result = ct_cuda.cuMemcpyHtoDAsync_v2(to, host, bytes, stream);
        if (result == CUDA_SUCCESS) result = ct_cuda.cuStreamSynchronize(stream);
    } else {
        pthread_once(&once, start_pools);
        result = upload_stages(&pools[index], to, host, bytes, stream);
    }
    return ct_cuda_ok(d, result, "cuda", "a copy to the device failed");
}

/* ---- Down ---- */

/* Stages are enqueued up to WINDOW ahead of the one that is copied on; each is given back whatever happens. */
static CUresult download_stages(pool *p, char *host, CUdeviceptr from, size_t bytes, CUstream stream) {
    const size_t stage = stage_size(bytes);
    buffer *window[WINDOW];
    size_t asked = 0; /* of the bytes; what has arrived follows */
    int first = 0, n = 0;
    CUresult result = CUDA_SUCCESS;
    for (size_t at = 0; at < bytes && (result == CUDA_SUCCESS || n); at += stage) {
        while (n < WINDOW && asked < bytes && result == CUDA_SUCCESS) {
            buffer *b = take(p, n == 0);
            if (!b && n == 0) return ct_cuda.cuMemcpyDtoHAsync_v2(host + at, from + at, bytes - at, stream);
            if (!b) break;
            const size_t size = bytes - asked < stage ? bytes - asked : stage;
            result = ct_cuda.cuMemcpyDtoHAsync_v2(b->memory, from + asked, size, stream);
            if (result == CUDA_SUCCESS) result = ct_cuda.cuEventRecord(b->event, stream);
            window[(first + n++) % WINDOW] = b;
            asked += size;
        }
        if (!n) break;
        buffer *b = window[first];
        first = (first + 1) % WINDOW;
        n--;
        const CUresult arrived = ct_cuda.cuEventSynchronize(b->event);
        if (result == CUDA_SUCCESS) result = arrived;
        if (result == CUDA_SUCCESS)
            copy_bytes(host + at, b->memory, bytes - at < stage ? bytes - at : stage, bytes >= PARALLEL_FROM);
        give(p, b, false);
    }
    return result;
}

bool ct_cuda_download(ct_cuda_device *d, int index, void *host, CUdeviceptr from, size_t bytes, CUstream stream) {
    CUresult result;
    if (bytes <= SMALL || is_pinned(host)) {
        result = ct_cuda.cuMemcpyDtoHAsync_v2(host, from, bytes, stream);
    } else {
        pthread_once(&once, start_pools);
        result = download_stages(&pools[index], host, from, bytes, stream);
    }
    return ct_cuda_ok(d, result, "cuda", "a copy from the device failed");
}
