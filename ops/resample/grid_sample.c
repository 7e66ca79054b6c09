/* grid_sample in ops: for each axis the elements around a place and their weights, then a sum of gathers. Indices carry
 * no gradient, weights do, so that it can be differentiated to any order. */
#include "ops/op_impl.h"

enum { MOST_TAPS = 4 };

bool grid_sample_infer(ct_infer *infer) {
    const grid_sample_attrs *a = infer->attrs;
    const ct_view *x = infer->in[0], *grid = infer->in[1];
    const int spatial = x->ndim - 2, first = a->channels_last ? 1 : 2;
    if (spatial != 2 && spatial != 3)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has to have 4 or 5 dimensions, %s", ct_view_text(x),
                             a->channels_last ? "[N,...,C]" : "[N,C,...]");
    if (grid->ndim != x->ndim || grid->dims[0] != x->dims[0] || grid->dims[spatial + 1] != spatial)
        return ct_infer_fail(infer, CT_ERR_SHAPE, "grid is %s; for x of %s it has to be [%lld,%s,%d]",
                             ct_view_text(grid), ct_view_text(x), (long long)x->dims[0],
                             spatial == 2 ? "Ho,Wo" : "Do,Ho,Wo", spatial);
    if (a->mode == CT_GRID_BICUBIC && spatial != 2)
        return ct_infer_fail(infer, CT_ERR_VALUE, "mode bicubic is for two spatial axes; x is %s", ct_view_text(x));
    for (int i = 0; i < spatial; i++)
        if (x->dims[first + i] < 1)
            return ct_infer_fail(infer, CT_ERR_SHAPE, "x is %s; it has no element to read along axis %d",
                                 ct_view_text(x), first + i);
    ct__infer_like(infer, 0, x, x->dtype);
    for (int i = 0; i < spatial; i++) infer->out[0].dims[first + i] = grid->dims[1 + i];
    return true;
}

/* Along one axis: element numbers, their weights, and where they count (NULL: everywhere). All are [N, places]. */
typedef struct axis_taps {
    int n;
    ct_tensor *element[MOST_TAPS], *weight[MOST_TAPS], *valid[MOST_TAPS];
} axis_taps;

/* Into [0, n - 1]; what is moved has no gradient, nor has a place on the very border. */
static ct_tensor *clipped(ct_tensor *at, int64_t n) {
    ct_tensor *inside = logical_and(gt_s(at, 0), lt_s(at, (double)(n - 1)));
    return where(inside, at, clamp(ct_detach(at), .min = CT_SET(0), .max = CT_SET(n - 1)));
}

/* Back and forth between the edges: the distance from the lower one, folded. */
static ct_tensor *reflected(ct_tensor *at, int64_t n, bool align) {
    const double low = align ? 0 : -0.5, span = align ? (double)(n - 1) : (double)n;
    if (span == 0) return mul_s(at, 0);
    ct_tensor *away = ct_abs(add_s(at, -low)), *turns = ct_floor(mul_s(ct_detach(away), 1 / span)),
              *rest = sub(away, mul_s(turns, span)), *even = eq_s(remainder_s(turns, 2), 0);
    return add_s(where(even, rest, add_s(neg(rest), span)), low);
}

static ct_tensor *padded(ct_tensor *at, int64_t n, const grid_sample_attrs *a) {
    if (a->padding == CT_GRID_ZEROS) return at;
    return clipped(a->padding == CT_GRID_REFLECTION ? reflected(at, n, a->align_corners) : at, n);
}

/* A whole element number as an index, and where it lies within the line. */
static void set_element(axis_taps *taps, int k, ct_tensor *at, int64_t n, const grid_sample_attrs *a) {
    at = ct_detach(at);
    taps->element[k] = cast(clamp(at, .min = CT_SET(0), .max = CT_SET(n - 1)), CT_I64);
    taps->valid[k] = a->padding == CT_GRID_ZEROS ? logical_and(ge_s(at, 0), le_s(at, (double)(n - 1))) : NULL;
}

/* at^3, at^2 and so on with a = -3/4: the cubic convolution kernel of Keys at a distance in [0,1] and in [1,2]. */
static ct_tensor *cubic_near(ct_tensor *d) { return add_s(mul(add_s(mul_s(d, 1.25), -2.25), mul(d, d)), 1); }
static ct_tensor *cubic_far(ct_tensor *d) { return add_s(mul(add_s(mul(add_s(mul_s(d, -0.75), 3.75), d), -6), d), 3); }

static axis_taps taps_along(ct_tensor *g, int64_t n, const grid_sample_attrs *a) {
    axis_taps taps = {0};
    ct_tensor *at = a->align_corners ? mul_s(add_s(g, 1), 0.5 * (double)(n - 1))
                                     : mul_s(add_s(mul_s(add_s(g, 1), (double)n), -1), 0.5);
    if (a->mode == CT_GRID_BICUBIC) {
        ct_tensor *low = ct_floor(ct_detach(at)), *f = sub(at, low), *rest = add_s(neg(f), 1);
        taps.n = 4;
        for (int k = 0; k < 4; k++) set_element(&taps, k, padded(add_s(low, k - 1), n, a), n, a);
        taps.weight[0] = cubic_far(add_s(f, 1));
        taps.weight[1] = cubic_near(f);
        taps.weight[2] = cubic_near(rest);
        taps.weight[3] = cubic_far(add_s(rest, 1));
        return taps;
    }
    at = padded(at, n, a);
    if (a->mode == CT_GRID_NEAREST) {
        taps.n = 1;
        set_element(&taps, 0, ct_round(ct_detach(at)), n, a);
        return taps;
    }
    ct_tensor *low = ct_floor(ct_detach(at)), *f = sub(at, low);
    taps.n = 2;
    set_element(&taps, 0, low, n, a);
    set_element(&taps, 1, add_s(low, 1), n, a);
    taps.weight[0] = add_s(neg(f), 1);
    taps.weight[1] = f;
    return taps;
}

static ct_tensor *both(ct_tensor *a, ct_tensor *b, bool truth) {
    return !a ? b : !b ? a : truth ? logical_and(a, b) : mul(a, b);
}

void grid_sample_lower(ct_lower *l) {
    const grid_sample_attrs *a = l->attrs;
    ct_tensor *x = l->in[0], *grid = l->in[1], *sum_of = NULL;
    const int spatial = ct_ndim(x) - 2, first = a->channels_last ? 1 : 2, middle = a->channels_last ? -1 : 1;
    const int64_t batch = ct_dim(x, 0), channels = ct_dim(x, a->channels_last ? spatial + 1 : 1);
    ct_dims shape = ct_shape(x);
    int64_t places = 1, plane = 1;
    for (int i = 0; i < spatial; i++) {
        shape.d[first + i] = ct_dim(grid, 1 + i);
        places *= ct_dim(grid, 1 + i);
        plane *= ct_dim(x, first + i);
    }
    axis_taps taps[3];
    for (int i = 0; i < spatial; i++) { /* the last axis of grid runs from the last axis of x to the first */
        ct_tensor *g = reshape(select(grid, -1, spatial - 1 - i), CT_DIMS(batch, places));
        taps[i] = taps_along(g, ct_dim(x, first + i), a);
    }
    x = reshape(x, a->channels_last ? CT_DIMS(batch, plane, channels) : CT_DIMS(batch, channels, plane));
    const ct_dims read = a->channels_last ? CT_DIMS(batch, places, channels) : CT_DIMS(batch, channels, places);
    int combinations = 1;
    for (int i = 0; i < spatial; i++) combinations *= taps[i].n;
    for (int c = 0; c < combinations; c++) {
        ct_tensor *index = NULL, *weight = NULL, *valid = NULL;
        for (int i = 0, rest = c; i < spatial; i++) {
            const int k = rest % taps[i].n;
            rest /= taps[i].n;
            index = index ? ct_add(mul_s(index, (double)ct_dim(l->in[0], first + i)), taps[i].element[k])
                          : taps[i].element[k];
            weight = both(weight, taps[i].weight[k], false);
            valid = both(valid, taps[i].valid[k], true);
        }
        ct_tensor *value = gather(x, a->channels_last ? 1 : 2, expand(unsqueeze(index, middle), read));
        if (weight) value = mul(value, unsqueeze(weight, middle));
        if (valid) value = where(unsqueeze(valid, middle), value, ct_scalar(0, ct_dtype_of(value)));
        sum_of = sum_of ? ct_add(sum_of, value) : value;
    }
    l->out[0] = reshape(sum_of, shape);
}
