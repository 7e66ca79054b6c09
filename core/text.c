/* Short texts for messages: "f32[2,3]". */
#include <cotangent/op.h>
#include <stdio.h>

#include "core/device.h"
#include "core/error.h"
#include "core/tensor.h"
#include "core/thread_block.h"

enum { BUFFERS = 8, LENGTH = 192 };

/* The buffers of a thread take turns. Without memory for them all texts share one, which may then be garbled. */
static char *next_buffer(void) {
    static char shared[LENGTH];
    static _Thread_local char(*buffers)[LENGTH];
    static _Thread_local unsigned next;
    if (!buffers && !ct__thread_block((void **)&buffers, BUFFERS * LENGTH)) return shared;
    return buffers[next++ % BUFFERS];
}

static int put_dims(char *text, int used, int n, const int64_t *dims) {
    used += snprintf(text + used, (size_t)(LENGTH - used), "[");
    for (int i = 0; i < n && used < LENGTH; i++)
        used += snprintf(text + used, (size_t)(LENGTH - used), "%s%lld", i ? "," : "", (long long)dims[i]);
    if (used < LENGTH) used += snprintf(text + used, (size_t)(LENGTH - used), "]");
    return used;
}

const char *ct_view_text(const ct_view *view) {
    if (!view) return "nothing";
    char *text = next_buffer();
    int used = snprintf(text, LENGTH, "%s", ct_dtype_name(view->dtype));
    put_dims(text, used, view->ndim, view->dims);
    return text;
}

const char *ct_tensor_text(const ct_tensor *x) { return x ? ct_view_text(&x->view) : "nothing"; }

const char *ct_dims_text(ct_dims dims) {
    char *text = next_buffer();
    put_dims(text, 0, dims.n < 0 ? 0 : dims.n > CT_MAX_LIST ? CT_MAX_LIST : dims.n, dims.d);
    return text;
}

const char *ct_device_text(ct_device device) {
    char *text = next_buffer();
    device = ct__resolved(device);
    const char *name = ct_backend_name(device.type);
    if (ct_device_count(device.type) > 1) snprintf(text, LENGTH, "%s:%d", name, device.index);
    else snprintf(text, LENGTH, "%s", name ? name : "no device");
    return text;
}

bool ct_infer_fail(const ct_infer *infer, ct_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__failv(code, infer->op->name, format, args);
    va_end(args);
    return false;
}

int ct_version(void) { return CT_VERSION; }

#define WRITTEN_NOW(number) #number
#define WRITTEN(number)     WRITTEN_NOW(number)
const char *ct_version_text(void) {
    return WRITTEN(CT_VERSION_MAJOR) "." WRITTEN(CT_VERSION_MINOR) "." WRITTEN(CT_VERSION_PATCH);
}
