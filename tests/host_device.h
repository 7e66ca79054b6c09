/* A device for tests of the contract: the host's memory, with the CPU's kernels. Unlike the guarded one it is part of the program, and
 * its buffers are addresses. */
#ifndef COTANGENT_TESTS_HOST_DEVICE_H
#define COTANGENT_TESTS_HOST_DEVICE_H

#include <cotangent/backend.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int host_device_waits;

static inline int host_device_count(void *self) {
    (void)self;
    return 2;
}
static inline bool host_device_info(void *self, int device, ct_device_info *info) {
    (void)self, (void)device;
    snprintf(info->name, sizeof info->name, "a copy of the CPU");
    info->memory_free = 7;
    return true;
}
static inline bool host_device_allocate(void *self, int device, size_t bytes, void **buffer) {
    (void)self, (void)device;
    return (*buffer = aligned_alloc(64, (bytes + 64) / 64 * 64)) != NULL;
}
static inline void host_device_release(void *self, int device, void *buffer, size_t bytes) {
    (void)self, (void)device, (void)bytes;
    free(buffer);
}
static inline bool host_device_upload(void *self, int device, void *buffer, size_t offset, const void *host,
                                      size_t bytes, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy((char *)buffer + offset, host, bytes);
    return true;
}
static inline bool host_device_download(void *self, int device, void *host, const void *buffer, size_t offset,
                                        size_t bytes, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    memcpy(host, (const char *)buffer + offset, bytes);
    return true;
}
static inline bool host_device_copy(void *self, int device, void *to, size_t to_offset, const void *from,
                                    size_t from_offset, size_t bytes, ct_stream *stream) {
    return host_device_upload(self, device, to, to_offset, (const char *)from + from_offset, bytes, stream);
}
static inline bool host_device_fill(void *self, int device, void *buffer, size_t offset, const void *pattern,
                                    size_t size, size_t count, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    for (size_t i = 0; i < count; i++) memcpy((char *)buffer + offset + i * size, pattern, size);
    return true;
}
static inline bool host_device_wait(void *self, int device, ct_stream *stream) {
    (void)self, (void)device, (void)stream;
    atomic_fetch_add(&host_device_waits, 1);
    return true;
}

/* A call of the CPU's kernel of the same name, for which a storage begins with its buffer. */
static inline bool host_device_run(const ct_call *call, ct_stream *stream) {
    enum { MOST = 64 };
    ct_view views[MOST];
    ct_view *pointers[MOST];
    const int n = call->n_in + call->n_out;
    const ct_kernel *kernel = NULL;
    for (int i = 0; (kernel = ct_op_kernel(call->op, CT_CPU, i)) && strcmp(kernel->name, call->kernel->name) != 0;) i++;
    if (!kernel || n > MOST) return ct_fail(CT_ERR_UNSUPPORTED, call->op->name, "not on this device");
    for (int i = 0; i < n; i++) {
        const ct_view *view = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        pointers[i] = view ? &views[i] : NULL;
        if (!view) continue;
        views[i] = *view;
        views[i].buffer = (char *)view->buffer + view->origin;
        views[i].origin = 0;
    }
    ct_call ready = *call;
    ready.kernel = kernel;
    ready.in = (const ct_view *const *)pointers;
    ready.out = pointers + call->n_in;
    return kernel->run(&ready, stream);
}

/* The candidates of the CPU, with `size` bytes from one to the next, kept for every op. */
static inline const ct_kernel *host_device_list(const ct_op *op, size_t size, char **kept) {
    int n = 0;
    while (ct_op_kernel(op, CT_CPU, n)) n++;
    free(*kept);
    *kept = calloc((size_t)n + 1, size);
    for (int i = 0; *kept && i < n; i++) {
        ct_kernel kernel = *ct_op_kernel(op, CT_CPU, i);
        kernel.run = host_device_run;
        memcpy(*kept + (size_t)i * size, &kernel, sizeof kernel < size ? sizeof kernel : size);
    }
    return n ? (const ct_kernel *)(const void *)*kept : NULL;
}
static inline const ct_kernel *host_device_kernels(void *self, const ct_op *op) {
    static char *kept[4096];
    (void)self;
    return host_device_list(op, sizeof(ct_kernel), &kept[op->slot->index]);
}

static inline ct_backend host_device(const char *name) {
    return (ct_backend){.size = sizeof(ct_backend),
                        .version = CT_BACKEND_VERSION,
                        .name = name,
                        .alignment = 64,
                        .device_count = host_device_count,
                        .device_info = host_device_info,
                        .allocate = host_device_allocate,
                        .release = host_device_release,
                        .upload = host_device_upload,
                        .download = host_device_download,
                        .copy = host_device_copy,
                        .fill = host_device_fill,
                        .wait = host_device_wait,
                        .kernels = host_device_kernels,
                        .kernel_size = sizeof(ct_kernel)};
}

#endif
