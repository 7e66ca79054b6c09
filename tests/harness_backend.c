/* Backends of the tests' own: host memory, and the CPU's kernels as they are. */
#include "tests/harness_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPS = 1024 };

_Atomic int harness_reads;

static int one_device(void *self) {
    (void)self;
    return 1;
}

static bool describe(void *self, int device, ct_device_info *info) {
    (void)self, (void)device;
    snprintf(info->name, sizeof info->name, "host memory");
    info->memory = (int64_t)1 << 40;
    return true;
}

static bool allocate(void *self, int device, size_t bytes, void **buffer) {
    (void)self, (void)device;
    return (*buffer = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)) != NULL;
}

static void release(void *self, int device, void *buffer, size_t bytes) {
    (void)self, (void)device, (void)bytes;
    free(buffer);
}

static bool upload(void *self, int device, void *buffer, size_t offset, const void *host, size_t bytes,
                   ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy((char *)buffer + offset, host, bytes);
    return true;
}

static bool download(void *self, int device, void *host, const void *buffer, size_t offset, size_t bytes,
                     ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy(host, (const char *)buffer + offset, bytes);
    atomic_fetch_add(&harness_reads, 1);
    return true;
}

static bool copy(void *self, int device, void *to, size_t to_offset, const void *from, size_t from_offset, size_t bytes,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memmove((char *)to + to_offset, (const char *)from + from_offset, bytes);
    return true;
}

static bool fill(void *self, int device, void *buffer, size_t offset, const void *pattern, size_t size, size_t count,
                 ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    for (size_t i = 0; i < count; i++) memcpy((char *)buffer + offset + i * size, pattern, size);
    return true;
}

static bool wait_for(void *self, int device, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    return true;
}

/* The CPU's candidates of an op, and ours in the same order: they look at the same memory. */
static struct {
    const ct_kernel *cpu;
    ct_kernel *ours;
} table[MOST_OPS];

static bool run(const ct_call *call, ct_stream *stream) {
    enum { MOST = 64 };
    const int index = call->op->slot->index, n = call->n_in + call->n_out;
    ct_view views[MOST], *pointers[MOST];
    if (n > MOST) return ct_fail(CT_ERR_UNSUPPORTED, call->op->name, "%d tensors are more than this device takes", n);
    for (int i = 0; i < n; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        pointers[i] = view ? &views[i] : NULL;
        if (!view) continue;
        views[i] = *view;
        views[i].buffer = (char *)view->buffer + view->origin; /* which a kernel of the CPU does not expect */
        views[i].origin = 0;
    }
    ct_call here = *call;
    here.kernel = table[index].cpu + (call->kernel - table[index].ours);
    here.in = (const ct_view *const *)pointers;
    here.out = pointers + call->n_in;
    return here.kernel->run(&here, stream);
}

static const ct_kernel *all_kernels(void *self, const ct_op *op) {
    (void)self;
    const ct_kernel *list = ct_op_kernel(op, CT_CPU, 0);
    const int index = op->slot->index;
    int n = 0;
    if (!list || index >= MOST_OPS) return NULL;
    if (table[index].cpu == list) return table[index].ours;
    while (list[n].name) n++;
    ct_kernel *ours = calloc((size_t)n + 1, sizeof *ours);
    for (int i = 0; ours && i < n; i++) {
        ours[i] = list[i];
        ours[i].run = run;
    }
    free(table[index].ours);
    table[index].cpu = list;
    return table[index].ours = ours;
}

static const ct_kernel *kernels_of_primitives(void *self, const ct_op *op) {
    return op->lower ? NULL : all_kernels(self, op);
}

static const ct_kernel *no_kernels(void *self, const ct_op *op) {
    (void)self, (void)op;
    return NULL;
}

#define BACKEND(label, list)              \
    static const ct_backend label = {     \
        .size = sizeof(ct_backend),       \
        .version = CT_BACKEND_VERSION,    \
        .name = #label,                   \
        .alignment = 64,                  \
        .device_count = one_device,       \
        .device_info = describe,          \
        .allocate = allocate,             \
        .release = release,               \
        .upload = upload,                 \
        .download = download,             \
        .copy = copy,                     \
        .fill = fill,                     \
        .wait = wait_for,                 \
        .kernels = list,                  \
        .kernel_size = sizeof(ct_kernel), \
    };
BACKEND(plain, all_kernels)
BACKEND(primitive, kernels_of_primitives)
BACKEND(bare, no_kernels)

ct_device harness_device(harness_kernels which) {
    static const ct_backend *const backends[] = {&plain, &primitive, &bare};
    const ct_backend *backend = backends[which];
    ct_device device = {CT_CPU, 0};
    if (!ct_device_parse(backend->name, &device)) { /* not yet in this process */
        ct_error_clear();
        if (!ct_backend_register(backend) || !ct_device_parse(backend->name, &device)) abort();
    }
    return device;
}
