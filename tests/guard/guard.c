/* The guarded device: a backend module whose memory the host must not touch. It is plain host memory, mapped twice: the
 * address that the core holds is never readable, and kernels translate it to the other one. So a hidden read of a device is
 * a crash here, and without a GPU every op, gradient, optimizer and loader can be tried on a device that is not the CPU. Its
 * kernels are the CPU's, so it also shows what a backend has to provide, and nothing of it is known to the core.
 *   CT_GUARD_PRIMITIVES=1  only ops without a lowering have kernels: the others run in simpler ops */
#include <cotangent/backend.h>
#include <cotangent/layouts.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const ct_host *host;
static const ct_backend *cpu;

/* ---- Memory ---- */

enum { GUARD_BITS = 36, LEAST_BITS = 6, ALIGNMENT = 64 };

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

static void before_fork(void) { pthread_mutex_lock(&memory.lock); }
static void after_fork(void) { pthread_mutex_unlock(&memory.lock); }

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
    mmap(memory.outside, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
    mmap(memory.inside, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file, 0);
    close(file);
    pthread_mutex_unlock(&memory.lock);
}

static bool map_memory(char *why, size_t room) {
    const size_t size = (size_t)1 << GUARD_BITS;
    const int file = memfd_create("cotangent_guard", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, (off_t)size) == 0) {
        memory.outside = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
        memory.inside = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    const bool ok = file >= 0 && memory.outside && memory.outside != MAP_FAILED && memory.inside != MAP_FAILED;
    if (file >= 0) close(file);
    if (!ok) snprintf(why, room, "no memory can be mapped twice here");
    pthread_atfork(before_fork, after_fork, in_child);
    return ok;
}

static void *translate(const void *buffer) { return memory.inside + ((const char *)buffer - memory.outside); }

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
    if (taken)
        memset(translate(taken), 0xA5, bytes < 4096 ? bytes : 4096); /* what was there before is of no use to anybody */
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
    if (bytes >= 1 << 20) madvise(translate(buffer), (size_t)1 << bits, MADV_REMOVE);
    pthread_mutex_lock(&memory.lock);
    *block = (struct free_block){buffer, memory.free[bits]};
    memory.free[bits] = block;
    pthread_mutex_unlock(&memory.lock);
}

static bool upload(void *self, int device, void *buffer, size_t offset, const void *data, size_t bytes,
                   ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy((char *)translate(buffer) + offset, data, bytes);
    return true;
}

static bool download(void *self, int device, void *data, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy(data, (const char *)translate(buffer) + offset, bytes);
    return true;
}

static bool copy(void *self, int device, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memmove((char *)translate(to) + to_offset, (const char *)translate(from) + from_offset, bytes);
    return true;
}

static bool fill(void *self, int device, void *buffer, size_t offset, const void *pattern, size_t size, size_t count,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    for (size_t i = 0; i < count; i++) memcpy((char *)translate(buffer) + offset + i * size, pattern, size);
    return true;
}

static bool wait_for(void *self, int device, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    return true;
}

static int device_count(void *self) {
    (void)self;
    return 1;
}

static bool device_info(void *self, int device, ct_device_info *info) {
    (void)self, (void)device;
    snprintf(info->name, sizeof info->name, "memory that the host must not touch");
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

static bool run(const ct_call *call, ct_stream *stream) {
    const op_kernels *known = &table[call->op->slot->index];
    const ct_kernel *kernel = known->cpu + (call->kernel - known->ours);
    const int n = call->n_in + call->n_out;
    const size_t bytes = (size_t)n * (sizeof(ct_view) + sizeof(ct_view *));
    ct_view *views = host->allocate(bytes);
    if (!views) return host->fail(CT_ERR_MEMORY, call->op->name, "no memory for the views of the call");
    ct_view **pointers = (ct_view **)(views + n);
    for (int i = 0; i < n; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        pointers[i] = view ? &views[i] : NULL;
        if (!view) continue;
        views[i] = *view;
        if (i >= call->n_in || !(call->numbers >> i & 1)) views[i].buffer = translate(view->buffer);
    }
    ct_call translated = *call;
    translated.kernel = kernel;
    translated.in = (const ct_view *const *)pointers;
    translated.out = pointers + call->n_in;
    if (call->scratch.buffer) translated.scratch.buffer = translate(call->scratch.buffer);
    const bool ok = kernel->run(&translated, stream);
    host->release(views, bytes);
    return ok;
}

static const ct_kernel *kernels(void *self, const ct_op *op) {
    (void)self;
    const char *primitives = getenv("CT_GUARD_PRIMITIVES");
    const ct_kernel *list = cpu->kernels(cpu->self, op);
    const int index = op->slot->index;
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

static const ct_backend guard = {.size = sizeof(ct_backend),
                                 .version = CT_BACKEND_VERSION,
                                 .name = "guard",
                                 .alignment = ALIGNMENT,
                                 .device_count = device_count,
                                 .device_info = device_info,
                                 .allocate = allocate,
                                 .release = release,
                                 .upload = upload,
                                 .download = download,
                                 .copy = copy,
                                 .fill = fill,
                                 .wait = wait_for,
                                 .kernels = kernels};

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
    host = given;
    cpu = host->backend("cpu");
    table_size = host->op_count() + 1;
    table = calloc((size_t)table_size, sizeof *table);
    if (!cpu || !table || !map_memory(why, room)) return NULL;
    return &guard;
}
