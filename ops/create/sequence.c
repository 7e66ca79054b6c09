/* Tensors whose elements follow from their index: arange, linspace, eye, tril_mask, one_hot, meshgrid. */

#include "ops/op_impl.h"

static bool infer_length(ct_infer *infer, double n, ct_dtype dtype) {
    if (!(n < 0x1p62)) return ct_infer_fail(infer, CT_ERR_VALUE, "%g elements are more than memory can hold", n);
    return ct__infer_shape(infer, &(ct_dims){.n = 1, .d = {(int64_t)n}}, dtype);
}

bool arange_infer(ct_infer *infer) {
    const arange_attrs *a = infer->attrs;
    if (!__builtin_isfinite(a->start) || !__builtin_isfinite(a->stop) || !__builtin_isfinite(a->step) || a->step == 0)
        return ct_infer_fail(infer, CT_ERR_VALUE,
                             "start is %g, stop %g and step %g; all have to be finite, and step not zero", a->start,
                             a->stop, a->step);
    double n = __builtin_ceil((a->stop - a->start) / a->step);
    if (n < 0)
        return ct_infer_fail(infer, CT_ERR_VALUE, "step %g does not lead from start %g to stop %g", a->step, a->start,
                             a->stop);
    return infer_length(infer, n, a->dtype);
}

/* How many of them there are: their distance and step as unsigned numbers, which hold every difference of two i64. */
static uint64_t exact_length(const arange_i64_attrs *a) {
    const uint64_t distance =
        a->step > 0 ? (uint64_t)a->stop - (uint64_t)a->start : (uint64_t)a->start - (uint64_t)a->stop;
    const uint64_t step = a->step > 0 ? (uint64_t)a->step : -(uint64_t)a->step;
    return distance / step + (distance % step != 0);
}

bool arange_i64_infer(ct_infer *infer) {
    const arange_i64_attrs *a = infer->attrs;
    if (a->step == 0) return ct_infer_fail(infer, CT_ERR_VALUE, "step is 0");
    if (a->step > 0 ? a->stop < a->start : a->stop > a->start)
        return ct_infer_fail(infer, CT_ERR_VALUE, "step %lld does not lead from start %lld to stop %lld",
                             (long long)a->step, (long long)a->start, (long long)a->stop);
    return infer_length(infer, (double)exact_length(a), CT_I64);
}

/* Integers wrap: where i * step leaves the range, adding start brings it back. */
void arange_i64_lower(ct_lower *l) {
    const arange_i64_attrs *a = l->attrs;
    ct_tensor *x = ct__counted((int64_t)exact_length(a));
    if (a->step != 1) x = mul(x, ct_scalar_i64(a->step, CT_I64));
    l->out[0] = a->start ? add(x, ct_scalar_i64(a->start, CT_I64)) : x;
}

bool linspace_infer(ct_infer *infer) {
    const linspace_attrs *a = infer->attrs;
    if (a->n < 0) return ct_infer_fail(infer, CT_ERR_VALUE, "n is %lld; it cannot be negative", (long long)a->n);
    return infer_length(infer, (double)a->n, a->dtype);
}

static bool infer_matrix(ct_infer *infer, int64_t n, int64_t m, ct_dtype dtype) {
    return ct__infer_shape(infer, &(ct_dims){.n = 2, .d = {n, m ? m : n}}, dtype);
}

bool eye_infer(ct_infer *infer) {
    const eye_attrs *a = infer->attrs;
    return infer_matrix(infer, a->n, a->m, a->dtype);
}

bool tril_mask_infer(ct_infer *infer) {
    const tril_mask_attrs *a = infer->attrs;
    return infer_matrix(infer, a->n, a->m, CT_BOOL);
}

bool one_hot_infer(ct_infer *infer) {
    const one_hot_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0];
    if (a->classes < 1)
        return ct_infer_fail(infer, CT_ERR_VALUE, "classes is %lld; there has to be one at least",
                             (long long)a->classes);
    if (x->ndim == CT_MAX_DIMS)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "indices is %s; the result would have more than %d dimensions",
                             ct_view_text(x), CT_MAX_DIMS);
    ct_dims shape = {.n = x->ndim + 1};
    for (int i = 0; i < x->ndim; i++) shape.d[i] = x->dims[i];
    shape.d[x->ndim] = a->classes;
    return ct__infer_shape(infer, &shape, CT_I64);
}

/* ---- In simpler ops ---- */

/* start, start + step, ...: count numbers. */
static ct_tensor *line(double start, double step, int64_t count, ct_dtype dtype) {
    const double stop = start + step * ((double)count - 0.5);
    if (step == 0) return full(CT_DIMS(count), start, .dtype = dtype);
    if (__builtin_isfinite(stop) && __builtin_ceil((stop - start) / step) == (double)count)
        return arange(start, stop, step, .dtype = dtype);
    /* too small or too large a step for arange to count them */
    const ct_device device = ct__table_begin();
    return ct__table_end(device, add_s(mul_s(cast(ct__counted(count), CT_F64), step), start), dtype);
}

/* The first half is counted from start and the second from stop, so that both ends are met. */
void linspace_lower(ct_lower *l) {
    const linspace_attrs *a = l->attrs;
    if (a->n < 2) {
        l->out[0] = full(CT_DIMS(a->n), a->start, .dtype = a->dtype);
        return;
    }
    const double step = (a->stop - a->start) / (double)(a->n - 1);
    const int64_t first = (a->n - 1) / 2 + 1;
    ct_tensor *second = flip(line(a->stop, -step, a->n - first, a->dtype), CT_DIMS(0));
    l->out[0] = cat(((ct_tensor *[]){line(a->start, step, first, a->dtype), second}), 2, 0);
}

/* The number of its row and of its column, for every element of an n x m matrix. */
static ct_tensor *row_numbers(int64_t n) { return reshape(ct__counted(n), CT_DIMS(n, 1)); }
static ct_tensor *column_numbers(int64_t m) { return reshape(ct__counted(m), CT_DIMS(1, m)); }

void eye_lower(ct_lower *l) {
    const eye_attrs *a = l->attrs;
    l->out[0] = cast(eq(row_numbers(a->n), column_numbers(a->m ? a->m : a->n)), a->dtype);
}

void tril_mask_lower(ct_lower *l) {
    const tril_mask_attrs *a = l->attrs;
    const int64_t n = a->n, m = a->m ? a->m : n;
    const int64_t diagonal = a->diagonal < -n ? -n : a->diagonal > m ? m : a->diagonal; /* which may be any number */
    l->out[0] = le_s(sub(column_numbers(m), row_numbers(n)), (double)diagonal);
}

void one_hot_lower(ct_lower *l) {
    const one_hot_attrs *a = l->attrs;
    ct_tensor *index = check_range(l->in[0], 0, (double)(a->classes - 1), "one_hot", .index = true);
    index = unsqueeze(index, -1);
    ct_dims shape = ct_shape(index);
    ct__set_size(&shape, -1, a->classes);
    l->out[0] = scatter(zeros(shape, .dtype = CT_I64), -1, index, expand(ct_scalar(1, CT_I64), ct_shape(index)));
}

/* A result is a view of one input among several, so it is made by the ops that make views. */
void meshgrid_lower(ct_lower *l) {
    const meshgrid_attrs *a = l->attrs;
    int n = l->n_in;
    if (n < 1 || n > CT_MAX_DIMS || l->n_out != n) {
        ct_fail(CT_ERR_SHAPE, "meshgrid",
                "%d tensors give %d results of %d dimensions each, not %d; at most %d are possible", n, n, n, l->n_out,
                CT_MAX_DIMS);
        return;
    }
    ct_dims shape = {.n = n};
    for (int i = 0; i < n; i++) {
        if (ct_ndim(l->in[i]) > 1) {
            ct_fail(CT_ERR_SHAPE, "meshgrid", "xs[%d] is %s; it has to be 1-D or a scalar", i,
                    ct_tensor_text(l->in[i]));
            return;
        }
        int axis = a->xy && n > 1 && i < 2 ? 1 - i : i;
        shape.d[axis] = ct_numel(l->in[i]);
    }
    for (int i = 0; i < n; i++) {
        int axis = a->xy && n > 1 && i < 2 ? 1 - i : i;
        ct_dims along = {.n = n};
        for (int d = 0; d < n; d++) along.d[d] = d == axis ? shape.d[axis] : 1;
        if (l->want[i]) l->out[i] = expand(reshape(l->in[i], along), shape);
    }
}
