/* Storage, tensor handles and their plain accessors. */
#include "core/tensor.h"
#include "core/hot.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/capture.h"
#include "core/device.h"
#include "core/device_memory.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/node.h"
#include "core/stream.h"

/* Gives up a reference. Who holds the only one need not say so to others: nobody can take another meanwhile, and an atomic change
 * waits for all stores before it. */
static inline bool is_last(_Atomic int *refs) {
    return atomic_load_explicit(refs, memory_order_acquire) == 1 ||
           atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

/* ---- Storage ---- */

enum { HEADER = 64 };
_Static_assert(sizeof(ct_storage) <= HEADER, "the storage header fits one cache line");

CT__HOT ct_storage *ct__storage_new(ct_device device, size_t bytes, const char *op) {
    bool cpu = device.type == CT_CPU;
    ct_storage *storage = bytes > SIZE_MAX / 4 ? NULL : ct__alloc(cpu ? HEADER + bytes : HEADER);
    if (!storage) {
        ct__fail_memory(op, bytes);
        return NULL;
    }
    *storage = (ct_storage){.device = device, .bytes = bytes};
    atomic_init(&storage->refs, 1);
    if (cpu) {
        storage->buffer = (char *)storage + HEADER;
    } else if ((storage->block = ct__device_take(device, ct__stream_now(device), bytes))) {
        storage->buffer = storage->block->buffer;
    } else {
        ct__free(storage, HEADER);
        ct__fail_device_memory(op, device, bytes);
        return NULL;
    }
    if (ct__capturing) ct__capture_made(storage);
    return storage;
}

void ct__storage_retain(ct_storage *storage) { atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed); }

/* What lies behind the header of memory that is not the library's: how it is given back, and which streams use it. */
typedef struct foreign {
    ct_wrapped wrapped;
    ct_block block;
} foreign;
static foreign *foreign_of(ct_storage *storage) { return (foreign *)(void *)((char *)storage + HEADER); }

ct_storage *ct__storage_wrap(ct_device device, void *buffer, size_t bytes, ct_wrapped wrapped, const char *op) {
    ct_storage *storage = ct__alloc(HEADER + sizeof(foreign));
    if (!storage) {
        ct__fail_memory(op, HEADER + sizeof(foreign));
        if (wrapped.release) wrapped.release(wrapped.context, wrapped.data);
        return NULL;
    }
    *storage = (ct_storage){.device = device, .bytes = bytes, .buffer = buffer, .wrapped = true};
    atomic_init(&storage->refs, 1);
    foreign *behind = foreign_of(storage);
    *behind = (foreign){.wrapped = wrapped, .block = {.buffer = buffer, .size = bytes, .bytes = bytes}};
    const unsigned writer = device.type == CT_CPU ? 0 : ct__stream_number(ct__stream_now(device));
    atomic_init(&behind->block.users, (uint64_t)1 << writer); /* as if this thread had written it */
    atomic_init(&behind->block.writer, writer);
    if (device.type != CT_CPU) storage->block = &behind->block;
    return storage;
}

CT__HOT void ct__storage_release(ct_storage *storage) {
    if (!storage) return;
    const bool known = atomic_load_explicit(&storage->known, memory_order_relaxed);
    if (!(known ? ct__capture_let_go(storage) : is_last(&storage->refs))) return;
    size_t size = HEADER;
    if (storage->wrapped) {
        const ct_wrapped wrapped = foreign_of(storage)->wrapped;
        if (wrapped.release) {
            if (storage->device.type != CT_CPU)
                ct_synchronize(storage->device); /* its owner knows nothing of our streams */
            wrapped.release(wrapped.context, wrapped.data);
        }
        size += sizeof(foreign);
    } else if (storage->block) {
        ct__device_give(storage->device, storage->block);
    } else {
        size += storage->bytes;
    }
    ct__free(storage, size);
}

bool ct__storage_put(ct_storage *storage, size_t offset, const void *data, size_t bytes) {
    if (!bytes) return true;
    if (ct__capturing) ct__capture_put(storage, offset, data, bytes);
    if (storage->device.type == CT_CPU) {
        memcpy((char *)storage->buffer + offset, data, bytes);
        return true;
    }
    const ct_backend *backend = ct__backend(storage->device.type);
    ct_stream *stream = ct__stream_now(storage->device);
    return ct__stream_use(storage, stream, true) &&
           backend->upload(backend->self, storage->device.index, storage->buffer, storage->block->offset + offset, data,
                           bytes, stream);
}

bool ct__storage_fill(ct_storage *storage, const void *pattern, size_t size) {
    if (ct__capturing) ct__capture_fill(storage, pattern, size);
    if (storage->device.type == CT_CPU && storage->bytes == size) {
        memcpy(storage->buffer, pattern, size);
        return true;
    }
    const ct_backend *backend = ct__backend(storage->device.type);
    const size_t offset = storage->block ? storage->block->offset : 0;
    ct_stream *stream = ct__stream_now(storage->device);
    return ct__stream_use(storage, stream, true) && backend->fill(backend->self, storage->device.index, storage->buffer,
                                                                  offset, pattern, size, storage->bytes / size, stream);
}

bool ct__storage_get(const ct_storage *storage, size_t offset, void *data, size_t bytes) {
    if (!bytes) return true;
    if (ct__capturing) ct_capture_refuse("read", "a read of a tensor's values", NULL);
    if (storage->device.type != CT_CPU) return ct__stream_download(storage, offset, data, bytes);
    memcpy(data, (const char *)storage->buffer + offset, bytes);
    return true;
}

/* ---- Views ---- */

int64_t ct__count(int ndim, const int64_t *dims) {
    int64_t extent = 1;
    bool empty = false;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] < 0 || (dims[i] && __builtin_mul_overflow(extent, dims[i], &extent))) return -1;
        empty |= dims[i] == 0;
    }
    return extent > INT64_MAX / CT__LARGEST_ELEMENT ? -1 : empty ? 0 : extent;
}

bool ct__fail_count(const char *op, const ct_view *view) {
    return ct_fail(CT_ERR_SHAPE, op,
                   "the result would be %s: a size is negative, or there are more elements than can be counted",
                   ct_view_text(view));
}

int64_t ct__view_count(const ct_view *view) {
    int64_t count = 1;
    for (int i = 0; i < view->ndim; i++) count *= view->dims[i];
    return count;
}

bool ct__view_is_dense(const ct_view *view) {
    int64_t expected = 1;
    bool dense = true;
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->dims[i] == 0) return true; /* no element lies anywhere else */
        if (view->dims[i] != 1 && view->strides[i] != expected) dense = false;
        expected *= view->dims[i];
    }
    return dense;
}

void ct__view_dense_strides(ct_view *view) {
    int64_t stride = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        view->strides[i] = stride;
        stride *= view->dims[i] > 1 ? view->dims[i] : 1;
    }
    view->offset = 0;
}

CT__HOT bool ct__view_reshaped(const ct_view *x, int n, const int64_t *dims, ct_view *to) {
    int64_t count = 1, stride = 1;
    if (n > CT_MAX_DIMS) return false;
    for (int i = x->ndim - 1; i >= 0; i--) {
        if (x->dims[i] != 1 && x->strides[i] != count) return false;
        count *= x->dims[i];
    }
    for (int i = n - 1; i >= 0; i--) {
        to->dims[i] = dims[i];
        to->strides[i] = stride;
        if (dims[i] <= 0 || __builtin_mul_overflow(stride, dims[i], &stride)) return false;
    }
    return stride == count && (n != x->ndim || memcmp(dims, x->dims, (size_t)n * sizeof *dims) != 0);
}

bool ct__view_reach(const ct_view *view, int64_t *low, int64_t *high) {
    *low = *high = 0;
    for (int i = 0; i < view->ndim; i++) {
        if (view->dims[i] == 0) {
            *low = *high = 0;
            return true;
        }
        int64_t reach, *end = view->strides[i] < 0 ? low : high;
        if (__builtin_mul_overflow(view->dims[i] - 1, view->strides[i], &reach) ||
            __builtin_add_overflow(*end, reach, end))
            return false;
    }
    return true;
}

bool ct__view_inside(const ct_view *view, const ct_storage *storage) {
    int64_t low, high, first, last;
    for (int i = 0; i < view->ndim; i++)
        if (view->dims[i] == 0) return true;
    return ct__view_reach(view, &low, &high) && !__builtin_add_overflow(view->offset, low, &first) &&
           !__builtin_add_overflow(view->offset, high, &last) && first >= 0 &&
           last < (int64_t)(storage->bytes / ct__dtype_size(view->dtype));
}

/* Whether some steps along the n axes, not all of them zero, lead back to where they started: sum of strides[i] * step[i] +
 * sum = 0, |step[i]| < dims[i]. The strides fall, so the largest is decided first and leaves few ways for the rest. */
static bool leads_back(int n, const int64_t *dims, const int64_t *strides, int64_t sum, bool moved, int *patience) {
    if (n == 0) return moved && sum == 0;
    if (--*patience < 0) return true; /* rather refuse than search for ever */
    int64_t reach = 0;                /* of the axes after this one */
    for (int i = 1; i < n; i++) reach += (dims[i] - 1) * strides[i];
    int64_t low = (-sum - reach) / strides[0] - 1, high = (-sum + reach) / strides[0] + 1;
    if (low < 1 - dims[0]) low = 1 - dims[0];
    if (high > dims[0] - 1) high = dims[0] - 1;
    for (int64_t step = low; step <= high; step++)
        if (leads_back(n - 1, dims + 1, strides + 1, sum + step * strides[0], moved || step, patience)) return true;
    return false;
}

bool ct__view_overlaps(const ct_view *view) {
    int64_t dims[CT_MAX_DIMS], strides[CT_MAX_DIMS], reach = 0;
    int n = 0;
    bool apart = true;
    if (ct__view_is_dense(view)) return false;
    for (int i = 0; i < view->ndim; i++) {
        if (view->dims[i] == 0) return false;
        if (view->dims[i] == 1) continue;
        if (view->strides[i] == 0) return true;
        int64_t stride = view->strides[i] < 0 ? -view->strides[i] : view->strides[i];
        int at = n++;
        for (; at > 0 && strides[at - 1] < stride; at--) strides[at] = strides[at - 1], dims[at] = dims[at - 1];
        strides[at] = stride;
        dims[at] = view->dims[i];
    }
    for (int i = n - 1; i >= 0; i--) {
        apart = apart && strides[i] > reach;
        reach += (dims[i] - 1) * strides[i];
    }
    int patience = 10000;
    return !apart && leads_back(n, dims, strides, 0, false, &patience);
}

bool ct__view_same_layout(const ct_view *a, const ct_view *b) {
    if (a->buffer != b->buffer || a->origin != b->origin || a->offset != b->offset || a->dtype != b->dtype ||
        a->ndim != b->ndim)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dims[i] != b->dims[i] || a->strides[i] != b->strides[i]) return false;
    return true;
}

/* ---- Tensors ---- */

CT__HOT static void copy_view(ct_view *to, const ct_view *from) { /* only the dimensions in use */
    to->offset = from->offset;
    to->dtype = from->dtype;
    to->ndim = from->ndim;
    ct__copy_dims(to->dims, from->dims, from->ndim);
    ct__copy_dims(to->strides, from->strides, from->ndim);
}

/* Without a reference of its own to the storage. */
static inline ct_tensor *make_handle(const ct_view *view, ct_storage *storage) {
    ct_tensor *x = ct__alloc(sizeof *x);
    if (!x) {
        ct__fail_memory("tensor", sizeof *x);
        return NULL;
    }
    x->magic = CT__ALIVE;
    atomic_init(&x->refs, 1);
    copy_view(&x->view, view);
    x->view.buffer = storage ? storage->buffer : NULL;
    x->view.origin = storage && storage->block ? storage->block->offset : 0;
    x->storage = storage;
    x->node = x->unwanted = NULL;
    x->user = NULL;
    x->node_output = 0;
    x->base = NULL;
    x->changes = 0;
    ct__live_add(1);
    return x;
}

CT__HOT ct_tensor *ct__tensor_new(const ct_view *view, ct_storage *storage) {
    ct_tensor *x = make_handle(view, storage);
    if (x && storage) ct__storage_retain(storage);
    return x;
}

CT__HOT ct_tensor *ct__tensor_view(const ct_view *view, ct_tensor *of) {
    /* Retained first: an atomic change waits for all stores before it, and those of a new handle take their time. */
    ct_tensor *base = ct__tensor_retain(of->base ? of->base : of), *x = make_handle(view, of->storage);
    if (x) {
        x->base = base;
        x->changes = base->changes;
    } else {
        ct__tensor_release(base);
    }
    return x;
}

CT__HOT ct_tensor *ct__tensor_dense(ct_view *view, ct_device device, const char *op) {
    const int64_t count = ct__count(view->ndim, view->dims);
    if (count < 0) {
        ct__fail_count(op, view);
        return NULL;
    }
    if (device.type != CT_CPU && !ct__device_has(device, view->dtype)) {
        ct__fail_dtype(op, device, view->dtype);
        return NULL;
    }
    ct__view_dense_strides(view);
    ct_storage *storage = ct__storage_new(device, (size_t)count * ct__dtype_size(view->dtype), op);
    if (!storage) return NULL;
    ct_tensor *x = ct__tensor_new(view, storage);
    ct__storage_release(storage); /* now the tensor's */
    return x;
}

/* In debug builds a released handle stays readable for a while, so that using it is a message and not a crash. */
static void bury_handle(ct_tensor *x) {
#ifdef CT_DEBUG
    enum { GRAVES = 4096 };
    static ct_tensor *_Atomic graves[GRAVES];
    static _Atomic unsigned next;
    x = atomic_exchange(&graves[atomic_fetch_add(&next, 1) % GRAVES], x);
#endif
    ct__free(x, sizeof *x);
}

CT__HOT void ct__tensor_release(ct_tensor *x) {
    if (!x || !is_last(&x->refs)) return;
    x->magic = CT__DEAD;
    if (x->user) ct__user_release(x);
    if (x->node) ct__node_release(x->node);
    if (x->unwanted) ct__node_release(x->unwanted);
    if (x->base) ct__tensor_release(x->base); /* which has no base of its own: this goes one step deep */
    else ct__storage_release(x->storage);
    ct__live_add(-1);
    bury_handle(x);
}

bool ct__invalid(const ct_tensor *x, const char *op, const char *argument) {
    if (!x) return ct__fail_null(op, argument);
    return ct_fail(CT_ERR_STATE, op,
                   "argument %s is not a live tensor: was it released with its scope? (ct_keep or ct_pass it)",
                   argument);
}

/* ---- Making ---- */

bool ct__view_of_shape(const char *op, ct_dims shape, ct_dtype dtype, ct_view *view) {
    if (shape.n < 0 || shape.n > CT_MAX_DIMS)
        return ct_fail(CT_ERR_SHAPE, op, "the shape has more than %d dimensions", CT_MAX_DIMS);
    if ((unsigned)dtype >= CT_DTYPE_COUNT) return ct_fail(CT_ERR_DTYPE, op, "%d is not a dtype", (int)dtype);
    *view = (ct_view){.dtype = dtype, .ndim = shape.n};
    for (int i = 0; i < shape.n; i++) {
        if (shape.d[i] < 0)
            return ct_fail(CT_ERR_SHAPE, op, "size %lld of dimension %d is negative", (long long)shape.d[i], i);
        view->dims[i] = shape.d[i];
    }
    if (ct__count(shape.n, shape.d) < 0)
        return ct_fail(CT_ERR_SHAPE, op, "the shape is %s: more elements than can be counted", ct_dims_text(shape));
    ct__view_dense_strides(view);
    return true;
}

ct_tensor *ct_from_data(const void *data, ct_dims shape, ct_dtype dtype) {
    ct_view view;
    if (!ct__view_of_shape("from_data", shape, dtype, &view)) return NULL;
    ct_tensor *x = ct__tensor_dense(&view, ct__current_device, "from_data");
    if (!x) return NULL;
    if (!data && x->storage->bytes) {
        ct__tensor_release(x);
        ct__fail_null("from_data", "data");
        return NULL;
    }
    if (!ct__storage_put(x->storage, 0, data, x->storage->bytes)) {
        ct__tensor_release(x);
        return NULL;
    }
    return ct__scope_adopt(x);
}

ct_tensor *ct__scalar_raw(const void *element, ct_dtype dtype, ct_device device, const char *op) {
    ct_view view;
    if (!ct__view_of_shape(op, (ct_dims){0}, dtype, &view)) return NULL;
    ct_tensor *x = ct__tensor_dense(&view, device, op);
    if (!x) return NULL;
    if (!ct__storage_fill(x->storage, element, ct__dtype_size(dtype))) {
        ct__tensor_release(x);
        return NULL;
    }
    return ct__scope_adopt(x);
}

ct_tensor *ct_scalar(double value, ct_dtype dtype) {
    char raw[CT__LARGEST_ELEMENT];
    if ((unsigned)dtype < CT_DTYPE_COUNT) ct__dtype_put(dtype, raw, value);
    return ct__scalar_raw(raw, dtype, ct__current_device, "scalar");
}

/* ---- Reading ---- */

int ct_ndim(const ct_tensor *x) { return ct__valid(x, "ndim", "x") ? x->view.ndim : 0; }

int64_t ct_dim(const ct_tensor *x, int axis) {
    if (!ct__valid(x, "dim", "x")) return 0;
    int resolved = axis < 0 ? axis + x->view.ndim : axis;
    if (resolved < 0 || resolved >= x->view.ndim) {
        ct_fail(CT_ERR_SHAPE, "dim", "axis %d is out of range for %s", axis, ct_view_text(&x->view));
        return 0;
    }
    return x->view.dims[resolved];
}

static ct_dims list_of(int n, const int64_t *values) {
    ct_dims list = {.n = n};
    for (int i = 0; i < n; i++) list.d[i] = values[i];
    return list;
}

ct_dims ct_shape(const ct_tensor *x) {
    return ct__valid(x, "shape", "x") ? list_of(x->view.ndim, x->view.dims) : (ct_dims){0};
}
ct_dims ct_strides(const ct_tensor *x) {
    return ct__valid(x, "strides", "x") ? list_of(x->view.ndim, x->view.strides) : (ct_dims){0};
}
int64_t ct_numel(const ct_tensor *x) { return ct__valid(x, "numel", "x") ? ct__view_count(&x->view) : 0; }
ct_dtype ct_dtype_of(const ct_tensor *x) { return ct__valid(x, "dtype_of", "x") ? x->view.dtype : CT_F32; }
bool ct_is_contiguous(const ct_tensor *x) { return ct__valid(x, "is_contiguous", "x") && ct__view_is_dense(&x->view); }

ct_device ct_device_of(const ct_tensor *x) {
    return ct__valid(x, "device_of", "x") && x->storage ? x->storage->device : ct__current_device;
}

bool ct_read(const ct_tensor *x, void *data, size_t bytes) {
    if (!ct__valid(x, "read", "x")) return false;
    size_t size = ct__dtype_size(x->view.dtype), needed = (size_t)ct__view_count(&x->view) * size;
    if (bytes != needed)
        return ct_fail(CT_ERR_SHAPE, "read", "x is %s, which takes %zu bytes, not %zu", ct_view_text(&x->view), needed,
                       bytes);
    if (!data && bytes) return ct__fail_null("read", "data");
    if (!x->storage) return ct_fail(CT_ERR_STATE, "read", "x has a shape but no data");
    bool ok = true;
    ct_scope {
        bool before = ct_set_grad_enabled(false);
        const ct_tensor *dense = ct__view_is_dense(&x->view) ? x : ct_contiguous((ct_tensor *)x);
        ct_set_grad_enabled(before);
        ok = dense && ct__storage_get(dense->storage, (size_t)dense->view.offset * size, data, bytes);
    }
    return ok;
}

ct_tensor *ct_keep(ct_tensor *x) {
    if (!ct__valid(x, "keep", "x")) return NULL;
    return ct__tensor_retain(x);
}

void ct_drop(ct_tensor *x) {
    if (x && ct__valid(x, "drop", "x")) ct__tensor_release(x);
}
