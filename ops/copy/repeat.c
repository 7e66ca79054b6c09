/* repeat, tile, repeat_interleave: an expanded view, made dense. Their gradients are those of expand, the sums. */
#include "ops/op_impl.h"

/* Repeats x, of shape.n dimensions, by counts of the same number. An axis of size s repeated c times is [c, s],
 * expanded, then joined; only repeated axes need the extra dimension. Where that makes too many, the axes go one
 * after the other. */
static ct_tensor *repeated(ct_tensor *x, ct_dims counts) {
    const ct_dims shape = ct_shape(x);
    ct_dims split = {0}, wide = {0}, joined = {.n = shape.n};
    int extra = 0;
    for (int i = 0; i < shape.n; i++) extra += counts.d[i] != 1;
    if (extra == 0) return clone(x);
    if (shape.n + extra > CT_MAX_DIMS) {
        int last = shape.n - 1;
        while (counts.d[last] == 1) last--;
        int64_t outer = 1, inner = 1;
        for (int i = 0; i < shape.n; i++) *(i < last ? &outer : &inner) *= shape.d[i];
        ct_dims rest = counts, one = shape;
        one.d[last] = ct__mul(one.d[last], counts.d[last]);
        rest.d[last] = 1;
        x = expand(reshape(x, CT_DIMS(outer, 1, inner)), CT_DIMS(outer, counts.d[last], inner));
        return repeated(reshape(x, one), rest);
    }
    for (int i = 0; i < shape.n; i++) {
        if (counts.d[i] != 1) {
            split.d[split.n++] = 1;
            wide.d[wide.n++] = counts.d[i];
        }
        split.d[split.n++] = shape.d[i];
        wide.d[wide.n++] = shape.d[i];
        joined.d[i] = ct__mul(shape.d[i], counts.d[i]);
    }
    return reshape(clone(expand(reshape(x, split), wide)), joined);
}

static bool check_counts(const char *op, const ct_tensor *x, ct_dims counts, int least) {
    if (counts.n < least || counts.n > CT_MAX_DIMS)
        return ct_fail(CT_ERR_SHAPE, op, "x is %s and counts %s: %d to %d counts are expected", ct_tensor_text(x),
                       ct_dims_text(counts), least, CT_MAX_DIMS);
    for (int i = 0; i < counts.n; i++)
        if (counts.d[i] < 0)
            return ct_fail(CT_ERR_VALUE, op, "counts is %s; a count is 0 or more", ct_dims_text(counts));
    return true;
}

/* Ones in front of a shape, until it has n dimensions. */
static ct_dims with_leading_ones(ct_dims shape, int n) {
    ct_dims longer = {.n = n};
    for (int i = 0; i < n; i++) longer.d[i] = i < n - shape.n ? 1 : shape.d[i - (n - shape.n)];
    return longer;
}

void repeat_lower(ct_lower *l) {
    const ct_dims counts = ((const repeat_attrs *)l->attrs)->counts, shape = ct_shape(l->in[0]);
    if (!check_counts("repeat", l->in[0], counts, shape.n)) return;
    l->out[0] = repeated(reshape(l->in[0], with_leading_ones(shape, counts.n)), counts);
}

void tile_lower(ct_lower *l) {
    const ct_dims counts = ((const tile_attrs *)l->attrs)->counts, shape = ct_shape(l->in[0]);
    const int n = counts.n > shape.n ? counts.n : shape.n;
    if (!check_counts("tile", l->in[0], counts, 0)) return;
    l->out[0] = repeated(reshape(l->in[0], with_leading_ones(shape, n)), with_leading_ones(counts, n));
}

/* ---- repeat_interleave ---- */

void repeat_interleave_lower(ct_lower *l) {
    const repeat_interleave_attrs *at = l->attrs;
    ct_tensor *x = l->in[0], *repeats = l->in[1];
    const int ndim = ct_ndim(x);
    if (at->axis < -ndim || at->axis >= ndim) {
        ct_fail(CT_ERR_SHAPE, "repeat_interleave", "axis %lld is out of range for %s, which has %d dimension%s",
                (long long)at->axis, ct_tensor_text(x), ndim, ndim == 1 ? "" : "s");
        return;
    }
    const int axis = ct__axis(at->axis, ndim);
    const ct_dims shape = ct_shape(x);
    int64_t count = at->count;
    if (repeats) {
        const int64_t size = shape.d[axis];
        if (ct_ndim(repeats) > 1 || (ct_numel(repeats) != size && ct_numel(repeats) != 1)) {
            ct_fail(CT_ERR_SHAPE, "repeat_interleave",
                    "repeats is %s and axis %d of x, which is %s, has %lld elements: [%lld] or [1] is expected",
                    ct_tensor_text(repeats), axis, ct_tensor_text(x), (long long)size, (long long)size);
            return;
        }
        if (ct_numel(repeats) > 1 || size == 0) {
            if (ct_ndim(repeats) == 0 || ct_numel(repeats) != size) repeats = expand(repeats, CT_DIMS(size));
            const int64_t total = ct_item_i64(repeat_total(repeats));
            if (ct_ok()) l->out[0] = index_select(x, axis, repeat_index(repeats, total));
            return;
        }
        count = ct_item_i64(repeats); /* the same for all */
        if (!ct_ok()) return;
    }
    if (count < 0) {
        ct_fail(CT_ERR_VALUE, "repeat_interleave", "%s is %lld; it is 0 or more", repeats ? "repeats[0]" : "count",
                (long long)count);
        return;
    }
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < ndim; i++) *(i <= axis ? &outer : &inner) *= shape.d[i];
    ct_dims result = shape;
    result.d[axis] = ct__mul(result.d[axis], count);
    x = expand(reshape(x, CT_DIMS(outer, 1, inner)), CT_DIMS(outer, count, inner));
    l->out[0] = reshape(clone(x), result); /* in memory of its own, whatever the strides */
}

static bool is_vector(const ct_infer *infer) {
    return infer->in[0]->ndim == 1 ||
           ct_infer_fail(infer, CT_ERR_SHAPE, "repeats is %s; a vector is expected", ct_view_text(infer->in[0]));
}

bool repeat_total_infer(ct_infer *infer) {
    if (!is_vector(infer)) return false;
    ct__infer_set(infer, 0, CT_I64, 0, NULL);
    return true;
}

bool repeat_index_infer(ct_infer *infer) {
    const int64_t total = ((const repeat_index_attrs *)infer->attrs)->total;
    if (!is_vector(infer) || !ct__infer_not_negative(infer, "total", total)) return false;
    ct__infer_set(infer, 0, CT_I64, 1, &total);
    return true;
}

void repeat_total_lower(ct_lower *l) {
    const double most = 0x1p52; /* which an i64 holds, and a double */
    ct_tensor *repeats = check_range(l->in[0], 0, __builtin_inf(), "repeat_total");
    ct_tensor *rough =
        check_range(sum(cast(repeats, CT_F32)), 0, most, "repeat_total", .what = CT_CHECKED_SUM_OF_REPEATS);
    l->out[0] = add(sum(repeats), cast(mul_s(rough, 0), CT_I64));
}

/* Element j is of the first whose repeats end behind j. */
void repeat_index_lower(ct_lower *l) {
    const int64_t total = ((const repeat_index_attrs *)l->attrs)->total;
    l->out[0] = searchsorted(cumsum(l->in[0], 0), ct__counted(total), .right = true);
}
