/* Tensors and the host: its memory as a tensor, a tensor's memory or number for the host, and a pointer of its own. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/capture.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/inplace.h"
#include "core/sized.h"
#include "core/tensor.h"

/* ---- Wrapping ---- */

/* Strides may lead anywhere: what they reach has to be countable in bytes, and to lie within the address space. */
bool ct__view_place(ct_view *view, void *first, char **lowest, size_t *bytes) {
    const int64_t size = (int64_t)ct_dtype_size(view->dtype);
    int64_t low, high, below, length;
    if (!ct__view_reach(view, &low, &high) || __builtin_mul_overflow(low, -size, &below) ||
        __builtin_sub_overflow(high, low, &length) || __builtin_add_overflow(length, 1, &length) ||
        __builtin_mul_overflow(length, size, &length))
        return false;
    const uintptr_t at = (uintptr_t)first;
    if ((uintptr_t)below > at || (uintptr_t)length > UINTPTR_MAX - (at - (uintptr_t)below)) return false;
    view->offset = -low;
    *lowest = (char *)first - below;
    *bytes = ct__view_count(view) ? (size_t)length : 0;
    return true;
}

static bool take_strides(ct_view *view, const ct_dims *strides, void *data, char **lowest, size_t *bytes) {
    if (strides->n != 0 && strides->n != view->ndim)
        return ct_fail(CT_ERR_SHAPE, "wrap", "there are %d strides for %d dimensions", strides->n, view->ndim);
    for (int i = 0; i < strides->n; i++) view->strides[i] = strides->d[i];
    return ct__view_place(view, data, lowest, bytes) ||
           ct_fail(CT_ERR_SHAPE, "wrap", "with the strides %s, %s reaches beyond what can be addressed",
                   ct_dims_text(*strides), ct_view_text(view));
}

/* Where a backend's buffers are addresses, an address is a buffer. */
static bool take_device(ct_device *device) {
    if (device->type == CT_CURRENT) {
        *device = (ct_device){CT_CPU, 0};
        return true;
    }
    if (!ct__device_ok(*device, "wrap")) return false;
    return device->type == CT_CPU || ct__backend(device->type)->dlpack_type ||
           ct_fail(CT_ERR_UNSUPPORTED, "wrap", "memory of %s has no addresses that could be wrapped",
                   ct_device_text(*device));
}

ct_tensor *ct_wrap_p(void *data, ct_dims shape, ct_dtype dtype, const ct_wrap_options *options) {
    ct_wrap_options o;
    ct_view view;
    char *lowest;
    size_t bytes;
    if (!ct__take_sized(&o, sizeof o, options, "wrap")) return NULL; /* what it says cannot be read, nor be released */
    if (!data) {
        ct__fail_null("wrap", "data");
        return NULL;
    }
    bool ok = ct__view_of_shape("wrap", shape, dtype, &view) && take_device(&o.device);
    if (ok && (uintptr_t)data % ct_dtype_size(dtype))
        ok = ct_fail(CT_ERR_VALUE, "wrap", "data at %p is not aligned for %s", data, ct_dtype_name(dtype));
    if (!ok || !take_strides(&view, &o.strides, data, &lowest, &bytes)) {
        if (o.release) o.release(o.context, data);
        return NULL;
    }
    const ct_wrapped wrapped = {o.release, o.context, data};
    ct_storage *storage = ct__storage_wrap(o.device, lowest, bytes, wrapped, "wrap");
    if (!storage) return NULL;
    storage->read_only = o.read_only;
    ct_tensor *x = ct__tensor_new(&view, storage);
    ct__storage_release(storage); /* calls release if x could not be made */
    return x ? ct__scope_adopt(x) : NULL;
}

/* ---- Numbers ---- */

ct_tensor *ct__scalar_exact(int64_t value, ct_dtype dtype, ct_device device, const char *op) {
    char raw[CT__LARGEST_ELEMENT];
    if ((unsigned)dtype < CT_DTYPE_COUNT && !ct__dtype_put_i64(dtype, raw, value)) {
        ct_fail(CT_ERR_VALUE, op, "%lld is no %s", (long long)value, ct_dtype_name(dtype));
        return NULL;
    }
    return ct__scalar_raw(raw, dtype, device, op);
}

ct_tensor *ct_scalar_i64(int64_t value, ct_dtype dtype) {
    return ct__scalar_exact(value, dtype, ct__current_device, "scalar_i64");
}

static bool read_element(const ct_tensor *x, const char *op, char *raw) {
    if (!ct__valid(x, op, "x")) return false;
    if (ct__view_count(&x->view) != 1)
        return ct_fail(CT_ERR_SHAPE, op, "x is %s; only a tensor of one element has an item", ct_view_text(&x->view));
    if (!x->storage) return ct_fail(CT_ERR_STATE, op, "x has a shape but no data");
    const size_t size = ct__dtype_size(x->view.dtype);
    return ct__storage_get(x->storage, (size_t)x->view.offset * size, raw, size);
}

double ct_item(const ct_tensor *x) {
    char raw[CT__LARGEST_ELEMENT];
    if (!x || !read_element(x, "item", raw)) return NAN;
    return ct__dtype_get(x->view.dtype, raw);
}

int64_t ct_item_i64(const ct_tensor *x) {
    char raw[CT__LARGEST_ELEMENT];
    int64_t value;
    if (!read_element(x, "item_i64", raw)) return INT64_MIN;
    if (ct__dtype_get_i64(x->view.dtype, raw, &value)) return value;
    ct_fail(CT_ERR_VALUE, "item_i64", "x, %s, is %g, which no i64 is", ct_view_text(&x->view),
            ct__dtype_get(x->view.dtype, raw));
    return INT64_MIN;
}

/* ---- Addresses ---- */

static bool in_host_memory(const ct_tensor *x, const char *op) {
    if (!ct__valid(x, op, "x")) return false;
    if (!x->storage) return ct_fail(CT_ERR_STATE, op, "x has a shape but no data");
    if (x->storage->device.type != CT_CPU)
        return ct_fail(CT_ERR_DEVICE, op, "x is not in host memory; read it with ct_read");
    ct_capture_refuse(op, "what is done with the address of a tensor", NULL);
    return true;
}

static bool contiguous_in_host_memory(const ct_tensor *x, const char *op) {
    if (!in_host_memory(x, op)) return false;
    return ct__view_is_dense(&x->view) ||
           ct_fail(CT_ERR_SHAPE, op,
                   "x is %s with gaps or another order in memory; use ct_contiguous first, or ct_data_strided",
                   ct_view_text(&x->view));
}

static void *address(const ct_tensor *x) {
    return (char *)x->view.buffer + x->view.offset * (int64_t)ct__dtype_size(x->view.dtype);
}

static void *address_to_change(ct_tensor *x, const char *op) {
    if (!ct__writable(x, op, "x")) return NULL;
    atomic_fetch_add(&x->storage->version, 1);
    return address(x);
}

const void *ct_data(const ct_tensor *x) { return contiguous_in_host_memory(x, "data") ? address(x) : NULL; }

void *ct_data_mut(ct_tensor *x) {
    return contiguous_in_host_memory(x, "data_mut") ? address_to_change(x, "data_mut") : NULL;
}

bool ct_write(ct_tensor *x, const void *data, size_t bytes) {
    if (ct__pending() || !ct__writable(x, "write", "x")) return false;
    const size_t size = ct__dtype_size(x->view.dtype), needed = (size_t)ct__view_count(&x->view) * size;
    if (bytes != needed)
        return ct_fail(CT_ERR_SHAPE, "write", "x is %s, which takes %zu bytes, not %zu", ct_view_text(&x->view), needed,
                       bytes);
    if (!data && bytes) return ct__fail_null("write", "data");
    if (!x->storage) return ct_fail(CT_ERR_STATE, "write", "x has a shape but no data");
    if (!ct__view_is_dense(&x->view))
        return ct_fail(CT_ERR_SHAPE, "write", "x is %s with gaps or another order in memory; ct_assign writes such",
                       ct_view_text(&x->view));
    atomic_fetch_add(&x->storage->version, 1);
    return ct__storage_put(x->storage, (size_t)x->view.offset * size, data, bytes);
}

const void *ct_data_strided(const ct_tensor *x, ct_dims *strides) {
    if (!in_host_memory(x, "data_strided")) return NULL;
    if (strides) *strides = ct_strides(x);
    return address(x);
}

void *ct_data_strided_mut(ct_tensor *x, ct_dims *strides) {
    if (!in_host_memory(x, "data_strided_mut")) return NULL;
    if (strides) *strides = ct_strides(x);
    return address_to_change(x, "data_strided_mut");
}

/* ---- The user's pointer ---- */

struct ct_user {
    void *pointer;
    void (*release)(void *pointer);
};

void ct__user_release(ct_tensor *x) {
    struct ct_user *user = x->user;
    x->user = NULL; /* release may look at x */
    if (user->release) user->release(user->pointer);
    ct__free(user, sizeof *user);
}

bool ct_set_user(ct_tensor *x, void *pointer, void (*release)(void *pointer)) {
    const bool ok = ct__valid(x, "set_user", "x");
    struct ct_user *user = ok && (pointer || release) ? ct__alloc(sizeof *user) : NULL;
    if (ok && x->user && (user || !(pointer || release))) ct__user_release(x);
    if (user) {
        *user = (struct ct_user){pointer, release};
        x->user = user;
    } else if (pointer || release) {
        if (ok) ct__fail_memory("set_user", sizeof *user);
        if (release) release(pointer);
        return false;
    }
    return ok;
}

void *ct_user(const ct_tensor *x) { return ct__valid(x, "user", "x") && x->user ? x->user->pointer : NULL; }
