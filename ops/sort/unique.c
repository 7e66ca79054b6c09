/* Distinct values, counts and bins: shapes, and the lowerings of those whose size depends on values. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

/* ---- unique: sort, find the runs, read how many there are ---- */

void unique_lower(ct_lower *lower) {
    ct_tensor *x = lower->in[0], *places = NULL, *count = NULL, *run = NULL;
    bool inverse = lower->n_out > 1 && lower->want[1], counts = lower->n_out > 2 && lower->want[2];
    int64_t n = ct_numel(x);
    ct_tensor *flat = reshape(x, CT_DIMS(n));
    ct_tensor *sorted = inverse ? sort(flat, 0, .indices = &places) : sort(flat, 0);
    ct_tensor *starts =
        inverse ? unique_runs(sorted, .count = &count, .run = &run) : unique_runs(sorted, .count = &count);
    if (!starts) return;
    int64_t runs = (int64_t)ct_item(count);
    ct_tensor *first = narrow(starts, 0, 0, runs);
    lower->out[0] = gather(sorted, 0, first);
    /* each place occurs once, so adding to zeros is putting */
    if (inverse) lower->out[1] = reshape(gather_grad(run, places, CT_DIMS(n), 0), ct_shape(x));
    if (counts) lower->out[2] = sub(narrow(starts, 0, 1, runs), first);
}

bool unique_runs_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    if (!ct__infer_arithmetic(infer, 0)) return false;
    if (x->ndim != 1) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s, expected one dimension", ct_view_text(x));
    int64_t more = x->dims[0] + 1;
    ct__infer_set(infer, 0, CT_I64, 1, &more);
    if (infer->n_out > 1) ct__infer_set(infer, 1, CT_I64, 0, NULL);
    if (infer->n_out > 2) ct__infer_like(infer, 2, x, CT_I64);
    return true;
}

/* ---- bincount ---- */

void bincount_lower(ct_lower *lower) {
    const bincount_attrs *attrs = lower->attrs;
    ct_tensor *x = lower->in[0], *weights = lower->in[1];
    ct_dtype dtype = ct_dtype_of(x);
    if (!ct_dtype_is_int(dtype) && dtype != CT_BOOL) {
        ct_fail(CT_ERR_DTYPE, "bincount", "x is %s; it has to be an integer", ct_tensor_text(x));
        return;
    }
    if (ct_ndim(x) != 1) {
        ct_fail(CT_ERR_SHAPE, "bincount", "x is %s, expected one dimension", ct_tensor_text(x));
        return;
    }
    if (attrs->minlength < 0) {
        ct_fail(CT_ERR_VALUE, "bincount", "minlength is %lld, expected 0 or more", (long long)attrs->minlength);
        return;
    }
    if (weights && !ct_dtype_is_float(ct_dtype_of(weights))) weights = cast(weights, CT_F64);
    if (dtype != CT_I32 && dtype != CT_I64) x = cast(x, CT_I64);
    int64_t size = ct_numel(x) ? ct__add(ct__whole(ct_item(amax(x))), 1) : 0;
    if (size < attrs->minlength) size = attrs->minlength;
    lower->out[0] = bincount_sized(x, size < 0 ? 0 : size, .weights = weights);
}

bool bincount_sized_infer(ct_infer *infer) {
    const bincount_sized_attrs *attrs = infer->attrs;
    const ct_view *x = infer->in[0], *weights = infer->in[1];
    if (x->ndim != 1) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s, expected one dimension", ct_view_text(x));
    if (!ct__infer_not_negative(infer, "size", attrs->size)) return false;
    if (weights && (weights->ndim != 1 || weights->dims[0] != x->dims[0]))
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and weights %s: they have to have the same shape",
                             ct_view_text(x), ct_view_text(weights));
    if (weights && !ct_dtype_is_float(weights->dtype))
        return ct_infer_fail(infer, CT_ERR_DTYPE, "weights are %s, expected floats", ct_view_text(weights));
    ct__infer_set(infer, 0, weights ? weights->dtype : CT_I64, 1, &attrs->size);
    return true;
}

/* ---- histogram, searchsorted ---- */

bool histogram_infer(ct_infer *infer) {
    const histogram_attrs *attrs = infer->attrs;
    if (!ct__infer_arithmetic(infer, 0)) return false;
    if (attrs->bins < 1)
        return ct_infer_fail(infer, CT_ERR_VALUE, "bins is %lld, expected 1 or more", (long long)attrs->bins);
    if (!(attrs->lo <= attrs->hi) || __builtin_isinf(attrs->lo) || __builtin_isinf(attrs->hi))
        return ct_infer_fail(infer, CT_ERR_VALUE, "the range is %g to %g, expected two finite numbers in order",
                             attrs->lo, attrs->hi);
    ct__infer_set(infer, 0, CT_I64, 1, &attrs->bins);
    return true;
}

bool searchsorted_infer(ct_infer *infer) {
    const ct_view *sorted = infer->in[0], *values = infer->in[1];
    if (!ct__infer_arithmetic(infer, 0) || !ct__infer_arithmetic(infer, 1)) return false;
    bool fits = sorted->ndim == 1 || (sorted->ndim == values->ndim && sorted->ndim > 0);
    for (int i = 0; i < sorted->ndim - 1 && fits; i++) fits = sorted->dims[i] == values->dims[i];
    if (!fits)
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "sorted is %s and values %s; sorted has one dimension, or those of values but for the last",
            ct_view_text(sorted), ct_view_text(values));
    ct__infer_like(infer, 0, values, CT_I64);
    return true;
}
