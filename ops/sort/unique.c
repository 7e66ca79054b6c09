/* Distinct values, counts and bins: shapes, and the lowerings of those whose size depends on values. */
#include "ops/reduce/reduce.h"

#include "ops/op_impl.h"

/* ---- unique: sort, find the runs, read how many there are ---- */

/* What follows from an order of n things and its runs: where each run starts, which run each thing is in (each place occurs
 * once, so adding to zeros is putting), how long each is. */
static void finish_unique(ct_lower *lower, ct_tensor *order, ct_tensor *starts, ct_tensor *run, int64_t n, int64_t runs,
                          ct_dims shape) {
    if (run) lower->out[1] = reshape(gather_grad(run, order, CT_DIMS(n), 0), shape);
    if (lower->n_out > 2 && lower->want[2]) lower->out[2] = sub(narrow(starts, 0, 1, runs), narrow(starts, 0, 0, runs));
}

static void unique_slices(ct_lower *lower, int64_t axis) {
    ct_tensor *x = lower->in[0], *starts = NULL, *count = NULL, *run = NULL, *order;
    const bool inverse = lower->n_out > 1 && lower->want[1];
    const int64_t n = ct_dim(x, (int)axis), m = n ? ct_numel(x) / n : 0;
    ct_tensor *rows = reshape(contiguous(movedim(x, CT_DIMS(axis), CT_DIMS(0))), CT_DIMS(n, m));
    order = inverse ? unique_rows(rows, .starts = &starts, .count = &count, .run = &run)
                    : unique_rows(rows, .starts = &starts, .count = &count);
    if (!order) return;
    const int64_t runs = (int64_t)ct_item(count);
    lower->out[0] = index_select(x, axis, gather(order, 0, narrow(starts, 0, 0, runs)));
    finish_unique(lower, order, starts, run, n, runs, CT_DIMS(n));
}

void unique_lower(ct_lower *lower) {
    const ct_opt axis = ((const unique_attrs *)lower->attrs)->axis;
    ct_tensor *x = lower->in[0], *order = NULL, *count = NULL, *run = NULL;
    bool inverse = lower->n_out > 1 && lower->want[1];
    if (!ct__has_numbers(x, "unique", "x")) return;
    if (axis.set) {
        if (axis.value != __builtin_floor(axis.value) || axis.value < -ct_ndim(x) || axis.value >= ct_ndim(x))
            ct_fail(CT_ERR_SHAPE, "unique", "axis %.15g is out of range for %s", axis.value, ct_tensor_text(x));
        else unique_slices(lower, ct__axis((int64_t)axis.value, ct_ndim(x)));
        return;
    }
    int64_t n = ct_numel(x);
    ct_tensor *flat = reshape(x, CT_DIMS(n));
    ct_tensor *sorted = inverse ? sort(flat, 0, .indices = &order) : sort(flat, 0);
    ct_tensor *starts =
        inverse ? unique_runs(sorted, .count = &count, .run = &run) : unique_runs(sorted, .count = &count);
    if (!starts) return;
    int64_t runs = (int64_t)ct_item(count);
    lower->out[0] = gather(sorted, 0, narrow(starts, 0, 0, runs));
    finish_unique(lower, order, starts, run, n, runs, ct_shape(x));
}

bool unique_rows_infer(ct_infer *infer) {
    const ct_view *x = infer->in[0];
    if (!ct__infer_arithmetic(infer, 0)) return false;
    if (x->ndim != 2) return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s, expected rows", ct_view_text(x));
    const int64_t more = x->dims[0] + 1;
    ct__infer_set(infer, 0, CT_I64, 1, x->dims);
    if (infer->n_out > 1) ct__infer_set(infer, 1, CT_I64, 1, &more);
    if (infer->n_out > 2) ct__infer_set(infer, 2, CT_I64, 0, NULL);
    if (infer->n_out > 3) ct__infer_set(infer, 3, CT_I64, 1, x->dims);
    return true;
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

/* What follows from where runs begin, a truth for each of n elements. */
static void finish_runs(ct_lower *l, int first, ct_tensor *begins) {
    const int64_t n = ct_numel(begins);
    ct_tensor *run = sub_s(cumsum(begins, 0), 1);
    if (l->want[first]) /* the least number of those in each run */
        l->out[first] =
            scatter_extreme(full(CT_DIMS(n + 1), (double)n, .dtype = CT_I64), 0, run, ct__counted(n), CT_FOLD_MIN);
    if (l->n_out > first + 1 && l->want[first + 1]) l->out[first + 1] = sum(begins);
    if (l->n_out > first + 2 && l->want[first + 2]) l->out[first + 2] = run;
}

/* A truth for each of n elements, of which `others` are about all but the first. */
static ct_tensor *with_first(ct_tensor *others, int64_t n) {
    if (n == 0) return zeros(CT_DIMS(0), .dtype = CT_BOOL);
    return cat(((ct_tensor *[]){ones(CT_DIMS(1), .dtype = CT_BOOL), others}), 2, 0);
}

/* Whether each row (element) is another one than that before it; no NaN is equal to one. */
static ct_tensor *changes(ct_tensor *x) {
    const int64_t n = ct_dim(x, 0);
    return n > 1 ? ne(narrow(x, 0, 1, n - 1), narrow(x, 0, 0, n - 1)) : ne_s(narrow(x, 0, 0, 0), 0);
}

void unique_runs_lower(ct_lower *l) { finish_runs(l, 0, with_first(changes(l->in[0]), ct_dim(l->in[0], 0))); }

/* Sorted by the last element of the rows first and by the first one last: each sort keeps the order of equals. */
void unique_rows_lower(ct_lower *l) {
    ct_tensor *x = l->in[0], *order = ct__counted(ct_dim(x, 0));
    for (int64_t i = ct_dim(x, 1) - 1; i >= 0; i--) {
        ct_tensor *keys = index_select(select(x, 1, i), 0, order);
        if (ct_dtype_is_float(ct_dtype_of(x))) keys = add_s(keys, 0); /* there is one zero */
        order = index_select(order, 0, argsort(keys, 0));
    }
    if (l->want[0]) l->out[0] = order;
    if (l->n_out > 1)
        finish_runs(l, 1, with_first(any(changes(index_select(x, 0, order)), .axes = CT_DIMS(1)), ct_dim(x, 0)));
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
    if (weights && (ct_ndim(weights) != 1 || ct_dim(weights, 0) != ct_dim(x, 0))) {
        ct_fail(CT_ERR_SHAPE, "bincount", "x is %s and weights %s: they have to have the same shape", ct_tensor_text(x),
                ct_tensor_text(weights));
        return;
    }
    if (attrs->minlength < 0) {
        ct_fail(CT_ERR_VALUE, "bincount", "minlength is %lld, expected 0 or more", (long long)attrs->minlength);
        return;
    }
    if (weights && !ct_dtype_is_float(ct_dtype_of(weights))) weights = cast(weights, CT_F64);
    if (dtype != CT_I32 && dtype != CT_I64) x = cast(x, CT_I64);
    int64_t size = ct_numel(x) ? ct__add(ct_item_i64(amax(x)), 1) : 0;
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

/* What goes beyond the result is an error of scatter_add. */
void bincount_sized_lower(ct_lower *l) {
    const int64_t size = ((const bincount_sized_attrs *)l->attrs)->size;
    ct_tensor *x = check_range(l->in[0], 0, __builtin_inf(), "bincount_sized", .index = true), *weights = l->in[1];
    const ct_dtype dtype = weights ? ct_dtype_of(weights) : CT_I64;
    if (!weights) weights = expand(ct_scalar(1, dtype), ct_shape(x));
    l->out[0] = scatter_add(zeros(CT_DIMS(size), .dtype = dtype), 0, x, weights);
}

/* ---- histogram ---- */

static bool infer_weights(const ct_infer *infer, int position) {
    const ct_view *x = infer->in[0], *weights = infer->in[position];
    if (!weights) return true;
    bool same = weights->ndim == x->ndim;
    for (int i = 0; i < x->ndim && same; i++) same = weights->dims[i] == x->dims[i];
    if (!same)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s and weights %s: they have to have the same shape",
                             ct_view_text(x), ct_view_text(weights));
    return ct__infer_arithmetic(infer, position);
}

static ct_dtype count_dtype(const ct_view *weights) {
    return weights && ct_dtype_is_float(weights->dtype) ? weights->dtype : CT_I64;
}

static bool infer_parts(const ct_infer *infer, int64_t bins, double lo, double hi) {
    if (!ct__infer_arithmetic(infer, 0)) return false;
    if (bins < 1) return ct_infer_fail(infer, CT_ERR_VALUE, "bins is %lld, expected 1 or more", (long long)bins);
    if (!(lo <= hi) || __builtin_isinf(lo) || __builtin_isinf(hi))
        return ct_infer_fail(infer, CT_ERR_VALUE, "the range is %g to %g, expected two finite numbers in order", lo,
                             hi);
    return true;
}

/* The sums of weights (NULL: how many there are) by place; those at `bins` are left out. The gradient is that of a sum
 * by index. */
static ct_tensor *sum_by_place(ct_tensor *places, ct_tensor *weights, int64_t bins) {
    const int64_t with_outside = ct__add(bins, 1);
    if (!weights) return narrow(bincount_sized(places, with_outside), 0, 0, bins);
    if (!ct_dtype_is_float(ct_dtype_of(weights))) weights = cast(weights, CT_I64);
    ct_tensor *sums = zeros(CT_DIMS(with_outside), .dtype = ct_dtype_of(weights));
    return narrow(scatter_add(sums, 0, places, flatten(weights)), 0, 0, bins);
}

bool histogram_infer(ct_infer *infer) {
    const histogram_attrs *attrs = infer->attrs;
    if (!infer_parts(infer, attrs->bins, attrs->lo, attrs->hi) || !infer_weights(infer, 1)) return false;
    ct__infer_set(infer, 0, count_dtype(infer->in[1]), 1, &attrs->bins);
    return true;
}

void histogram_lower(ct_lower *lower) {
    const histogram_attrs *attrs = lower->attrs;
    ct_tensor *places = histogram_places(ct_detach(lower->in[0]), attrs->bins, attrs->lo, attrs->hi);
    lower->out[0] = sum_by_place(places, lower->in[1], attrs->bins);
}

bool histogram_places_infer(ct_infer *infer) {
    const histogram_places_attrs *attrs = infer->attrs;
    const int64_t count = ct__count(infer->in[0]->ndim, infer->in[0]->dims);
    if (!infer_parts(infer, attrs->bins, attrs->lo, attrs->hi)) return false;
    ct__infer_set(infer, 0, CT_I64, 1, &count);
    return true;
}

/* In f64, as the kernel does. Division rounds: a part is corrected by its own edges. */
void histogram_places_lower(ct_lower *l) {
    const histogram_places_attrs *a = l->attrs;
    const bool point = a->lo == a->hi;
    const double lo = a->lo - 0.5 * point, width = a->hi + 0.5 * point - lo, bins = (double)a->bins;
    ct_tensor *x = flatten(cast(l->in[0], CT_F64));
    ct_tensor *inside = logical_and(ge_s(x, lo), le_s(x, lo + width)); /* not NaN */
    ct_tensor *part = clamp(ct_floor(mul_s(sub_s(where(inside, x, ct_scalar(lo, CT_F64)), lo), bins / width)),
                            .max = CT_SET(bins - 1));
    ct_tensor *below = lt(x, add_s(mul_s(div_s(part, bins), width), lo)),
              *above = ge(x, add_s(mul_s(div_s(add_s(part, 1), bins), width), lo));
    part = where(logical_and(below, gt_s(part, 0)), sub_s(part, 1),
                 where(logical_and(above, lt_s(part, bins - 1)), add_s(part, 1), part));
    l->out[0] = cast(where(inside, part, ct_scalar(bins, CT_F64)), CT_I64);
}

bool histogram_edges_infer(ct_infer *infer) {
    const ct_view *edges = infer->in[1];
    if (!ct__infer_arithmetic(infer, 0) || !ct__infer_arithmetic(infer, 1) || !infer_weights(infer, 2)) return false;
    if (edges->ndim != 1 || edges->dims[0] < 1)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "edges is %s, expected a vector of one edge at least",
                             ct_view_text(edges));
    const int64_t bins = edges->dims[0] - 1;
    ct__infer_set(infer, 0, count_dtype(infer->in[2]), 1, &bins);
    return true;
}

/* searchsorted on the right gives part + 1 for what is inside, and for the last edge one too many. */
void histogram_edges_lower(ct_lower *lower) {
    ct_tensor *x = flatten(ct_detach(lower->in[0])), *edges = ct_detach(lower->in[1]);
    const int64_t bins = ct_dim(edges, 0) - 1;
    ct_tensor *inside = logical_and(ge(x, narrow(edges, 0, 0, 1)), le(x, narrow(edges, 0, bins, 1)));
    ct_tensor *part = clamp(sub_s(searchsorted(edges, x, .right = true), 1), .max = CT_SET((double)(bins - 1)));
    ct_tensor *places = where(inside, part, ct_full_like(part, (double)bins));
    if (bins == 0) places = zeros_like(part); /* one edge: no parts */
    lower->out[0] = sum_by_place(places, lower->in[2], bins);
}

/* ---- searchsorted ---- */

bool searchsorted_infer(ct_infer *infer) {
    const ct_view *sorted = infer->in[0], *values = infer->in[1], *sorter = infer->in[2];
    if (!ct__infer_arithmetic(infer, 0) || !ct__infer_arithmetic(infer, 1)) return false;
    bool fits = sorted->ndim == 1 || (sorted->ndim == values->ndim && sorted->ndim > 0);
    for (int i = 0; i < sorted->ndim - 1 && fits; i++) fits = sorted->dims[i] == values->dims[i];
    if (!fits)
        return ct_infer_fail(
            infer, CT_ERR_SHAPE,
            "sorted is %s and values %s; sorted has one dimension, or those of values but for the last",
            ct_view_text(sorted), ct_view_text(values));
    bool same = !sorter || sorter->ndim == sorted->ndim;
    for (int i = 0; sorter && i < sorted->ndim && same; i++) same = sorter->dims[i] == sorted->dims[i];
    if (!same)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "sorter is %s; it has to have the shape of sorted, which is %s",
                             ct_view_text(sorter), ct_view_text(sorted));
    ct__infer_like(infer, 0, values, CT_I64);
    return true;
}

/* Whether a stands before v, where v is put before its equals, or behind them; NaN is the greatest and equals NaN. */
static ct_tensor *stands_before(ct_tensor *a, ct_tensor *v, bool right) {
    ct_tensor *before = right ? le(a, v) : lt(a, v);
    if (!ct_dtype_is_float(ct_dtype_of(v))) return before;
    ct_tensor *nan = ct_isnan(v);
    return logical_or(before, right ? nan : logical_and(nan, logical_not(ct_isnan(a))));
}

/* A binary search for all values at once, in as many steps as the longest of them takes. */
void searchsorted_lower(ct_lower *lower) {
    ct_tensor *sorted = lower->in[0], *values = lower->in[1];
    const bool right = ((const searchsorted_attrs *)lower->attrs)->right;
    if (lower->in[2]) {
        lower->out[0] = searchsorted(gather(sorted, -1, lower->in[2]), values, .right = right);
        return;
    }
    const int64_t n = ct_dim(sorted, -1);
    if (ct_ndim(sorted) == 1) values = flatten(values);
    ct_tensor *low = zeros(ct_shape(values), .dtype = CT_I64),
              *high = full(ct_shape(values), (double)n, .dtype = CT_I64);
    for (int64_t left = n; left > 0; left /= 2) {
        ct_tensor *middle = bitwise_right_shift_s(ct_add(low, high), 1);
        ct_tensor *at = gather(sorted, -1, clamp(middle, .max = CT_SET((double)(n - 1))));
        ct_tensor *open = lt(low, high), *before = stands_before(at, values, right);
        low = where(logical_and(open, before), add_s(middle, 1), low);
        high = where(logical_and(open, logical_not(before)), middle, high);
    }
    lower->out[0] = reshape(low, ct_shape(lower->in[1]));
}
