/* Helpers that infer functions share. */
#include "ops/infer.h"

#include <string.h>

#include "core/dtype.h"
#include "core/node.h"

int ct__axis(int64_t axis, int ndim) { return (int)(axis < 0 ? axis + (ndim ? ndim : 1) : axis); }

bool ct__infer_axis(const ct_infer *infer, int64_t axis, int ndim, int *resolved) {
    int64_t rank = ndim ? ndim : 1; /* a scalar counts as one dimension */
    if (axis < -rank || axis >= rank)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "axis %lld is out of range for %s, which has %d dimension%s",
                             (long long)axis, ct_view_text(infer->in[0]), ndim, ndim == 1 ? "" : "s");
    *resolved = ct__axis(axis, ndim);
    return true;
}

bool ct__infer_axes(const ct_infer *infer, const ct_dims *axes, int ndim, unsigned *mask) {
    *mask = 0;
    if (axes->n == 0) *mask = (1u << ndim) - 1;
    for (int i = 0; i < axes->n; i++) {
        int axis = 0;
        if (!ct__infer_axis(infer, axes->d[i], ndim, &axis)) return false;
        if (*mask >> axis & 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "axis %lld is given twice", (long long)axes->d[i]);
        *mask |= 1u << axis;
    }
    return true;
}

ct_dims ct__axes_list(unsigned mask) {
    ct_dims axes = {0};
    for (int i = 0; i < CT_MAX_DIMS; i++)
        if (mask >> i & 1) axes.d[axes.n++] = i;
    return axes;
}

void ct__infer_set(ct_infer *infer, int output, ct_dtype dtype, int ndim, const int64_t *dims) {
    ct_view *out = &infer->out[output];
    out->dtype = dtype;
    out->ndim = ndim;
    for (int i = 0; i < ndim; i++) out->dims[i] = dims[i];
}

void ct__infer_like(ct_infer *infer, int output, const ct_view *view, ct_dtype dtype) {
    ct__infer_set(infer, output, dtype, view->ndim, view->dims);
}

void ct__infer_reduced(ct_infer *infer, int output, const ct_view *x, unsigned mask, bool keepdim, ct_dtype dtype) {
    ct_view *out = &infer->out[output];
    out->dtype = dtype;
    out->ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (!(mask >> i & 1)) out->dims[out->ndim++] = x->dims[i];
        else if (keepdim) out->dims[out->ndim++] = 1;
    }
}

bool ct__has_numbers(const ct_tensor *x, const char *op, const char *name) {
    const ct_dtype dtype = ct_dtype_of(x);
    return ct_dtype_is_float(dtype) || ct_dtype_is_int(dtype) || dtype == CT_BOOL ||
           ct_fail(CT_ERR_DTYPE, op, "%s is %s; there is no arithmetic on %s, cast it first", name, ct_tensor_text(x),
                   ct_dtype_name(dtype));
}

bool ct__infer_is(const ct_infer *infer, int input, int ndim, const int64_t *dims) {
    const ct_view *x = infer->in[input];
    if (!x || (x->ndim == ndim && memcmp(x->dims, dims, (size_t)ndim * sizeof *dims) == 0)) return true;
    ct_dims expected = {.n = ndim};
    memcpy(expected.d, dims, (size_t)ndim * sizeof *dims);
    int named = 0; /* what follows the last name is a list */
    while (named < input && infer->op->inputs[named + 1].name) named++;
    const ct_arg *arg = &infer->op->inputs[named];
    if (arg->flags & CT_ARG_LIST)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "%s[%d] is %s; it has to be %s", arg->name, input - named,
                             ct_view_text(x), ct_dims_text(expected));
    return ct_infer_fail(infer, CT_ERR_SHAPE, "%s is %s; it has to be %s", arg->name, ct_view_text(x),
                         ct_dims_text(expected));
}

ct_dtype ct__infer_wide(ct_dtype dtype) { return ct__autocast != CT_F32 && ct__dtype_is_half(dtype) ? CT_F32 : dtype; }

bool ct__infer_not_negative(const ct_infer *infer, const char *name, int64_t value) {
    return value >= 0 || ct_infer_fail(infer, CT_ERR_VALUE, "%s is %lld; it is 0 or more", name, (long long)value);
}

bool ct__infer_shape(ct_infer *infer, const ct_dims *shape, ct_dtype dtype) {
    if (shape->n > CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "shape has %d dimensions; a tensor has at most %d", shape->n,
                             CT_MAX_DIMS);
    for (int i = 0; i < shape->n; i++)
        if (shape->d[i] < 0)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "shape %s: dimension %d is negative", ct_dims_text(*shape), i);
    if (ct__count(shape->n, shape->d) < 0)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "shape %s has more elements than memory can hold",
                             ct_dims_text(*shape));
    ct__infer_set(infer, 0, dtype, shape->n, shape->d);
    return true;
}

bool ct__vjp_has(const ct_vjp *v, int i) {
    return (i < v->n_out && v->out[i]) ||
           ct_fail(CT_ERR_STATE, v->op->name, "its gradient needs its result %s, which was not asked for",
                   v->op->outputs[i].name);
}

ct_dtype ct__widest_float(void) { return ct_device_has_dtype(ct_get_device(), CT_F64) ? CT_F64 : CT_F32; }

ct_device ct__table_begin(void) {
    const ct_device device = ct_get_device();
    if (!ct_device_has_dtype(device, CT_F64)) ct_set_device((ct_device){.type = CT_CPU});
    return device;
}

ct_tensor *ct__table_end(ct_device device, ct_tensor *table, ct_dtype dtype) {
    const bool moves = ct_get_device().type != device.type;
    table = ct_cast(table, dtype);
    ct_set_device(device);
    return moves ? ct_to(table, device) : table;
}

ct_tensor *ct__counted(int64_t n) { return ct_arange(0, (double)n, 1, .dtype = CT_I64); }
