/* libcotangent_webgpu.so: what it exports, and the table of its kernels. */
#include <cotangent/layouts.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/webgpu/device.h"
#include "backends/webgpu/elementwise.h"
#include "backends/webgpu/shader.h"

#define CT_KERNEL_FILE(file) extern const ct_kernel_row ct_webgpu_kernels_##file[];
#include "gen/kernels_webgpu.inc"
#undef CT_KERNEL_FILE

static const ct_kernel_row *const files[] = {
#define CT_KERNEL_FILE(file) ct_webgpu_kernels_##file,
#include "gen/kernels_webgpu.inc"
#undef CT_KERNEL_FILE
    NULL,
};

static const ct_kernel **table; /* by the op's number */
static int table_size;

static bool start_kernels(void) {
    if (table) return true; /* it was looked at before there was a device */
    table_size = ct_wgpu_host->op_count() + 1;
    table = calloc((size_t)table_size, sizeof *table);
    if (!table || !ct_wgpu_elementwise_start() || !ct_wgpu_library_start()) return false;
    for (int i = 0; files[i]; i++)
        for (const ct_kernel_row *row = files[i]; row->op; row++) {
            const ct_op *op = ct_wgpu_host->op_find(row->op);
            if (op && op->slot->index < table_size) table[op->slot->index] = row->candidates;
        }
    return true;
}

const ct_kernel *ct_wgpu_kernels_of(void *self, const ct_op *op) {
    (void)self;
    const int index = op->slot->index;
    if (index < 1 || index >= table_size) return NULL; /* registered by the program */
    return table[index] ? table[index] : ct_wgpu_elementwise_of(op);
}

/* The table alone, where there may be neither a runtime nor a device. */
CT_API const ct_kernel *ct_backend_kernels(const ct_host *host, const ct_op *op);
const ct_kernel *ct_backend_kernels(const ct_host *host, const ct_op *op) {
    if (host->layouts != CT_ATTRIBUTE_LAYOUTS) return NULL; /* it was built for other ops */
    if (!table) ct_wgpu_host = host;
    return start_kernels() ? ct_wgpu_kernels_of(NULL, op) : NULL;
}

CT_API const ct_backend *ct_backend_module(const ct_host *host, char *why, size_t room);
const ct_backend *ct_backend_module(const ct_host *host, char *why, size_t room) {
    if (host->version != CT_BACKEND_VERSION || host->size < sizeof(ct_host)) {
        snprintf(why, room, "the library is of another version");
        return NULL;
    }
    if (host->layouts != CT_ATTRIBUTE_LAYOUTS) {
        snprintf(why, room, "it was built for other ops than this library has");
        return NULL;
    }
    ct_wgpu_host = host;
    if (!ct_wgpu_open(why, room) || !ct_wgpu_start(why, room)) return NULL;
    if (!start_kernels()) {
        snprintf(why, room, "out of memory");
        return NULL;
    }
    return &ct_wgpu_backend;
}
