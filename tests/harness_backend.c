/* Backends of the tests' own: host memory, and the CPU's kernels as they are. */
#include "tests/harness_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPS = 1024 };

_Atomic int harness_reads, harness_waits;

static int one_device(void *self) {
    (void)self;
    return 1;
}

static int two_devices(void *self) {
    (void)self;
    return 2;
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
    atomic_fetch_add(&harness_waits, 1);
    return true;
}

static bool run(const ct_call *call, ct_stream *stream) {
    enum { MOST = 64 };
    const int n = call->n_in + call->n_out;
    ct_view views[MOST], *pointers[MOST];
    const ct_kernel *kernel; /* the CPU's of that name: the one that was called may be the core's copy */
    for (int i = 0; (kernel = ct_op_kernel(call->op, CT_CPU, i)) && strcmp(kernel->name, call->kernel->name) != 0;) i++;
    if (!kernel || n > MOST)
        return ct_fail(CT_ERR_UNSUPPORTED, call->op->name, "%d tensors are more than this device takes", n);
    for (int i = 0; i < n; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        pointers[i] = view ? &views[i] : NULL;
        if (!view) continue;
        views[i] = *view;
        views[i].buffer = (char *)view->buffer + view->origin; /* which a kernel of the CPU does not expect */
        views[i].origin = 0;
    }
    ct_call here = *call;
    here.kernel = kernel;
    here.in = (const ct_view *const *)pointers;
    here.out = pointers + call->n_in;
    return kernel->run(&here, stream);
}

/* The CPU's candidates, which look at the same memory. They stay: threads remember choices. */
const ct_kernel *harness_kernels_sized(const ct_op *op, size_t size) {
    int n = 0;
    while (ct_op_kernel(op, CT_CPU, n)) n++;
    char *list = n ? calloc((size_t)n + 1, size) : NULL;
    for (int i = 0; list && i < n; i++) {
        ct_kernel kernel = *ct_op_kernel(op, CT_CPU, i);
        kernel.run = run;
        memcpy(list + (size_t)i * size, &kernel, sizeof kernel < size ? sizeof kernel : size);
    }
    return (const ct_kernel *)(void *)list;
}

static const ct_kernel *all_kernels(void *self, const ct_op *op) {
    static struct { const ct_kernel *cpu, *ours; } table[MOST_OPS];
    (void)self;
    const ct_kernel *cpu = ct_op_kernel(op, CT_CPU, 0);
    const int index = op->slot->index;
    if (!cpu || index >= MOST_OPS) return NULL;
    if (table[index].cpu != cpu) table[index].ours = harness_kernels_sized(op, sizeof *cpu);
    table[index].cpu = cpu;
    return table[index].ours;
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

ct_backend harness_backend(const char *name) {
    ct_backend backend = plain;
    backend.name = name;
    backend.device_count = two_devices;
    return backend;
}

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
