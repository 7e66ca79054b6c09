/* The guarded device: a backend module whose memory the host must not touch. It is plain host memory, mapped twice: the
 * address that the core holds is never readable, and kernels translate it to the other one. So a hidden read of a device is
 * a crash here, and without a GPU every op, gradient, optimizer and loader can be tried on a device that is not the CPU. Its
 * kernels are the CPU's, so it also shows what a backend has to provide, and nothing of it is known to the core.
 *   CT_GUARD_F64=0         it has no f64, as devices of WebGPU
 *   CT_GUARD_PRIMITIVES=1  only ops without a lowering have kernels: the others run in simpler ops
 *   CT_GUARD_QUEUE=1, 2    work is held back until a wait needs it (queue.c)
 *   CT_GUARD_READS=FILE    gets a line with the number of downloads and waits when the process ends
 * Compiled with GUARD_NAME it takes the place of another backend, for libraries that go with that one (tests/dist/standin):
 * its memory is then where the core says it is. */
#include <cotangent/layouts.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/guard/guard.h"

#ifdef GUARD_NAME
enum { GUARDED = PROT_READ | PROT_WRITE };
#else
#define GUARD_NAME "guard"
enum { GUARDED = PROT_NONE };
#endif

const ct_host *guard_host;
static const ct_backend *cpu;

/* ---- Memory ---- */

enum { GUARD_BITS = 36, LEAST_BITS = 6, ALIGNMENT = 64 };
enum {
    POISON = 0xA5,
    POISONED = 4 << 20
}; /* what was there before is of no use to anybody; of new parts so many bytes */

/* One region of addresses, seen twice. Blocks are powers of two, and a free one is found by its size. Books are kept here,
 * not in the memory. */
static struct {
    char *outside, *inside; /* what the core holds; what kernels read and write */
    size_t used;
    struct free_block {
        void *buffer;
        struct free_block *next;
    } * free[GUARD_BITS + 1];
    pthread_mutex_t lock;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void before_fork(void) {
    guard_queue_lock(true);
    pthread_mutex_lock(&memory.lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&memory.lock);
    guard_queue_lock(false);
}

/* A child shares the memory of its parent until it has a copy of its own, at the same addresses. */
static void in_child(void) {
    const size_t size = (size_t)1 << GUARD_BITS;
    const int file = memfd_create("cotangent_guard", MFD_CLOEXEC);
    size_t written = 0;
    if (file < 0 || ftruncate(file, (off_t)size) != 0) _exit(111);
    while (written < memory.used) {
        const ssize_t n = pwrite(file, memory.inside + written, memory.used - written, (off_t)written);
        if (n <= 0) _exit(111);
        written += (size_t)n;
    }
    mmap(memory.outside, size, GUARDED, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
    mmap(memory.inside, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
    close(file);
    after_fork();
}

static bool map_memory(char *why, size_t room) {
    const size_t size = (size_t)1 << GUARD_BITS;
    const int file = memfd_create("cotangent_guard", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)size) == 0) {
        memory.outside = mmap(NULL, size, GUARDED, MAP_SHARED | MAP_NORESERVE, file, 0);
        memory.inside = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    const bool ok = file >= 0 && memory.outside && memory.outside != MAP_FAILED && memory.inside != MAP_FAILED;
    if (file >= 0) close(file);
    if (!ok) snprintf(why, room, "no memory can be mapped twice here");
    pthread_atfork(before_fork, after_fork, in_child);
    return ok;
}

void *guard_inside(const void *buffer) { return memory.inside + ((const char *)buffer - memory.outside); }

static int bits_of(size_t bytes) {
    int bits = LEAST_BITS;
    while (bits < GUARD_BITS && (size_t)1 << bits < bytes) bits++;
    return bits;
}

static bool allocate(void *self, int device, size_t bytes, void **buffer) {
    (void)self, (void)device;
    if (bytes > (size_t)1 << (GUARD_BITS - 1)) return false;
    const int bits = bits_of(bytes);
    pthread_mutex_lock(&memory.lock);
    struct free_block *found = memory.free[bits];
    void *taken = NULL;
    if (found) {
        memory.free[bits] = found->next;
        taken = found->buffer;
    } else if (memory.used + ((size_t)1 << bits) <= (size_t)1 << GUARD_BITS) {
        taken = memory.outside + memory.used;
        memory.used += (size_t)1 << bits;
    }
    pthread_mutex_unlock(&memory.lock);
    free(found);
    if (taken) memset(guard_inside(taken), POISON, bytes < POISONED ? bytes : POISONED);
    *buffer = taken;
    return taken != NULL;
}

static void release(void *self, int device, void *buffer, size_t bytes) {
    (void)self, (void)device;
    struct free_block *block = malloc(sizeof *block);
    if (!buffer || !block) { /* without memory for the books its addresses are not used again */
        free(block);
        return;
    }
    const int bits = bits_of(bytes);
    if (guard_in_use(guard_inside(buffer), bytes))
        guard_host->fail(CT_ERR_STATE, "guard", "memory is released that queued work uses");
    if (bytes >= 1 << 20) madvise(guard_inside(buffer), (size_t)1 << bits, MADV_REMOVE);
    pthread_mutex_lock(&memory.lock);
    *block = (struct free_block){buffer, memory.free[bits]};
    memory.free[bits] = block;
    pthread_mutex_unlock(&memory.lock);
}

static void discard(void *self, int device, void *buffer, size_t offset, size_t bytes, ct_stream *stream) {
    (void)self, (void)device;
    guard_enqueue_write((char *)guard_inside(buffer) + offset, &(char){(char)POISON}, 1, bytes, stream);
}

/* ---- Copies ---- */

static bool upload(void *self, int device, void *buffer, size_t offset, const void *data, size_t bytes,
                   ct_stream *stream) {
    (void)self, (void)device;
    if (guard_is_recording()) return guard_host->fail(CT_ERR_STATE, "guard", "an upload cannot be recorded");
    return guard_enqueue_write((char *)guard_inside(buffer) + offset, data, bytes, 1, stream);
}

static _Atomic long reads;

__attribute__((destructor)) static void tell_reads(void) {
    const char *path = getenv("CT_GUARD_READS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", (long)reads);
    fclose(file);
}

static bool download(void *self, int device, void *data, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream) {
    (void)self, (void)device;
    reads++;
    const bool ok = guard_run(stream);
    memcpy(data, (const char *)guard_inside(buffer) + offset, bytes);
    return ok;
}

static bool copy(void *self, int device, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    (void)self, (void)device;
    char *there = (char *)guard_inside(to) + to_offset;
    const char *here = (const char *)guard_inside(from) + from_offset;
    return guard_is_recording() ? guard_record_copy(there, here, bytes)
                                : guard_enqueue_copy(there, here, bytes, stream);
}

static bool fill(void *self, int device, void *buffer, size_t offset, const void *pattern, size_t size, size_t count,
                 ct_stream *stream) {
    (void)self, (void)device;
    char *there = (char *)guard_inside(buffer) + offset;
    return guard_is_recording() ? guard_record_fill(there, pattern, size, count)
                                : guard_enqueue_write(there, pattern, size, count, stream);
}

static bool wait_for(void *self, int device, ct_stream *stream) {
    (void)self, (void)device;
    reads++;
    return guard_run(stream);
}

static int device_count(void *self) {
    (void)self;
    return 1;
}

static bool device_info(void *self, int device, ct_device_info *info) {
    (void)self, (void)device;
    snprintf(info->name, sizeof info->name, "memory that the host must not touch");
    snprintf(info->libraries, sizeof info->libraries, "the CPU's kernels");
    info->memory = (int64_t)1 << GUARD_BITS;
    return true;
}

/* ---- Kernels ---- */

/* The CPU's candidates, and ours in the same order: all that differs is how they are run. */
typedef struct op_kernels {
    const ct_kernel *cpu;
    ct_kernel *ours;
} op_kernels;

static op_kernels *table; /* by the op's number */
static int table_size;

static size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

guard_call *guard_call_copy(const ct_call *call, const ct_kernel *kernel) {
    const int n = call->n_in + call->n_out;
    const size_t attr_bytes = call->attrs ? call->op->attr_size : 0, head = padded(sizeof(guard_call)),
                 views_bytes = padded((size_t)n * sizeof(ct_view)),
                 pointer_bytes = padded((size_t)n * sizeof(ct_view *)),
                 bytes = head + views_bytes + pointer_bytes + attr_bytes;
    char *block = guard_host->allocate(bytes);
    if (!block) {
        guard_host->fail(CT_ERR_MEMORY, call->op->name, "no memory for a copy of the call");
        return NULL;
    }
    guard_call *made = (guard_call *)(void *)block;
    ct_view *views = (ct_view *)(void *)(block + head), **pointers = (ct_view **)(void *)(block + head + views_bytes);
    *made = (guard_call){.call = *call, .bytes = bytes};
    for (int i = 0; i < n; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        pointers[i] = view ? &views[i] : NULL;
        if (!view) continue;
        views[i] = *view;
        if (i < call->n_in && i < 32 && (call->numbers >> i & 1)) { /* the host's, and only until run returns */
            memcpy(made->numbers[i], view->buffer, CT_NUMBER_BYTES);
            views[i].buffer = made->numbers[i];
            continue;
        }
        views[i].buffer = (char *)guard_inside(view->buffer) + view->origin;
        views[i].origin = 0;
    }
    made->call.kernel = kernel;
    made->call.in = (const ct_view *const *)pointers;
    made->call.out = pointers + call->n_in;
    if (attr_bytes) made->call.attrs = memcpy(block + head + views_bytes + pointer_bytes, call->attrs, attr_bytes);
    if (call->scratch.buffer) {
        made->call.scratch.buffer = (char *)guard_inside(call->scratch.buffer) + call->scratch.offset;
        made->call.scratch.offset = 0;
    }
    return made;
}

void guard_call_free(guard_call *call) { guard_host->release(call, call->bytes); }

static bool run(const ct_call *call, ct_stream *stream) {
    const op_kernels *known = &table[call->op->slot->index];
    guard_call *made = guard_call_copy(call, known->cpu + (call->kernel - known->ours));
    if (made && guard_is_recording()) return guard_record_call(made);
    return made && guard_enqueue_call(made, stream);
}

/* The CPU does casts one by one; here they can be done at once, as on devices on which a launch costs more than the work, by its kernels for
 * one. */
static const ct_op *cast; /* once somebody has asked for its kernels */
static const char *can_cast_all(const ct_call *call) {
    for (int i = 0; i < call->n_in; i++)
        if (!call->out[i] || call->in[i]->dtype == call->out[i]->dtype) return "nothing is to be cast of some";
    return NULL;
}
static bool run_casts(const ct_call *call, ct_stream *stream) {
    bool ok = true;
    for (int i = 0; ok && i < call->n_in; i++) {
        ct_call one = *call; /* the attributes are alike: the dtype that is wanted */
        one.op = cast;
        one.n_in = one.n_out = 1;
        one.in = call->in + i;
        one.out = call->out + i;
        one.kernel = cpu->kernels(cpu->self, cast);
        while (one.kernel->name && one.kernel->can && one.kernel->can(&one)) one.kernel++;
        ok = one.kernel->name ? one.kernel->run(&one, stream)
                              : guard_host->fail(CT_ERR_STATE, call->op->name, "the CPU has no kernel for one of them");
    }
    return ok;
}
static const ct_kernel one_by_one[] = {{"one_by_one", can_cast_all, NULL, run_casts}, {0}};

static const ct_kernel *kernels(void *self, const ct_op *op) {
    (void)self;
    const char *primitives = getenv("CT_GUARD_PRIMITIVES");
    const ct_kernel *list = cpu->kernels(cpu->self, op);
    const int index = op->slot->index;
    if (strcmp(op->name, "cast") == 0) cast = op;
    if (strcmp(op->name, "cast_all") == 0 && cast) list = one_by_one;
    if (!list || index >= table_size || (primitives && primitives[0] == '1' && op->lower)) return NULL;
    int n = 0;
    while (list[n].name) n++;
    ct_kernel *ours = calloc((size_t)n + 1, sizeof *ours);
    for (int i = 0; ours && i < n; i++) {
        ours[i] = list[i];
        ours[i].run = run;
    }
    free(table[index].ours);
    table[index] = (op_kernels){list, ours};
    return ours;
}

/* Plain memory: it is copied as any other. */
static bool host_allocate(void *self, int device, size_t bytes, void **made) {
    (void)self, (void)device;
    return (*made = aligned_alloc(ALIGNMENT, bytes)) != NULL;
}

static void host_release(void *self, int device, void *gone, size_t bytes) {
    (void)self, (void)device, (void)bytes;
    free(gone);
}

static ct_backend guard = {.size = sizeof(ct_backend),
                           .version = CT_BACKEND_VERSION,
                           .name = GUARD_NAME,
                           .alignment = ALIGNMENT,
                           .device_count = device_count,
                           .device_info = device_info,
                           .allocate = allocate,
                           .release = release,
                           .upload = upload,
                           .download = download,
                           .copy = copy,
                           .fill = fill,
                           .stream_new = guard_stream_new,
                           .stream_free = guard_stream_free,
                           .event_new = guard_event_new,
                           .event_free = guard_event_free,
                           .event_record = guard_event_record,
                           .event_wait = guard_event_wait,
                           .wait = wait_for,
                           .kernels = kernels,
                           .discard = discard,
                           .kernel_size = sizeof(ct_kernel),
                           .stream_wrap = guard_stream_wrap,
                           .host_allocate = host_allocate,
                           .host_release = host_release,
                           .record_begin = guard_record_begin,
                           .record_end = guard_record_end,
                           .record_launch = guard_record_launch,
                           .record_free = guard_record_free,
                           .record_from = guard_record_from,
                           .record_either = guard_record_either};

CT_API const ct_backend *ct_backend_module(const ct_host *given, char *why, size_t room);
const ct_backend *ct_backend_module(const ct_host *given, char *why, size_t room) {
    if (given->version != CT_BACKEND_VERSION || given->size < sizeof(ct_host)) {
        snprintf(why, room, "the library is of another version");
        return NULL;
    }
    if (given->layouts != CT_ATTRIBUTE_LAYOUTS) {
        snprintf(why, room, "it was built for other ops than this library has");
        return NULL;
    }
    guard_host = given;
    cpu = guard_host->backend("cpu");
    const char *f64 = getenv("CT_GUARD_F64");
    if (f64 && f64[0] == '0') guard.dtypes = ((1u << CT_DTYPE_COUNT) - 1) & ~(1u << CT_F64);
    table_size = guard_host->op_count() + 1;
    table = calloc((size_t)table_size, sizeof *table);
    if (!cpu || !table || !map_memory(why, room)) return NULL;
    return &guard;
}
